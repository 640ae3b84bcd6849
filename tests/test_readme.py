"""What README shows is executed: its lines of Python, and the output of its first command."""

import re

import jax
import numpy as np
import pytest

from sampler.cli import main
from tests import ROOT
from tests.texts import blocks


def shown(kind: str) -> str:
    return "\n".join(text for found, text in blocks("README.md") if found == kind)


@pytest.fixture
def precision_as_before():
    """What is shown sets the precision of the whole process."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")
def test_lines_from_python(precision_as_before, without_annotation_checks, capsys):
    """As shown, but for sizes: those lines would take a minute."""
    smaller = shown("python")
    for text, small in (
        ("num_warmup=500, num_samples=500", "num_warmup=20, num_samples=20, progress_bar=False"),
        ("heads=", "tokens=4, examples_train=6, examples_test=5, features=6, heads="),
        ("widths=10, temperature=0.01", "widths=3, temperature=0.5"),
        ("draws=1000", "draws=20, warmup=20, space='weights', algorithm='hmc', leapfrog_steps=3"),
    ):
        assert text in smaller
        smaller = smaller.replace(text, small)
    names: dict = {}
    exec(compile(smaller, "README.md", "exec"), names)
    assert names["draws"]["posterior"].sizes["draw"] == 20
    assert "Order parameter U₁" in repr(names["comparison"])
    assert "order_parameter[1, 1]" in capsys.readouterr().out


# Of two independent estimates, and of Monte Carlo errors themselves: forty batches know an error to
# √(1/80) of itself.
MOST_ERRORS, ERROR_OF_ERRORS = 4.0, 4.0 * np.sqrt(2.0 / 80.0)


@pytest.mark.long
def test_the_output_is_that_of_the_demo(tmp_path, capsys, monkeypatch):
    """Every line shown is printed: theory to its digits, samples within their errors."""
    monkeypatch.setenv("COLUMNS", "80")
    main(["run", str(ROOT / "runs" / "quickstart.toml"), "--out", str(tmp_path / "run")])
    printed = iter(capsys.readouterr().out.splitlines())
    for line in shown("text").splitlines():
        same = (one for one in printed if without_numbers(one) == without_numbers(line))
        received = next(same, None)
        assert received is not None, f"not printed, or not in this order: {line}"
        assert_agree(received, line)


def assert_agree(received: str, expected: str) -> None:
    """Numbers of the theory are the same, sampled ones differ by no more than their errors."""
    one, other = numbers(received), numbers(expected)
    if expected.startswith(("U₁", "accuracy  ")):
        assert one[:2] == other[:2], "leading and next order"
        assert_within_errors(one[2:4], other[2:4])
        for leading, _, sampled, mcse, *difference in (one, other):
            if difference:  # is that of the numbers shown, which are rounded to four digits
                gap, rounding = sampled - leading, 1e-4
                in_mcse = abs(gap / mcse) * (rounding / abs(gap) + rounding / mcse) + 0.05
                assert difference[0] == pytest.approx(gap / mcse, abs=in_mcse)
                relative = 100 * rounding / abs(sampled) + 0.05
                assert difference[1] == pytest.approx(100 * gap / abs(sampled), abs=relative)
    elif "chains of" in expected:
        assert one[:2] == other[:2], "chains and draws"
        assert one[2] < 1.01, "R-hat"
        assert one[3:] == pytest.approx(other[3:], rel=ERROR_OF_ERRORS)
    elif "BFMI" in expected:
        # A ratio of two mean squares of 1000 draws, and a mean number of steps.
        assert one == pytest.approx(other, rel=MOST_ERRORS * np.sqrt(2.0 / 1000.0))
    elif "off by" in expected and " ± " in expected:
        assert_within_errors(one[:2], other[:2])
        # A bound on noise alone: about four errors, which moves by some of them.
        assert one[2:] == pytest.approx(other[2:], rel=1.0)
    elif expected.strip().endswith("%."):
        assert one == pytest.approx(other, rel=1.0)
    elif "test set" in expected:
        assert one == pytest.approx(other, abs=2e-4)
    else:
        assert one == other


def assert_within_errors(received: list[float], expected: list[float]) -> None:
    """Two numbers, each with its error."""
    (one, its), (other, others) = received, expected
    assert abs(one - other) <= MOST_ERRORS * np.hypot(its, others), (received, expected)
    # The smallest error is one digit.
    assert its == pytest.approx(others, rel=ERROR_OF_ERRORS, abs=1e-4), (received, expected)


def test_numbers_beyond_their_errors_are_told_apart():
    line = "U₁ good 3.2619 3.3690 3.3861 0.0098 12.7 3.7%"
    assert_agree(line, line)
    for wrong in (
        "U₁ good 3.2619 3.3690 3.5861 0.0098 33.1 9.0%",
        "U₁ good 3.2618 3.3690 3.3861 0.0098 12.7 3.7%",
        "U₁ good 3.2619 3.3690 3.3861 0.0298 4.2 3.7%",
        "U₁ good 3.2619 3.3690 3.3861 0.0098 -12.7 3.7%",
    ):
        with pytest.raises(AssertionError):
            assert_agree(wrong, line)


def without_numbers(line: str) -> str:
    return re.sub(r"[-−]?\d[\d,.]*", "#", re.sub(r" +", " ", line))


def numbers(line: str) -> list[float]:
    """The numbers of a line, without those in names such as U₁."""
    return [float(found.rstrip(".,")) for found in re.findall(r"-?\d[\d.]*", line)]
