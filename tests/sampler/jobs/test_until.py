"""How runs end: when their draws can be trusted, at a limit of draws, or of minutes."""

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

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn")]

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


# --- `max_minutes`: looked at after every chunk; what has no draws when it is over can be resumed

CUT = ("sampler.algorithm=hmc", "sampler.leapfrog_steps=2", "sampler.chains=2")
NO_TIME = "sampler.max_minutes=1e-9"


def drawn_in(directory: Path) -> np.ndarray:
    return read_draws(directory)["posterior"]["order_parameter"].values


def test_draws_that_a_limit_ended_go_on_where_it_is_raised(recipe_file, tmp_path, capsys):
    """In warm-up nothing is lost and there are no draws; against the first draws, bit for bit."""
    run, whole, failed = tmp_path / "run", tmp_path / "whole", ExitCode.DIAGNOSTICS_FAILED

    def sample(directory: Path, *further: str) -> ExitCode:
        asked = settings(*CUT, "sampler.warmup=2", *further)
        return command("sample", recipe_file, "--out", directory, *asked)

    assert sample(run, "sampler.max_draws=8", NO_TIME) == failed
    assert "sampler.max_minutes = 1e-09: over at warmup 1 of 2" in capsys.readouterr().err
    assert not (run / "draws.nc").exists()
    for _ in range(2):  # a step of warm-up, and the first draw
        command("resume", run)
    assert read_draws(run)["sample_stats"].attrs["ended_by"] == "max_minutes"
    few = drawn_in(run)
    for limit in (8, 8, 20):
        stored = (run / "draws.nc").stat().st_mtime_ns
        before = drawn_in(run).shape[1]
        assert sample(run, f"sampler.max_draws={limit}") == failed
        raised = before < limit
        assert ((run / "draws.nc").stat().st_mtime_ns != stored) == raised
        assert read_draws(run)["sample_stats"].attrs["ended_by"] == "max_draws"
    sample(whole, "sampler.draws=20")
    np.testing.assert_array_equal(drawn_in(run), drawn_in(whole))
    assert 0 < few.shape[1] < 20
    np.testing.assert_array_equal(few, drawn_in(whole)[:, : few.shape[1]])


@pytest.mark.parametrize("space", ["order_parameters", "weights"])
def test_of_fewer_draws_than_asked_for_all_weights_are_kept(space, recipe_file, tmp_path):
    """And there is no evidence, which a few draws say nothing of."""
    asked = [*CUT, NO_TIME, "sampler.warmup=0", f"sampler.space={space}", "sampler.weight_draws=9"]
    asked += ["sampler.evidence=true"] * (space == "order_parameters")
    code = command("sample", recipe_file, "--out", tmp_path / "run", *settings(*asked))
    assert code == ExitCode.DIAGNOSTICS_FAILED
    drawn = read_draws(tmp_path / "run")
    made = drawn["posterior"].sizes["draw"]
    assert drawn["posterior_weights"]["draw"].values.tolist() == list(range(made))
    assert "log_evidence" not in drawn["sample_stats"].attrs
    # A recipe asks for four draws at least: fewer in all would never be read again.
    assert command("resume", tmp_path / "run", "--more", 3 - made) == ExitCode.BAD_INPUT
