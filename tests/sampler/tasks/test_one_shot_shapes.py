"""Deeper and wider transformers go all the way: trained, solved, sampled, pruned."""

import json

import numpy as np
import pytest

from sampler.cli import main
from sampler.errors import ExitCode
from sampler.storage.results import read_draws, read_theory
from tests.training_recipes import TINY, write_training

ANALYSIS = """
name = "analysis"
[task]
kind = "one_shot"
model = "model"
examples_train = 16
examples_test = 20
examples_validation = 0
[network]
widths = 20
[posterior]
temperature = 0.5
[theory]
starts = 1
[sampler]
chains = 2
warmup = 5
draws = 4
"""


@pytest.mark.slow
@pytest.mark.parametrize("heads", [(2, 1, 2), (8, 2)], ids=["three layers", "eight heads"])
def test_every_stage_takes_them(heads, tmp_path):
    text = TINY.replace("130", "30").replace("heads = [2, 2]", f"heads = {list(heads)}")
    text = text.replace("widths = [6, 5, 4]", "widths = 6")
    recipe = write_training(tmp_path, np.random.default_rng(1), text)
    assert main(["train", str(recipe), "--out", str(tmp_path / "model")]) == ExitCode.OK
    (tmp_path / "analysis.toml").write_text(ANALYSIS)
    out = tmp_path / "run"
    # four draws are too few for diagnostics to pass
    assert (
        main(["run", str(tmp_path / "analysis.toml"), "--out", str(out)])
        == ExitCode.DIAGNOSTICS_FAILED
    )
    paths = int(np.prod(heads))
    theory, draws = read_theory(out), read_draws(out)
    assert theory.attrs["converged"]
    assert theory["order_parameter"].shape == (paths, paths)
    assert draws["posterior"]["order_parameter"].shape == (2, 4, paths, paths)
    assert np.isfinite(draws["posterior"]["predictor_mean"].values).all()
    assert main(["prune", str(out), "--orders", "2"]) == ExitCode.OK
    pruning = json.loads((out / "pruning.json").read_text())
    assert len(pruning["heads"]) == sum(heads)
    assert len(pruning["orders"]["score"]["removed"]) == sum(heads) - len(heads)
