"""What commands print: numbers of other libraries are theirs."""

import itertools
import re
import warnings

import arviz_base
import arviz_stats
import numpy as np
import pytest
import xarray as xr

from sampler.presentation.summary import network_text, slowest_text
from sampler.presentation.views import MOST_ROWS
from sampler.storage.directory import DRAWS_FILE
from sampler.storage.result_files import read_draws, write_result
from tests import FIXTURES
from tests.commands import in_process
from theory import Architecture

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
def test_no_tail_ess_is_below_the_least_that_is_said_of_all(capsys):
    """ArviZ's rows and the diagnostics above them take the tails at the same quantiles."""
    in_process("diagnose", FINISHED)
    text = capsys.readouterr().out
    (least,) = re.findall(r"ESS\s+≥\s+\d+\s+bulk,\s+(\d+)\s+tail", text)
    tails = [float(line.split()[-4]) for line in text.splitlines() if ", 0]" in line]
    assert tails
    assert min(tails) >= float(least)


def test_a_network_of_infinite_width_has_no_width():
    """The sizes that it is computed with are not said to be its own."""
    architecture = Architecture((1,), (1, 1), (1.0, 1.0, 1.0), 6)
    finite = network_text(architecture, 20, 0.2)
    infinite = network_text(architecture, 20, 0.2, infinite=True)
    assert re.findall(r"N = (\S+?),|P/N = (\S+?),", finite) == [("1", ""), ("", "20")]
    assert re.findall(r"N = (\S+?),|P/N = (\S+?),", infinite) == [("∞", "")]


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


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")
def test_the_calls_that_diagnose_prints_work(capsys, tmp_path):
    """They read this file, and have the numbers that are printed."""
    write_result(tmp_path, DRAWS_FILE, read_draws(FINISHED))
    tree = read_draws(tmp_path)
    printed = map(str.strip, slowest_text(tmp_path, tree).splitlines())
    *statements, summary, plot = itertools.dropwhile("import arviz".__ne__, printed)
    known: dict = {}
    with arviz_base.rc_context():
        exec("\n".join(statements), known)
        received = eval(summary, known)
    expected = summary_by_arviz(tree)
    np.testing.assert_allclose(received["mean"], expected["mean"], atol=0.006)
    np.testing.assert_allclose(received["ess_tail"], expected["ess_tail"], atol=0.51)
    from matplotlib import pyplot

    eval(plot, known)
    assert pyplot.get_fignums()
    pyplot.close("all")
