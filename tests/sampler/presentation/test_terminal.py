"""What commands print: counted by hand, as stored, and as ArviZ has it."""

import json
import re
import warnings

import arviz_base
import arviz_stats
import numpy as np
import pytest
import xarray as xr

from sampler.presentation.status_text import status_text
from sampler.presentation.summary import network_text, slowest_text
from sampler.presentation.views import MOST_ROWS
from sampler.settings.recipe import TrainingRecipe
from tests.commands import in_process, settings
from tests.pages import STORED
from tests.recipes import TINY as TRAINING
from tests.recipes import write_training, write_untrained
from tests.told.shown import numbers_in, rows_of
from theory import Architecture
from theory.size_limits import HESSIAN_COORDINATES

# Examples of the splits, tokens with the one at the beginning, and channels with their positions.
EXAMPLES, TOKENS, CHANNELS, HEADS = (6, 10, 7), 5, 6 + 5, (2, 1)
WIDTHS = ((3, 3, 3), (3, 5, 4))
RECIPE = """
name = "told"
[task]
kind = "markov_chain"
examples_train = 6
examples_test = 10
examples_validation = 7
tokens = 4
features = 6
[attention]
heads = [["good", "uniform"], ["uniform"]]
[network]
widths = 3
[sampler]
space = "order_parameters"
algorithm = "split_hmc"
chains = 1
draws = 4
weight_draws = 0
"""
SWEEP = '[sweep]\n"network.widths" = [3, [3, 5, 4]]\n'


def weights_of(widths: tuple[int, ...]) -> int:
    """Of the first layer, of the values of every head, and of the readout."""
    values = (h * n * m for h, n, m in zip(HEADS, widths[1:], widths[:-1], strict=True))
    return CHANNELS * widths[0] + sum(values) + widths[-1]


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """A function from a recipe and settings to what `check` prints of them."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("sampler.jobs.check.available_bytes", lambda: 3 * 2.0**30)

    def check(text: str, *overrides: str) -> str:
        (tmp_path / "recipe.toml").write_text(text, encoding="utf-8")
        assert in_process("check", tmp_path / "recipe.toml", *settings(*overrides)) == 0
        return capsys.readouterr().out

    return check


def test_sizes_and_memory_are_those_of_the_recipe(check):
    """In double precision the data, and two copies of attended inputs of all paths."""
    checked = check(RECIPE + SWEEP)
    sizes, memory = map(rows_of, checked.split("Memory"))
    paths, every = int(np.prod(HEADS)), sum(EXAMPLES)
    expected = {
        "training": EXAMPLES[0], "test": EXAMPLES[1], "validation": EXAMPLES[2], "tokens": TOKENS,
        "channels": CHANNELS, "outputs": 1, "attention layers": len(HEADS),
        "attention paths": paths, "weights": weights_of(WIDTHS[0]),
        "parameters": sum(n * (n + 1) // 2 for n in (paths, HEADS[1], 1)),
    }  # fmt: skip
    for start, value in expected.items():
        (cell,) = (cells[0] for name, cells in sizes.items() if name.startswith(start))
        assert int(re.match(r"\d+", cell)[0]) == value, start
    points = [line for line in checked.splitlines() if line.startswith("  network.widths=")]
    counted = [int(re.search(r"(\d+) weights", line)[1]) for line in points]
    assert counted == list(map(weights_of, WIDTHS))
    numbers = every * (TOKENS * CHANNELS + sum(HEADS) * TOKENS**2 + 1)
    kibibytes = {"data": 8 * numbers, "attended inputs": 2 * 8 * every * paths * CHANNELS}
    for name, size in kibibytes.items():
        assert numbers_in(memory[name][0])[0].shows(size / 2**10), (name, memory[name])
    # Beside the program these are nothing.
    assert [float(one.value) for one in numbers_in(memory["all, at the peak"][0])] == [1.0, 3.0]


def of_heads(count: int) -> tuple[str, str]:
    return f"attention.heads={[['random'] * count]}", "network.widths=80"


@pytest.mark.parametrize(
    ("row", "asked", "numbers"),
    [
        # Examples are represented by as many rows as there are features: channels of two paths.
        ("training examples P", ("task.examples_train=22",), ["22"]),
        ("training examples P", ("task.examples_train=23",), ["23", "22"]),
        # Of a layer of p heads there are p(p + 1)/2 coordinates, and one of the readout.
        ("next order in 1/N", of_heads(70), []),
        ("next order in 1/N", of_heads(71), ["2,557", f"{HESSIAN_COORDINATES:,}"]),
        # Short in a layer that is no narrower than its two paths, as its meaning says.
        ("warm-up", (), ["50"]),
        ("warm-up", ("network.widths=1",), ["150"]),
        ("warm-up", ("sampler.warmup=7",), ["7"]),
    ],
)
def test_check_tells_what_is_represented_what_is_missing_and_how_chains_begin(
    row, asked, numbers, check
):
    told = rows_of(check(RECIPE, *asked)).get(row, [""])
    assert re.findall(r"[\d,]*\d", told[0]) == numbers


def test_a_training_has_the_sizes_of_its_network_and_the_memory_of_a_batch(check, tmp_path, rng):
    """Attention in single precision, of every head a matrix of all tokens."""
    write_training(tmp_path, rng)
    sizes, memory = map(rows_of, check(TRAINING).split("Memory"))
    recipe = TrainingRecipe.load(tmp_path / "recipe.toml")
    model = write_untrained(tmp_path, recipe)
    parameters = sum(np.size(values) for values in model.parameters.values())
    assert sizes["parameters"] == [f"{parameters:,}"]
    tokens = recipe.task.read(recipe.training).sizes.tokens
    (shown,) = numbers_in(memory["attention of a batch"][0])
    assert shown.shows(4 * recipe.training.batch * sum(recipe.training.heads) * tokens**2 / 2**10)


def test_seconds_of_stages_are_those_of_the_manifest():
    stages = json.loads((STORED / "manifest.json").read_text(encoding="utf-8"))["stages"]
    lines = [line for line in status_text(STORED).splitlines() if "finished in" in line]
    for (stage, entry), line in zip(stages.items(), lines, strict=True):
        assert line.strip().startswith(f"{stage}: ")
        (shown,) = numbers_in(line)
        assert shown.shows(entry["seconds"]), line


def test_the_load_of_a_network_is_that_of_its_widest_layer():
    architecture = Architecture((2, 3), (10, 40, 20), (1.0,) * 4, channels=7)
    text = network_text(architecture, 100, 0.5)
    shown = dict(re.findall(r"(\S+)\s=\s([\d.]+)(?=,|$)", text))
    assert {name: float(shown[name]) for name in ("L", "P", "P/N", "D", "𝒯")} == {
        "L": 2, "P": 100, "P/N": 2.5, "D": 7, "𝒯": 0.5,
    }  # fmt: skip


def test_of_many_elements_the_slowest_are_printed_as_by_arviz(rng, tmp_path):
    """One element is a random walk, and every other one noise; numbers rounded as there."""
    values = rng.standard_normal((2, 50, 6, 6))
    values[:, :, 3, 4] = values[:, :, 3, 4].cumsum(axis=1)
    axes = ("chain", "draw", "path", "path_")
    coordinates = {axis: range(size) for axis, size in zip(axes, values.shape, strict=True)}
    posterior = xr.Dataset({"order_parameter": (axes, values)}, coordinates)
    tree = xr.DataTree.from_dict({"posterior": posterior})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few draws
        printed = slowest_text(tmp_path, tree).splitlines()
        with arviz_base.rc_context({"stats.ci_prob": 0.95}):
            expected = arviz_stats.summary(tree)
    rows = [line for line in printed if line.startswith("order_parameter[")]
    names = [row[: row.index("]") + 1] for row in rows]
    assert names[0] == "order_parameter[3, 4]"
    assert len(set(names)) == MOST_ROWS
    sizes = expected["ess_bulk"]
    assert max(sizes[names]) <= min(sizes.drop(names))
    by_arviz = [line.rpartition("]") for line in expected.to_string().splitlines()[1:]]
    by_arviz = {f"{name}]": numbers.split() for name, _, numbers in by_arviz}
    for name, row in zip(names, rows, strict=True):
        assert row.removeprefix(name).split() == by_arviz[name]
