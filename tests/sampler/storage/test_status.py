"""Which runs there are, and where each stands."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from sampler.data.make import build_task
from sampler.errors import ExitCode
from sampler.presentation.status_text import listing_text, status_text
from sampler.settings.identity import settings_that_fix_draws
from sampler.settings.recipe import load_recipe
from sampler.storage.checkpoints import Checkpoints
from sampler.storage.directory import (
    CHECKPOINT_FOLDER,
    RESULTS,
    ROWS_FOLDER,
    locked,
    point_directory,
)
from sampler.storage.fingerprint import determining
from sampler.storage.run_directory import opened_directory
from sampler.storage.status import FINISHED, INTERRUPTED, NOT_BEGUN, RUNNING, runs_in, state_of
from tests.commands import SMALLEST, TINY, in_process

STATES = (FINISHED, RUNNING, INTERRUPTED, NOT_BEGUN)


@pytest.fixture
def sweep(tmp_path):
    """Directory of a sweep of two points, and its recipe."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    recipe = load_recipe(path, ["sweep.sampler.seed=[0, 1]"])
    directory = tmp_path / "sweep"
    claim(directory, recipe)
    return directory, recipe


def claim(directory, recipe, code: ExitCode | None = None) -> None:
    """Begin a run, and end it with a code."""
    plan = determining(settings_that_fix_draws(recipe), build_task(recipe).identity)
    if recipe.sweep:
        plan = determining({}, None)
    with opened_directory(directory, recipe, plan) as held:
        held.begin("run")
        if code is not None:
            held.end(code)


def words(directory) -> list[str]:
    """Where the sweep stands, and its points, which are counted in what is told of it."""
    state = state_of(directory)
    found = [point.word for point in state.points.values()]
    listed = listing_text([directory]).splitlines()[-1]
    assert re.findall(r"\d+", listed) == [f"{found.count(FINISHED)}", f"{len(found)}"]
    if state.word == INTERRUPTED:
        told = status_text(directory).splitlines()[0].partition(": ")[2]
        counts = re.findall(rf"(\d+) ({'|'.join(STATES)})", told)
        assert dict(reversed(one) for one in counts) == {
            word: f"{found.count(word)}" for word in found
        }
    return [state.word, *found]


def test_points_of_an_array_are_counted_until_they_are_gathered(sweep):
    directory, whole = sweep
    found = [INTERRUPTED, NOT_BEGUN, NOT_BEGUN]
    assert words(directory) == found
    for place, (label, recipe) in enumerate(whole.points(), start=1):
        point = point_directory(directory, label)
        claim(point, recipe)
        with locked(point):
            found[place] = RUNNING
            assert words(directory) == found
        found[place] = INTERRUPTED
        assert words(directory) == found
        claim(point, recipe, ExitCode.OK)
        found[place] = FINISHED
        assert words(directory) == found
    claim(directory, whole, ExitCode.OK)
    assert words(directory) == 3 * [FINISHED]


# The header of a checkpoint, and the numbers that are told of it.
HEADERS = [
    ({"phase": "warmup", "done": 3, "total": 10}, [4, 3, 10]),
    ({"phase": "draws", "done": 3, "total": 10, "checks": [], "seen": ""}, [4, 3, 10]),
    (
        {"phase": "particles", "done": 2, "total": 5, "repetitions": {"modes": 3, "prior": 1}},
        [2, 5, 3, 1],
    ),
]


@pytest.mark.parametrize(("header", "told"), HEADERS)
def test_what_the_newest_checkpoint_holds_is_said(header, told, tmp_path):
    path, directory = tmp_path / "tiny.toml", tmp_path / "run"
    path.write_text(TINY)
    claim(directory, load_recipe(path))
    Checkpoints(directory / CHECKPOINT_FOLDER).save(header, {})
    numbers = re.findall(r"\d+", status_text(directory))
    assert list(map(int, numbers))[-len(told) :] == told


def test_a_pass_over_examples_is_seen_until_something_is_sampled(tmp_path):
    path, directory = tmp_path / "tiny.toml", tmp_path / "run"
    path.write_text(TINY)
    claim(directory, load_recipe(path))
    for folder, phase in ((ROWS_FOLDER, "examples"), (CHECKPOINT_FOLDER, "draws")):
        header = {"phase": phase, "done": 1, "total": 2}
        Checkpoints(directory / folder).save(header, {"a": np.zeros(2)})
        assert state_of(directory).checkpoint["phase"] == phase


# --- listings


@pytest.fixture
def results(tmp_path, monkeypatch) -> Path:
    """Three runs that were begun, of different age."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(SMALLEST)
    recipe = load_recipe(tmp_path / "tiny.toml")
    for age, name in enumerate(("new", "old", "older")):
        directory = RESULTS / name
        claim(directory, recipe)
        then = (directory / "manifest.json").stat().st_mtime - 1000 * age
        os.utime(directory / "manifest.json", (then, then))
    return RESULTS


def test_runs_are_listed_the_newest_first_and_latest_is_that(results, capsys):
    (results / "no run").mkdir()
    every = [str(results / name) for name in ("new", "old", "older")]
    assert [str(path) for path in runs_in([results])] == every
    assert in_process("list") == ExitCode.OK
    text = capsys.readouterr().out
    places = [text.index(f"{name}\n") for name in every]
    assert places == sorted(places)
    assert in_process("list", *every[1:]) == ExitCode.OK
    assert f"{every[0]}\n" not in capsys.readouterr().out
    assert in_process("status", "latest", every[2]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == [every[0], every[2]]


@pytest.mark.parametrize("text", ["", "sweep = 3", "[sweep.network]\nwidths = 3"])
def test_a_recipe_that_was_written_by_hand_is_listed(text, tmp_path, capsys):
    (tmp_path / "recipe.toml").write_text(text)
    assert in_process("list", tmp_path) == ExitCode.OK
    assert str(tmp_path) in capsys.readouterr().out
