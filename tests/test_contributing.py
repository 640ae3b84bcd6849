"""The examples of CONTRIBUTING.md, followed as they stand: registered from outside, and run."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.comparison import QUANTITIES
from sampler.attention.variants import VARIANTS
from sampler.data.make import build_task
from sampler.errors import ExitCode
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.presentation.figures.draw import FIGURES
from sampler.settings.recipe import load_recipe
from sampler.settings.task import TASKS
from tests import ROOT
from tests.commands import SMALLEST, in_process, made_once, without_drawing

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"### (.+)\n(?:(?!###)[\s\S])*?```python\n([\s\S]*?)```", TEXT))
TABLES = {
    "An attention variant": (VARIANTS, "squared"),
    "A task": (TASKS, "coin"),
    "A sampling algorithm": (ALGORITHMS, "metropolis"),
    "A figure": (FIGURES, "predictor_histogram"),
    "A compared quantity": (QUANTITIES, "trace"),
}
COIN = """
name = "coin"
task = { kind = "coin" }
network = { widths = 3 }
posterior = { temperature = 0.5 }
theory = { starts = 1 }
[sampler]
algorithm = "metropolis"
space = "weights"
chains = 2
warmup = 5
draws = 20
"""


@pytest.fixture(scope="module", autouse=True)
def followed():
    """Every example executed in a namespace of its own; its row is gone afterwards."""
    before = {name: dict(table._entries) for name, (table, _) in TABLES.items()}
    for code in EXAMPLES.values():
        exec(code, {"__name__": "my_module"})
    yield
    for name, (table, _) in TABLES.items():
        table._entries = before[name]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of a task, an algorithm, a figure and a quantity that the package does not have."""

    def make(folder: Path) -> int:
        (folder / "coin.toml").write_text(COIN)
        with without_drawing():
            return in_process("run", folder / "coin.toml", "--out", folder / "run")

    folder, code = made_once(tmp_path_factory, "run_of_the_examples", make)
    assert code == ExitCode.DIAGNOSTICS_FAILED, "twenty draws are too few"
    return folder / "run"


@pytest.mark.parametrize("name", TABLES)
def test_an_example_adds_its_row(name):
    table, row = TABLES[name]
    assert row in table


def test_the_variant_makes_the_attention_of_a_recipe(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(SMALLEST)
    omega = build_task(load_recipe(path, ['attention.form={kind="squared"}'])).train.attention[0]
    np.testing.assert_allclose(omega.sum(axis=2), 1.0, rtol=1e-12)
    assert np.abs(omega - build_task(load_recipe(path)).train.attention[0]).max() > 0.01


@pytest.mark.heavy
def test_task_algorithm_figure_and_quantity_meet_in_one_run(finished):
    draws = xr.open_datatree(finished / "draws.nc", engine="h5netcdf")
    assert list(draws["sample_stats"].data_vars) == ["lp"]
    assert draws["posterior"]["order_parameter"].shape == (2, 20, 2, 2)
    draws.close()
    stored = json.loads((finished / "comparison.json").read_text())
    with xr.open_datatree(finished / "comparison.nc") as tree:
        sampled = np.trace(tree["elements"]["order_parameter"]["sampled"].values)
    assert stored["summary"]["trace"]["sampled"]["value"] == pytest.approx(sampled, rel=1e-12)
    assert (finished / "figures" / "predictor_histogram.png").is_file()


@pytest.mark.heavy
def test_the_algorithm_goes_on_bit_for_bit(finished, tmp_path):
    longer, extended = tmp_path / "longer", tmp_path / "extended"
    recipe = finished.parent / "coin.toml"
    assert in_process("sample", recipe, "--out", longer, "--set", "sampler.draws=30") in (0, 3)
    assert in_process("sample", recipe, "--out", extended) in (0, 3)
    assert in_process("resume", extended, "--more", "10") in (0, 3)
    for group in ("posterior", "sample_stats"):
        one, other = (
            xr.load_dataset(where / "draws.nc", group=group, engine="h5netcdf")
            for where in (longer, extended)
        )
        xr.testing.assert_identical(one.drop_attrs(), other.drop_attrs())
