"""The temperature chosen on the validation split: the rule, its errors, and what it never reads."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.results import RunResults
from sampler.analysis.selection import chosen_points, selection
from sampler.analysis.sweep_dataset import SweptPoint, swept_points
from sampler.data.markov_chain import MarkovChain
from sampler.errors import ExitCode, InputError
from sampler.settings.recipe import load_recipe
from sampler.settings.task_sections import Attention
from tests.commands import in_process as command
from tests.commands import made_once, without_drawing
from tests.held import theory_of

pytestmark = pytest.mark.usefixtures("undrawn")

SWEEP = """
name = "temperatures"
[task]
{task}
[network]
widths = 3
[sampler]
{sampler}
[sweep]
"posterior.temperature" = {temperatures}
"""
SMALL = 'kind = "markov_chain"\nexamples_train = 4\nexamples_test = 4\ntokens = 3\nfeatures = 4'


def write_recipe(folder: Path, task=SMALL, sampler="", temperatures=(0.1, 1.0), further="") -> Path:
    path = folder / "recipe.toml"
    text = SWEEP.format(task=task, sampler=sampler, temperatures=list(temperatures))
    path.write_text(text + further, encoding="utf-8")
    return path


def theory(accuracy, density, infinite=0.5) -> xr.Dataset:
    """A theory with these scores of four validation examples; None where labels are no classes."""

    def scores(accuracy, density):
        of = {"log_predictive_density": density} | (
            {} if accuracy is None else {"accuracy": accuracy}
        )
        names = {f"validation_{name}_by_example": values for name, values in of.items()}
        return {name: (("validation_example",), np.asarray(v, float)) for name, v in names.items()}

    tuned = scores(None if accuracy is None else np.full(4, infinite), np.full(4, -infinite))
    tuned["temperature"] = ((), infinite)
    return theory_of({"leading": scores(accuracy, density), "infinite_tuned": tuned})


def swept(tmp_path, theories, **more) -> tuple:
    """The recipe and points of a sweep whose theories are these, one for each temperature."""
    temperatures = [0.1, 0.2, 0.3][: len(theories)]
    recipe = load_recipe(write_recipe(tmp_path, temperatures=temperatures))
    points = [
        SweptPoint(
            label, {"posterior.temperature": temperature}, point, RunResults.held(None, theory=one)
        )
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
        ([(HALF, WRONG), None, (4 * [np.nan], 4 * [np.nan])], 0.1, None),
    ],
    ids=["accuracy", "density", "order", "no classes", "missing"],
)
def test_the_best_accuracy_is_chosen(scores, best, second, tmp_path):
    found = selection(*swept(tmp_path, [one and theory(*one) for one in scores]))
    ((label, row),) = found.items()
    assert (row["temperature"], row["settings"]) == (best, {})
    assert label == f"posterior.temperature={best}"
    assert row["next_best"] == second or (second is None and np.isnan(row["next_best"]))
    assert (row["infinite_tuned_temperature"], row["infinite_tuned_log_predictive_density"]) == (
        0.5,
        -0.5,
    )


def test_nothing_is_chosen_without_scores(tmp_path):
    assert selection(*swept(tmp_path, [None, None])) == {}


# --- stored sweeps


def read(directory: Path) -> dict[str, dict]:
    return json.loads((directory / "selection.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    """A small task in three splits, as a user would store it."""
    section = MarkovChain(
        examples_train=8, examples_test=40, examples_validation=20, tokens=4, features=6
    )
    task = section.make(Attention(heads=(("good", "uniform"), ("uniform",))))
    stored = {}
    for name, split in (
        ("train", task.train),
        ("test", task.test),
        ("validation", task.validation),
    ):
        stored |= {f"inputs_{name}": split.inputs, f"labels_{name}": split.labels}
        for layer, matrices in enumerate(split.attention, start=1):
            stored[f"attention_{name}_{layer}"] = matrices
    return stored


def solved(folder: Path, arrays) -> Path:
    """The directory of a sweep over temperatures and widths with these arrays, solved alone."""
    folder.mkdir()
    np.savez(folder / "arrays.npz", **arrays)
    widths = '"network.widths" = [3, 4]\n'
    recipe = write_recipe(folder, 'kind = "arrays"\npath = "arrays.npz"', further=widths)
    with without_drawing():
        assert command("solve", recipe, "--out", folder / "results") == ExitCode.OK
    return folder / "results"


@pytest.fixture(scope="module")
def finished(arrays, tmp_path_factory) -> Path:
    folder, _ = made_once(
        tmp_path_factory, "solved_sweep", lambda folder: solved(folder / "run", arrays).name
    )
    return folder / "run" / "results"


@pytest.mark.slow
def test_test_labels_have_no_part_in_the_choice(finished, arrays, tmp_path):
    changed = arrays | {"labels_test": -arrays["labels_test"]}
    assert read(solved(tmp_path / "run", changed)) == read(finished)


@pytest.mark.slow
def test_only_the_chosen_temperature_of_each_width_is_sampled(arrays, tmp_path):
    np.savez(tmp_path / "arrays.npz", **arrays)
    task, sampling = 'kind = "arrays"\npath = "arrays.npz"', 'draws = 50\npoints = "selected"'
    recipe = write_recipe(tmp_path, task, sampling, further='"network.widths" = [3, 4]\n')
    out = tmp_path / "results"
    assert command("run", recipe, "--out", out) in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED)
    sampled = {path.parent.name for path in out.glob("*/draws.nc")}
    assert sampled == set(read(out))
    assert len(sampled) == 2
    for option in (["--slurm"], ["--point", 0]):
        assert command("sweep", recipe, "--out", tmp_path / "other", *option) == ExitCode.BAD_INPUT
    # A point that was not chosen is reproduced by its theory alone.
    not_chosen = next(
        path.parent for path in out.glob("*/theory.nc") if path.parent.name not in sampled
    )
    assert command("reproduce", not_chosen) == ExitCode.OK
    assert not (not_chosen / "reproduction" / "draws.nc").exists()


@pytest.mark.slow
def test_a_choice_that_cannot_be_made_is_refused(tmp_path, capsys):
    recipe = write_recipe(tmp_path, sampler='draws = 50\npoints = "selected"')
    assert command("run", recipe, "--out", tmp_path / "results") == ExitCode.BAD_INPUT
    assert "sampler.points = " in capsys.readouterr().err
    assert not (tmp_path / "results" / "selection.json").exists()
    # Nor where it can be made at some of the widths alone.
    directory = tmp_path / "results"
    stored = load_recipe(directory / "recipe.toml")
    assert len(swept_points(directory, stored)) == 2
    with pytest.raises(InputError):
        chosen_points(directory, stored)


def test_without_a_swept_temperature_all_points_are_chosen(tmp_path):
    recipe = load_recipe(write_recipe(tmp_path), ["sweep={'network.widths'=[3, 4]}"])
    assert chosen_points(tmp_path, recipe) == {label for label, _ in recipe.points()}
