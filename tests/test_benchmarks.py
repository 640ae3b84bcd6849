"""The benchmark of an accelerator at its small size: three ways to sample one posterior agree."""

import re

import pytest

from runs.benchmarks import gpu

# Of three entries and three pairs of rows, by Šidák at one false alarm in a thousand.
MOST_ERRORS = 3.9


@pytest.mark.slow
def test_weights_and_order_parameters_have_one_posterior(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["gpu", "--small", "--minutes", "6"])
    gpu.main()
    *rows, last = capsys.readouterr().out.strip().splitlines()
    measured = [line.split("|")[1:-1] for line in rows if line.startswith(("| weights", "| order"))]
    assert len(measured) == len(gpu.ROWS)
    assert all(float(columns[5]) <= 1.05 for columns in measured)  # R-hat
    assert float(re.search(r"([\d.]+) errors", last)[1]) <= MOST_ERRORS
