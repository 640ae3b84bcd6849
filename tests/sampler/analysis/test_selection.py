"""The temperature chosen on the validation split: the rule, and what it never reads.

Scores and their errors are told in `tests/told/test_sweeps.py`.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.results import RunResults
from sampler.analysis.selection import chosen_points, selection
from sampler.analysis.sweep_dataset import SweptPoint
from sampler.errors import ExitCode, InputError
from sampler.settings.recipe import load_recipe
from tests.commands import in_process
from tests.told.held import theory_of

pytestmark = pytest.mark.usefixtures("undrawn")

RECIPE = """
name = "temperatures"
[task]
{task}
[network]
widths = 3
[sampler]
draws = 50
points = "{points}"
[sweep]
"posterior.temperature" = {temperatures}
"""
SMALL = 'kind = "markov_chain"\nexamples_train = 4\nexamples_test = 4\ntokens = 3\nfeatures = 4'
ARRAYS = 'kind = "arrays"\npath = "arrays.npz"'
WIDTHS = '"network.widths" = [3, 4]\n'


def write_recipe(
    folder: Path, task: str = SMALL, points="all", temperatures=(0.1, 1.0), further: str = ""
) -> Path:
    path = folder / "recipe.toml"
    text = RECIPE.format(task=task, points=points, temperatures=list(temperatures))
    path.write_text(text + further, encoding="utf-8")
    return path


# --- the rule


def theory(accuracy, density) -> xr.Dataset:
    """A theory with these scores of four validation examples; None where labels are no classes."""
    scores = {"log_predictive_density": density} | (
        {} if accuracy is None else {"accuracy": accuracy}
    )
    columns = {
        f"validation_{name}_by_example": (("validation_example",), np.asarray(values, float))
        for name, values in scores.items()
    }
    return theory_of({"leading": columns, "infinite_tuned": columns | {"temperature": ((), 0.5)}})


def swept(folder: Path, theories) -> tuple:
    """The recipe and points of a sweep whose theories are these, one for each temperature."""
    temperatures = [0.1, 0.2, 0.3][: len(theories)]
    recipe, key = (
        load_recipe(write_recipe(folder, temperatures=temperatures)),
        "posterior.temperature",
    )
    points = [
        SweptPoint(label, {key: temperature}, point, RunResults.held(None, theory=one))
        for (label, point), temperature, one in zip(
            recipe.points(), temperatures, theories, strict=True
        )
    ]
    return recipe, points


RIGHT, WRONG, HALF = [1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("scores", "best", "second"),
    [
        ([(HALF, RIGHT), (RIGHT, WRONG), (WRONG, RIGHT)], 0.2, 0.1),
        # Of equal accuracies the density decides, and else the order of the grid.
        ([(HALF, [-3, -2, 0, 0]), (HALF, [-1, -1, 0, 0]), (WRONG, RIGHT)], 0.2, 0.1),
        ([(HALF, WRONG), (HALF, WRONG), (HALF, WRONG)], 0.1, 0.2),
        # Labels that are no classes.
        ([(None, WRONG), (None, HALF), (None, RIGHT)], 0.3, 0.2),
        # A point that is not solved, or whose saddle point did not converge, is none of them.
        ([(HALF, WRONG), None, (4 * [np.nan], 4 * [np.nan])], 0.1, np.nan),
    ],
    ids=["accuracy", "density", "order", "no classes", "missing"],
)
def test_the_best_accuracy_is_chosen(scores, best, second, tmp_path):
    found = selection(*swept(tmp_path, [one and theory(*one) for one in scores]))
    ((label, row),) = found.items()
    assert (row["temperature"], row["settings"]) == (best, {})
    assert label == f"posterior.temperature={best}"
    assert row["next_best"] == pytest.approx(second, nan_ok=True)


def test_nothing_is_chosen_without_scores_and_everything_without_temperatures(tmp_path):
    assert selection(*swept(tmp_path, [None, None])) == {}
    recipe = load_recipe(write_recipe(tmp_path), ["sweep={'network.widths'=[3, 4]}"])
    assert chosen_points(tmp_path, recipe) == {label for label, _ in recipe.points()}


# --- stored sweeps


def write_arrays(folder: Path, flip: float = 1.0) -> None:
    """A small task in three splits, as a user would store it."""
    rng, stored = np.random.default_rng(0), {}
    for split, count in (("train", 8), ("test", 40), ("validation", 20)):
        inputs = rng.standard_normal((count, 4, 6))
        labels = np.sign(inputs[:, -1, 0]) * (flip if split == "test" else 1.0)
        attention = rng.dirichlet(np.ones(4), (count, 2, 4)).swapaxes(-1, -2)
        stored |= {f"inputs_{split}": inputs, f"labels_{split}": labels}
        stored |= {f"attention_{split}_1": attention}
    np.savez(folder / "arrays.npz", **stored)


@pytest.mark.slow
def test_only_the_chosen_temperature_of_each_width_is_sampled(tmp_path):
    """Test labels have no part in the choice; a point not chosen is reproduced by its theory."""
    write_arrays(tmp_path)
    recipe, out = write_recipe(tmp_path, ARRAYS, "selected", further=WIDTHS), tmp_path / "results"
    code = in_process("run", recipe, "--out", out)
    assert code in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED)
    chosen = json.loads((out / "selection.json").read_text(encoding="utf-8"))
    sampled = {path.parent.name for path in out.glob("*/draws.nc")}
    assert sampled == set(chosen)
    assert len(sampled) == 2
    for option in (["--slurm"], ["--point", 0]):
        words = "sweep", recipe, "--out", tmp_path / "other", *option
        assert in_process(*words) == ExitCode.BAD_INPUT
    left = next(path.parent for path in out.glob("*/theory.nc") if path.parent.name not in sampled)
    assert in_process("reproduce", left) == ExitCode.OK
    assert not (left / "reproduction" / "draws.nc").exists()
    write_arrays(tmp_path, flip=-1.0)
    flipped = tmp_path / "flipped"
    assert in_process("solve", recipe, "--out", flipped) == ExitCode.OK
    assert json.loads((flipped / "selection.json").read_text(encoding="utf-8")) == chosen
    assert any((flipped / "figures").glob("*.png")), "a theory that is solved alone is drawn"


@pytest.mark.slow
def test_a_choice_that_cannot_be_made_is_refused(tmp_path, capsys):
    recipe, out = write_recipe(tmp_path, points="selected"), tmp_path / "results"
    assert in_process("run", recipe, "--out", out) == ExitCode.BAD_INPUT
    assert "sampler.points = " in capsys.readouterr().err
    assert not (out / "selection.json").exists()
    # Nor where it can be made at some of the widths alone.
    with pytest.raises(InputError):
        chosen_points(out, load_recipe(out / "recipe.toml"))
