"""Numbers of 22 problems come out as they were recorded: theory, posterior and choices of method.

`reference/README.md` says where they come from and how closely each is compared.
"""

import json

import pytest

from sampler.cli import main
from tests import ROOT
from tests.golden import differences, entries_of, method_of

RECORDED = json.loads((ROOT / "tests" / "reference" / "golden.json").read_text(encoding="utf-8"))
CHOICES = RECORDED.pop("choices")
OMNIGLOT = ROOT / "runs" / "omniglot"
GROUPS = ("leading", "next", "infinite", "infinite_tuned", "exact")
CUTS = "accuracy_diagonal_only"
# Theory of these is solved without their draws, too; that of these is so large that it takes long.
SOLVED_ALONE = ("quickstart", "three_layers_unequal")
LARGE = ("digits_ten_outputs", "one_shot_A")


def needs_omniglot(text: str) -> None:
    if "omniglot" in text.lower() and not OMNIGLOT.is_dir():
        pytest.skip("Omniglot's files are not in runs/omniglot")


def made_again(name, folder, command):
    """Entries of a problem whose recipe is run from a folder of its own."""
    problem = RECORDED[name]
    needs_omniglot(problem["recipe"])
    (folder / "trained").symlink_to(ROOT / "runs" / "trained")
    recipe = folder / f"{name}.toml"
    recipe.write_text(problem["recipe"].replace("OMNIGLOT", str(OMNIGLOT)), encoding="utf-8")
    undrawn = ["--no-figures"] if command == "run" else []
    words = [command, str(recipe), "--out", str(folder / "results"), *undrawn]
    assert main(words) == problem["exit"]
    return entries_of(folder / "results", cuts=CUTS in problem.get("leading", {}))


def expected_of(name, *without):
    return {k: v for k, v in RECORDED[name].items() if k in GROUPS and k not in without}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.slow if "exact" in one or name in LARGE else pytest.mark.heavy,
        )
        for name, one in RECORDED.items()
    ],
)
def test_recorded_numbers_come_out_again(name, tmp_path):
    received = made_again(name, tmp_path, RECORDED[name]["command"])
    assert not differences(received, expected_of(name))


@pytest.mark.heavy
@pytest.mark.parametrize("name", SOLVED_ALONE)
def test_theory_alone_comes_out_again(name, tmp_path):
    received = made_again(name, tmp_path, "solve")
    assert not differences(received, expected_of(name, "exact"))


@pytest.mark.heavy
@pytest.mark.parametrize("name", CHOICES)
def test_a_recipe_is_given_the_recorded_method(name):
    recipe = ROOT / "runs" / name
    needs_omniglot(recipe.read_text(encoding="utf-8"))
    assert method_of(recipe) == CHOICES[name]
