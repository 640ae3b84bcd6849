"""Every point of a sweep is what its recipe is alone: refused alike, and with the same theory."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sampler.cli import main
from sampler.errors import ExitCode, InputError
from sampler.jobs.plan import make_plan
from sampler.settings.point_labels import setting_text
from sampler.settings.recipe import load_recipe
from sampler.settings.toml import toml_value
from tests.commands import SMALLEST, settings, stored_arrays

LEARNED = SMALLEST.replace('[["good", "uniform"]', '[["learned", "learned"]')
ATTENDED = 'name = "own"\ntask = {kind = "arrays", path = "attended.npz"}\nnetwork.widths = 3\n'
RELU = SMALLEST.replace("widths = 3", 'widths = 3\nvalues = "relu"')
TEACHER = SMALLEST.replace("tokens = 4", 'tokens = 4\nlabels = "teacher"')
DRAWS = f'{SMALLEST}[sampler]\nuntil = "draws"\n'
ONE_CHAIN = f"{SMALLEST}[sampler]\nchains = 1\n"
INFINITE = "infinite"
NAMES = {
    SMALLEST: "", LEARNED: "learned ", ATTENDED: "attended ", RELU: "relu ", TEACHER: "teacher ",
    DRAWS: "draws ", ONE_CHAIN: "one chain ",
}  # fmt: skip
TWO_LAYERS = [["good", "uniform"], ["uniform"]]

# A recipe, a swept key, and its values.
SWEEPS = [
    (SMALLEST, "network.widths", [3, INFINITE, [3, 4, 5]]),
    (SMALLEST, "network.widths", [3, [3, 4]]),
    (LEARNED, "network.widths", [10, INFINITE]),
    (RELU, "network.widths", [10, INFINITE]),
    (ATTENDED, "network.norm", ["none", "after"]),
    (SMALLEST, "network.variances", [1.0, [1.0, 0.5, 2.0, 1.0], [1.0, 2.0]]),
    (SMALLEST, "network.heads", [[[0], [0]], [[1], [0]], [[3], [0]]]),
    (SMALLEST, "theory.subnetworks", [[], [[[1], [0]]], [[[5], [0]]]]),
    (SMALLEST, "task.examples_train", [4, 8, 30]),
    (SMALLEST, "attention.heads", [[["good"]], TWO_LAYERS, [["learned"]]]),
    (LEARNED, "attention.form", [{"kind": "softmax"}, {"kind": "scaled_heads", "scale": 99}]),
    (LEARNED, "sampler.space", ["order_parameters", "attention"]),
    (SMALLEST, "sampler.chains", [4, 1]),
    (ONE_CHAIN, "sampler.algorithm", ["split_hmc", "hmc"]),
    (DRAWS, "sampler.algorithm", ["tempered", "split_hmc"]),
    (TEACHER, "network.widths", [3, [3, 4]]),
    (TEACHER, "posterior.temperature", [0.1, 1.0]),
]


def sweep_id(sweep: tuple) -> str:
    text, key, values = sweep
    return f"{NAMES[text]}{key}={toml_value(values)}"


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A function that writes a recipe where its data are."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    arrays = {"heads": np.array([2, 1])}
    for split, examples in (("train", 6), ("test", 5)):
        arrays[f"attended_{split}"] = rng.standard_normal((examples, 2, 3))
        arrays[f"labels_{split}"] = rng.choice([-1.0, 1.0], examples)
    np.savez(tmp_path / "attended.npz", **arrays)

    def write(text: str) -> Path:
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def outcome(make) -> dict | str:
    """What a plan says of a run, or the line that refuses it."""
    try:
        plan = make()
    except InputError as problem:
        return str(problem)
    return {
        "recipe": plan.recipe,
        "sizes": replace(plan.sizes, stiffness=0.0),
        "stiffness": plan.sizes.stiffness,
        "stages": plan.stages,
        "method": plan.method,
        "arrays": plan.arrays,
    }


@pytest.mark.parametrize("sweep", SWEEPS, ids=sweep_id)
def test_a_point_is_planned_or_refused_as_if_alone(sweep, recipe, tmp_path):
    text, key, values = sweep
    path = recipe(text)
    alone = [
        outcome(lambda v=v: make_plan("run", load_recipe(path, [f"{key}={toml_value(v)}"])))
        for v in values
    ]
    refused = [each for each in alone if isinstance(each, str)]
    swept = load_recipe(path, [f"sweep.{key}={toml_value(values)}"])
    if refused:
        with pytest.raises(InputError) as problem:
            make_plan("run", swept)
        assert str(problem.value) in refused
        return
    points = make_plan("run", swept).points
    assert [outcome(lambda p=point: p) for point in points] == alone
    # The recipe that its directory keeps has the same points.
    path.write_text(swept.to_toml(tmp_path), encoding="utf-8")
    assert load_recipe(path) == swept
    assert load_recipe(path).points() == swept.points()


SOLVED = [
    (SMALLEST, "network.heads", [[[0], [0]], [[1], [0]]]),
    (SMALLEST, "network.values", ["linear", "relu"]),
    (SMALLEST, "attention.heads", [[["good"]], TWO_LAYERS]),
    (TEACHER, "posterior.temperature", [0.1, 1.0]),
]


@pytest.mark.slow
@pytest.mark.parametrize("sweep", SOLVED, ids=sweep_id)
def test_the_theory_of_a_point_is_that_of_its_recipe_alone(sweep, recipe, tmp_path):
    """Bit for bit, but for what only the points of a sweep have."""
    text, key, values = sweep
    path = recipe(f"{text}[theory]\nstarts = 1\n" if "[theory]" not in text else text)
    grid = settings(f"sweep.{key}={toml_value(values)}")
    words = ["--no-figures", "--out"]
    assert main(["solve", str(path), *words, str(tmp_path / "sweep"), *grid]) == ExitCode.OK
    for number, value in enumerate(values):
        alone = tmp_path / f"{number}"
        chosen = settings(f"{key}={toml_value(value)}")
        assert main(["solve", str(path), *words, str(alone), *chosen]) == ExitCode.OK
        expected = stored_arrays(alone)
        received = stored_arrays(tmp_path / "sweep" / setting_text(key, value))
        assert expected.keys() <= received.keys()
        for name, numbers in expected.items():
            np.testing.assert_array_equal(received[name], numbers, err_msg=name)


@pytest.mark.parametrize(
    ("setting", "widths", "others"),
    [
        ("network.norm=after", [1, 1, 2, 1, 2], [1, 1, 1, 1, 2]),
        ("network.residual=true", [2, 1, 2, 3, 2], [2, 1, 3, 3, 2]),
    ],
)
def test_what_is_normalised_or_added_to_is_between_hypernetworks(setting, widths, others, recipe):
    """Two units at least, or as many everywhere; of the inner layer of one any number."""
    hyper, path = [setting, "network.hypernetwork=true"], recipe(SMALLEST)
    assert make_plan("run", load_recipe(path, [*hyper, f"network.widths={widths}"])).is_sampled
    with pytest.raises(InputError):
        load_recipe(path, [*hyper, f"network.widths={others}"])


@pytest.mark.slow
def test_a_finished_point_whose_data_are_others_by_now_is_refused(recipe, tmp_path, capsys):
    """As its recipe is alone, though the data of the first point are as they were."""
    path, out = recipe(f"{ATTENDED}theory.starts = 1\n"), tmp_path / "out"
    shutil.copy("attended.npz", "other.npz")
    grid = settings('sweep.task.path=["attended.npz", "other.npz"]')
    words = ["solve", str(path), "--no-figures", "--out", str(out), *grid]
    assert main(words) == main(words) == ExitCode.OK
    with np.load("other.npz") as arrays:
        np.savez("other.npz", **{**arrays, "labels_train": -arrays["labels_train"]})
    capsys.readouterr()
    assert main(words) == ExitCode.BAD_INPUT
    assert "other.npz" in capsys.readouterr().err
