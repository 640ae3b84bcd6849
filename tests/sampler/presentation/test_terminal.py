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
from sampler.presentation.summary import slowest_text
from sampler.presentation.views import MOST_ROWS
from sampler.storage.result_files import read_draws
from tests import FIXTURES
from tests.commands import in_process
from tests.pages import STORED
from tests.shown import numbers_in, rows_of

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
chains = 1
draws = 4
weight_draws = 0
[sweep]
"network.widths" = [3, [3, 5, 4]]
"""


def weights_of(widths: tuple[int, ...]) -> int:
    """Of the first layer, of the values of every head, and of the readout."""
    values = (h * n * m for h, n, m in zip(HEADS, widths[1:], widths[:-1], strict=True))
    return CHANNELS * widths[0] + sum(values) + widths[-1]


@pytest.fixture
def checked(tmp_path, monkeypatch, capsys) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    assert in_process("check", tmp_path / "recipe.toml") == 0
    return capsys.readouterr().out


def test_sizes_are_those_of_the_recipe(checked):
    rows = rows_of(checked.split("Memory")[0])
    paths, (train, *_) = int(np.prod(HEADS)), EXAMPLES
    sizes = [paths, HEADS[1], 1]
    expected = {
        "training": train, "test": EXAMPLES[1], "validation": EXAMPLES[2], "tokens": TOKENS,
        "channels": CHANNELS, "outputs": 1, "attention layers": len(HEADS),
        "attention paths": paths, "weights": weights_of(WIDTHS[0]),
        "parameters": sum(n * (n + 1) // 2 for n in sizes),
    }  # fmt: skip
    for start, value in expected.items():
        (cell,) = (cells[0] for name, cells in rows.items() if name.startswith(start))
        assert int(re.match(r"\d+", cell)[0]) == value, start


def test_the_weights_of_every_point_are_counted(checked):
    points = [line for line in checked.splitlines() if line.startswith("  network.widths=")]
    assert [int(re.search(r"(\d+) weights", line)[1]) for line in points] == [
        weights_of(widths) for widths in WIDTHS
    ]


def test_memory_is_that_of_the_arrays(checked):
    """Double precision: the data themselves, and two copies of attended inputs of all paths."""
    rows, every = rows_of(checked.split("Memory")[1]), sum(EXAMPLES)
    numbers = every * (TOKENS * CHANNELS + sum(HEADS) * TOKENS**2 + 1)
    expected = {
        "data": 8 * numbers / 2**10,
        "attended inputs": 2 * 8 * every * int(np.prod(HEADS)) * CHANNELS / 2**10,
    }
    for name, size in expected.items():
        assert numbers_in(rows[name][0])[0].shows(size), (name, rows[name])
    # One GiB is that of the program.
    assert numbers_in(rows["all, at the peak"][0])[0].shows(1.0)


def test_seconds_of_stages_are_those_of_the_manifest():
    stages = json.loads((STORED / "manifest.json").read_text(encoding="utf-8"))["stages"]
    lines = [line for line in status_text(STORED).splitlines() if "finished in" in line]
    for (stage, entry), line in zip(stages.items(), lines, strict=True):
        assert line.strip().startswith(f"{stage}: ")
        (shown,) = numbers_in(line)
        assert shown.shows(entry["seconds"]), line


# --- what commands print: numbers of other libraries are theirs


FINISHED = FIXTURES / "finished"


def summary_by_arviz(draws):
    names = [name for name in draws["posterior"].data_vars if "order_parameter" in name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few draws
        with arviz_base.rc_context({"stats.ci_prob": 0.95}):
            return arviz_stats.summary(draws, var_names=names)


def assert_rows_of(expected, printed: list[str]) -> None:
    """Every row of a summary is among the lines, each number as the library rounds it."""
    for row, numbers in expected.iterrows():
        (line,) = (line for line in printed if line.startswith(str(row)))
        received = [float(word) for word in line.removeprefix(str(row)).split()]
        np.testing.assert_array_equal(received, np.asarray(numbers, dtype=float))


def test_diagnose_prints_arviz_summary_of_the_order_parameters(capsys):
    """U of every layer and of the readout; of so few elements all."""
    in_process("diagnose", FINISHED)
    expected = summary_by_arviz(read_draws(FINISHED))
    assert len(expected) < MOST_ROWS
    assert {str(row).partition("[")[0] for row in expected.index} > {"readout_order_parameter"}
    assert_rows_of(expected, capsys.readouterr().out.splitlines())


@pytest.mark.filterwarnings("ignore")  # of ArviZ about itself
def test_of_many_elements_the_slowest_are_printed(rng, tmp_path):
    """One element is a random walk, and every other one noise."""
    paths = 6
    values = rng.standard_normal((2, 50, paths, paths))
    values[:, :, 3, 4] = values[:, :, 3, 4].cumsum(axis=1)
    axes = ("chain", "draw", "path", "path_")
    coordinates = {axis: range(size) for axis, size in zip(axes, values.shape, strict=True)}
    posterior = xr.Dataset({"order_parameter": (axes, values)}, coordinates)
    tree = xr.DataTree.from_dict({"posterior": posterior})
    printed = slowest_text(tmp_path, tree).splitlines()
    expected = summary_by_arviz(tree)
    sizes = expected["ess_bulk"]
    rows = [line for line in printed if line.startswith("order_parameter[")]
    assert rows[0].startswith("order_parameter[3, 4]")
    names = [row[: row.index("]") + 1] for row in rows]
    assert_rows_of(expected.loc[names], rows)
    assert len(set(names)) == MOST_ROWS
    assert max(sizes[names]) <= min(sizes.drop(names))
