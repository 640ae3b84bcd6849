"""Runs that end when their draws can be trusted: interrupted, extended, reproduced, refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from sampler.errors import ExitCode
from sampler.settings.recipe import load_recipe
from sampler.storage.files import read_json
from sampler.storage.fingerprint import read_stamp
from sampler.storage.result_files import read_draws
from tests.commands import TINY, made_once, settings, without_drawing
from tests.commands import in_process as command

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("undrawn")]

FAST = ("sampler.warmup=100", "sampler.max_draws=1200")
# Chains of short steps, which 1,200 draws do not suffice for.
SLOW = ("sampler.warmup=0", "sampler.max_draws=600", "sampler.algorithm=hmc",
        "sampler.leapfrog_steps=1")  # fmt: skip


@pytest.fixture(scope="module")
def trusted(recipe_file, tmp_path_factory) -> Path:
    """A run that its own draws ended."""

    def make(folder: Path) -> int:
        with without_drawing():
            return command("sample", recipe_file, "--out", folder / "run", *settings(*FAST))

    directory, code = made_once(tmp_path_factory, "run_until_trusted", make)
    assert code == ExitCode.OK
    return directory / "run"


def made_in(directory: Path) -> int:
    """How many draws of a chain were made, by what their file says of itself."""
    return read_stamp(directory / "draws.nc")["made"]


def test_the_default_ends_at_a_look_that_trusts_the_draws(trusted):
    tree = read_draws(trusted)
    made = tree["posterior"].sizes["draw"]
    assert made in (520, 676, 879, 1143)
    attributes = tree["sample_stats"].attrs
    assert (attributes["draws_per_chain"], attributes["ended_by"]) == (made, "trusted")
    assert made_in(trusted) == made
    numbers = read_json(trusted / "comparison.json")["diagnostics"]
    assert numbers["verdict"] == "pass"
    assert min(one["ess_bulk"] for one in numbers["quantities"].values()) >= 500


@pytest.mark.long
def test_more_draws_are_those_of_a_longer_run(trusted, recipe_file, tmp_path):
    copy, longer = tmp_path / "copy", tmp_path / "longer"
    shutil.copytree(trusted, copy)
    made = made_in(copy)
    assert command("resume", copy, "--more", 5) == ExitCode.OK
    overrides = [*FAST, f"sampler.draws={made + 5}"]
    command("sample", recipe_file, "--out", longer, *settings(*overrides))
    assert made_in(copy) == made + 5
    for one in ("posterior/order_parameter", "predictions/predictor"):
        drawn = (read_draws(each)[one].values for each in (copy, longer))
        np.testing.assert_array_equal(*drawn)


def test_reproduced_with_the_number_of_draws_that_was_made(trusted, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(trusted, copy)
    assert command("reproduce", copy) == ExitCode.OK
    redone = load_recipe(copy / "reproduction" / "recipe.toml")
    assert redone.sampler.until == "draws"
    assert redone.sampler.draws == made_in(trusted)


def test_draws_that_do_not_suffice_end_with_the_verdict_and_its_remedy(recipe_file, tmp_path):
    code = command("sample", recipe_file, "--out", tmp_path / "run", *settings(*SLOW))
    assert code == ExitCode.DIAGNOSTICS_FAILED
    tree = read_draws(tmp_path / "run")
    assert tree["posterior"].sizes["draw"] == 600
    assert tree["sample_stats"].attrs["ended_by"] == "max_draws"


def test_another_way_to_end_is_refused_in_the_same_directory(trusted, recipe_file):
    words = settings(*FAST, "sampler.draws=50")
    code = command("sample", recipe_file, "--out", trusted, *words)
    assert code == ExitCode.BAD_INPUT


@pytest.mark.parametrize(
    ("added", "until", "draws", "most"),
    [
        ("", "trusted", None, 20_000),
        ("max_draws = 700", "trusted", None, 700),
        ("draws = 50", "draws", 50, 50),
        ('until = "draws"', "draws", 1000, 1000),
        ("chains = 1", "draws", 1000, 1000),
        ("draws = { weights = 50 }", "draws", {"weights": 50}, 1000),
    ],
)
def test_who_names_draws_gets_them(added, until, draws, most, tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(f"{TINY}\n{added}\n")
    recipe = load_recipe(path)
    assert (recipe.sampler.until, recipe.sampler.draws) == (until, draws)
    assert recipe.sampler.most_draws == most
    path.write_text(recipe.to_toml())
    assert load_recipe(path) == recipe
    # What is given on the command line comes last.
    assert load_recipe(path, ["sampler.draws=60"]).sampler.until == "draws"
    if recipe.sampler.chains > 1:
        assert load_recipe(path, ['sampler.until="trusted"']).sampler.draws is None
