"""The lines of Python and the commands that README shows are executed, and print its numbers."""

import contextlib
import io
import re

import jax
import numpy as np
import pytest

from sampler.settings.recipe import Recipe
from tests import ROOT
from tests.commands import in_process
from tests.told.shown import NUMBER, Shown, numbers_in, places, plain


def blocks_of(language: str) -> list[str]:
    text, marks = (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    return re.findall(rf"^```{language}\n(.*?)^```", text, marks)


SHOWN = blocks_of("python")
# Numbers of the chains themselves are others on another machine, and so are errors and bounds.
OF_CHAINS = ("R-hat", "ESS", "draws")


@pytest.fixture
def precision_as_before():
    """What is shown sets the precision of the whole process."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_lines_from_python(precision_as_before, without_annotation_checks):
    """As shown, but for sizes: those lines would take a minute."""
    smaller = "\n".join(SHOWN)
    for text, small in (
        ("num_warmup=500, num_samples=500", "num_warmup=20, num_samples=20, progress_bar=False"),
        ("MarkovChain(", "MarkovChain(tokens=4, examples_train=6, examples_test=5, features=6, "),
        ('{"widths": 10}', '{"widths": 3}, posterior={"temperature": 0.5}'),
        ("draws=1000", "draws=20, warmup=20, space='weights', algorithm='hmc', leapfrog_steps=3"),
    ):
        assert text in smaller
        smaller = smaller.replace(text, small)
    names: dict = {}
    exec(compile(smaller, "README.md", "exec"), names)
    assert names["draws"]["posterior"].sizes["draw"] == 20
    assert names["draws"]["posterior"].sizes["chain"] > 1


def test_python_has_the_recipe_whose_numbers_are_shown():
    first, _, _ = SHOWN[0].partition("theory =")
    names: dict = {}
    exec(compile(first, "README.md", "exec"), names)
    shipped = Recipe.load(ROOT / "runs" / "quickstart.toml")
    for section in ("task", "attention", "network", "posterior"):
        assert getattr(names["recipe"], section) == getattr(shipped, section)
    draws = re.search(r"draws=(\d+)", SHOWN[0])
    assert int(draws[1]) == shipped.sampler.draws


def masked(line: str) -> str:
    """A line without its numbers, and without the width of its columns."""
    return " ".join(re.sub(rf"(?<![\w₀-₉]){NUMBER}", "#", plain(line)).split())


def agree(one: Shown, other: Shown) -> bool:
    """Equal to the last digit, or within five of their errors; of bounds to a factor of two."""
    value, found = float(one.value), float(other.value)
    if one.below:
        return other.below and 0.5 < value / found < 2.0
    errors = [float(text) for each in (one, other) for text in each.errors if text != "?"]
    step = 10.0 ** -min(places(one.value), places(other.value))
    return abs(value - found) <= 5.0 * np.sqrt(np.sum(np.square(errors))) + 1.01 * step


@pytest.mark.slow
def test_the_quickstart_prints_what_is_shown(tmp_path, monkeypatch):
    """Every line, with its numbers."""
    monkeypatch.setenv("COLUMNS", "80")
    printed = io.StringIO()
    recipe = ROOT / "runs" / "quickstart.toml"
    with contextlib.redirect_stdout(printed):
        assert in_process("run", recipe, "--out", tmp_path / "run", "--no-figures") == 0
    lines = {masked(line): line for line in printed.getvalue().splitlines()}
    shown = [line for block in blocks_of("text") for line in block.splitlines() if line.strip()]
    assert shown
    for line in shown:
        assert masked(line) in lines, line
        if not any(word in line for word in OF_CHAINS):
            pairs = zip(numbers_in(line), numbers_in(lines[masked(line)]), strict=True)
            assert all(agree(*pair) for pair in pairs), line


def test_the_first_command_runs_the_recipe_whose_output_is_shown():
    commands = re.findall(r"^    make (\w+)$", (ROOT / "README.md").read_text("utf-8"), re.M)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    recipes = [re.search(rf"^{name}:.*\n((?:\t.*\n)+)", makefile, re.M)[1] for name in commands]
    assert commands == ["demo", "test"]
    assert recipes[0].split() == ["$(BIN)/attention-posterior", "run", "runs/quickstart.toml"]
