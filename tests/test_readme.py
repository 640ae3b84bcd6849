"""What README shows is executed: its lines of Python, and the output of its first command."""

import re

import pytest

from sampler.cli import main
from tests import ROOT
from tests.texts import blocks


def shown(kind: str) -> str:
    (block,) = (text for found, text in blocks("README.md") if found == kind)
    return block


@pytest.mark.filterwarnings("ignore")
def test_lines_from_python():
    """As shown, but for sizes: those lines would take a minute."""
    smaller = shown("python")
    for text, small in (
        ("heads=", "tokens=4, examples_train=6, examples_test=5, features=6, heads="),
        ("widths=10, temperature=0.01", "widths=3, temperature=0.5"),
        ("draws=1000", "draws=20, warmup=20, space='weights', algorithm='hmc', leapfrog_steps=3"),
    ):
        assert text in smaller
        smaller = smaller.replace(text, small)
    names: dict = {}
    exec(compile(smaller, "README.md", "exec"), names)
    assert names["draws"]["posterior"].sizes["draw"] == 20
    assert "U₁ good" in repr(names["comparison"])


@pytest.mark.slow
def test_the_output_is_that_of_the_demo(tmp_path, capsys):
    """Every line shown is printed: theory to its digits, samples within the noise of a machine."""
    main(["run", str(ROOT / "runs" / "quickstart.toml"), "--out", str(tmp_path / "run")])
    printed = {without_numbers(line): line for line in capsys.readouterr().out.splitlines()}
    for line in shown("text").splitlines():
        assert without_numbers(line) in printed, line
        received = printed[without_numbers(line)]
        if line.startswith(("U₁", "accuracy")):
            assert numbers(received)[:2] == numbers(line)[:2], "leading and next order"
        assert numbers(received) == pytest.approx(numbers(line), rel=1.0, abs=5.0)


def without_numbers(line: str) -> str:
    return re.sub(r"[-−]?\d[\d,.]*", "#", re.sub(r" +", " ", line))


def numbers(line: str) -> list[float]:
    return [float(found.rstrip(".,")) for found in re.findall(r"-?\d[\d.]*", line)]
