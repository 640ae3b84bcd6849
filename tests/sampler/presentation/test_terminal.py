"""What commands print: numbers of other libraries are theirs."""

import warnings

import arviz_stats
import numpy as np

from sampler.storage.results import read_draws
from tests import FIXTURES
from tests.commands import in_process


def test_diagnose_prints_arviz_summary_of_the_order_parameters(capsys):
    """U of every layer and of the readout, each number as the library rounds it."""
    directory = FIXTURES / "finished"
    in_process("diagnose", directory)
    printed = capsys.readouterr().out.splitlines()
    draws = read_draws(directory)
    names = [name for name in draws["posterior"].data_vars if "order_parameter" in name]
    assert {"order_parameter", "readout_order_parameter"} < set(names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few draws
        expected = arviz_stats.summary(draws, var_names=names)
    for row, numbers in expected.iterrows():
        (line,) = (line for line in printed if line.startswith(str(row)))
        received = [float(word) for word in line.removeprefix(str(row)).split()]
        np.testing.assert_array_equal(received, np.asarray(numbers, dtype=float))
