"""What README shows is executed: its recipe, and its lines that open the draws."""

import re
from pathlib import Path

import pytest

from sampler.cli import main
from sampler.jobs.recipe import load_recipe
from sampler.jobs.training_recipe import load_any_recipe

ROOT = Path(__file__).resolve().parents[1]
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


def code_block(language: str) -> str:
    """The first block of a language in README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)
    assert found, f"README has no block of {language}"
    return found.group(1)


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
    exec(compile(code_block("python"), "README.md", "exec"), {})
    assert (tmp_path / "ranks.png").stat().st_size > 0


def test_recipes_that_ship_are_valid():
    shipped = sorted((ROOT / "runs").glob("*.toml"))
    listed = (ROOT / "runs" / "README.md").read_text(encoding="utf-8")
    assert shipped
    for path in shipped:
        assert load_any_recipe(path).name == path.stem
        assert f"`{path.name}`" in listed, f"runs/README.md does not list {path.name}"
