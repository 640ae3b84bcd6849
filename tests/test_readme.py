"""What README shows is executed: its recipe, and its lines that open the draws."""

import re
from pathlib import Path

import pytest

from sampler.cli import main
from sampler.recipes.recipe import load_recipe
from sampler.recipes.training_recipe import load_any_recipe
from tests import ROOT

SMALL = (
    "task.examples_train=6",
    "task.examples_test=5",
    "task.tokens=4",
    "task.features=6",
    "sampler.draws=120",
    "sampler.chains=2",
    "sampler.warmup=60",
    "sampler.weight_draws=4",
    "posterior.temperature=0.5",
    "network.widths=3",
)


def code_block(language: str, holding: str = "") -> str:
    """The first block of a language in README that holds this text."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)
    found = [block for block in blocks if holding in block]
    assert found, f"README has no block of {language} with {holding!r}"
    return found[0]


@pytest.fixture
def shown_recipe(tmp_path) -> Path:
    path = tmp_path / "two_paths.toml"
    path.write_text(code_block("toml"), encoding="utf-8")
    return path


def test_recipe_of_readme_is_valid(shown_recipe):
    recipe = load_recipe(shown_recipe)
    labels = [label for label, _ in recipe.points()]
    assert labels == [f"network.widths={width}" for width in (10, 100, 1000)]


@pytest.mark.filterwarnings("ignore")
def test_lines_that_open_the_draws(shown_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    out = Path("runs/results/quickstart")
    main(["sample", str(shown_recipe), "--out", str(out), *(f"--set={s}" for s in SMALL)])
    exec(compile(code_block("python", "ranks.png"), "README.md", "exec"), {})
    assert (tmp_path / "ranks.png").stat().st_size > 0


@pytest.mark.filterwarnings("ignore")
def test_lines_from_python():
    """As shown, but for sizes: those lines would take a minute."""
    shown = code_block("python", "make_network")
    smaller = shown.replace("tokens=30", "tokens=4, examples_train=6, examples_test=5, features=6")
    smaller = smaller.replace("widths=10, temperature=0.01", "widths=3, temperature=0.5")
    smaller = smaller.replace(
        "draws=1000", "draws=20, warmup=20, algorithm='hmc', leapfrog_steps=3"
    )
    assert len({shown, smaller}) == 2
    names: dict = {}
    exec(compile(smaller, "README.md", "exec"), names)
    assert names["draws"]["posterior"].sizes["draw"] == 20
    assert "U₁ good" in repr(names["comparison"])


def test_recipes_that_ship_are_valid():
    shipped = sorted((ROOT / "runs").glob("*.toml"))
    listed = (ROOT / "runs" / "README.md").read_text(encoding="utf-8")
    assert shipped
    for path in shipped:
        assert load_any_recipe(path).name == path.stem
        assert f"`{path.name}`" in listed, f"runs/README.md does not list {path.name}"
