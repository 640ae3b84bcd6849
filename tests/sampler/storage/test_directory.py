"""The directory of a run: claimed once for one recipe, and held by one process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from sampler.data.examples import Examples
from sampler.data.make import build_task
from sampler.errors import DiskError, ExitCode, InputError, RequeueError
from sampler.settings.identity import settings_that_fix_draws
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import (
    CHECKPOINT_FOLDER,
    FIGURE_FOLDER,
    NAME_BYTES,
    ROWS_FOLDER,
    is_held,
    locked,
    point_directory,
    remove_unfinished,
)
from sampler.storage.files import UNFINISHED
from sampler.storage.fingerprint import carries, determining, differences, stamp
from sampler.storage.manifest import most_memory, read_manifest
from sampler.storage.run_directory import RunDirectory, opened_directory
from tests import ROOT
from tests.commands import SMALLEST


@pytest.fixture
def load(tmp_path):
    """A function from settings to a small recipe with them."""
    path = tmp_path / "given.toml"
    path.write_text(SMALLEST)
    return lambda *settings: load_recipe(path, settings)


@pytest.fixture
def recipe(load):
    return load()


@contextmanager
def begun(directory, recipe, extended=False) -> Iterator[RunDirectory]:
    """A directory in which `run` is begun."""
    plan = determining({}, None)
    if not recipe.sweep:
        plan = determining(settings_that_fix_draws(recipe), build_task(recipe).identity)
    with opened_directory(directory, recipe, plan, extended) as held:
        held.begin("run")
        yield held


def claim(directory, recipe, code: ExitCode | None = None) -> None:
    with begun(directory, recipe) as held:
        if code is not None:
            held.end(code)


def listing(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_of_two_recipes_for_one_new_directory_the_second_leaves_what_the_first_wrote(
    recipe, tmp_path, monkeypatch
):
    """Both find it empty; the other one claims it before this one has the lock."""
    directory, other = tmp_path / "deep" / "run", recipe.model_copy(update={"name": "other"})

    def lock_later(*arguments):
        monkeypatch.undo()
        claim(directory, other)
        return locked(*arguments)

    monkeypatch.setattr("sampler.storage.run_directory.locked", lock_later)
    with pytest.raises(InputError) as refused:
        claim(directory, recipe)
    assert refused.value.field == "--out"
    assert read_manifest(directory).name == "other"
    assert load_recipe(directory / "recipe.toml") == other
    claim(directory, other, ExitCode.DIAGNOSTICS_FAILED)
    assert read_manifest(directory).outcome.code == ExitCode.DIAGNOSTICS_FAILED
    claim(directory, other)
    assert read_manifest(directory).outcome is None


def test_data_with_one_more_array_are_other_data(rng):
    """Lengths of sequences come last: all numbers before them are the same."""
    one = Examples(rng.standard_normal((3, 4, 2)), rng.standard_normal((3, 1)))
    padded = replace(one, lengths=np.array([4, 3, 4]))
    plans = [determining({}, {"sums": [examples.sums]}) for examples in (one, padded)]
    for then, now in product(plans, repeat=2):
        assert differences(then, now) == ["the data"] * (then is not now)
        assert carries(stamp(then), now) == (then is now)


def test_a_sweep_may_grow_in_its_directory_and_loses_no_finished_point(load, tmp_path):
    directory = tmp_path / "sweep"

    def grid(widths: list[int], *more: str):
        return load(f"sweep.network.widths={widths}", *more)

    for widths in ([5, 6], [5], [4, 5, 7]):  # no point is there yet
        claim(directory, grid(widths))
    claim(point_directory(directory, "network.widths=5"), load("network.widths=5"), ExitCode.OK)
    claim(directory, grid([9, 5]))
    begun_only = point_directory(directory, "network.widths=9")
    with pytest.raises(RequeueError), begun(begun_only, load("network.widths=9")):
        raise RequeueError("SIGTERM")
    for widths in ([5], [9, 5]):  # what came to no end may be taken out
        claim(directory, grid(widths))
    others = [grid([9]), grid([9, 5], "sampler.draws=20"), grid([9, 5], "sweep.sampler.seed=[0]")]
    for other in (*others, load()):
        with pytest.raises(InputError) as refused:
            claim(directory, other)
        assert refused.value.field == "--out"
    assert load_recipe(directory / "recipe.toml") == grid([9, 5])


def test_a_run_keeps_the_time_of_its_beginning_and_who_computed_each_stage(
    recipe, tmp_path, monkeypatch
):
    """Versions, commit and flags are those of the process that computed it."""
    directory, computed = tmp_path / "run", {}
    times = iter(["first", "solved", "second", "sampled", "third", "fourth"])
    for module in ("manifest", "run_directory"):
        monkeypatch.setattr(f"sampler.storage.{module}.now", lambda: next(times))
    for stage, version, threads in (("solve", "0.1", "1"), ("sample", "0.2", "2")):
        monkeypatch.setattr("sampler.storage.manifest.__version__", version)
        monkeypatch.setattr("sampler.storage.manifest.git_commit", lambda v=version: f"commit {v}")
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        with begun(directory, recipe) as held:
            held.record_stage(stage, float(threads))
        computed[stage] = version, f"commit {version}", threads
        entries = read_manifest(directory).stages
        assert computed == {
            name: (entry.package_version, entry.git_commit, entry.flags["OMP_NUM_THREADS"])
            for name, entry in entries.items()
        }
    for extended in (False, True):
        with begun(directory, recipe, extended=extended) as held:
            assert held.manifest == read_manifest(directory)
        assert held.manifest.begun == "first"
        assert held.manifest.seconds == {"solve": 1.0, "sample": 2.0}


@pytest.mark.parametrize(
    ("problem", "stored", "restored"),
    [
        (RuntimeError("out of memory"), False, True),
        (DiskError("state-0.npz: No space left on device"), False, True),
        (RuntimeError("the report"), True, False),
        (RequeueError("SIGTERM"), False, False),
    ],
)
def test_draws_that_cannot_be_appended_leave_the_run_finished(
    problem, stored, restored, recipe, tmp_path
):
    """Unless they are stored, or wait to be gone on with."""
    directory = tmp_path / "run"
    claim(directory, recipe, ExitCode.OK)
    before = listing(directory)
    more = recipe.model_copy(update={"sampler": recipe.sampler.model_copy(update={"draws": 9})})

    def append() -> None:
        with begun(directory, more, extended=True) as held:
            assert read_manifest(directory).outcome is None
            if stored:
                held.record_stage("sample", 3.0)
            raise problem

    with pytest.raises(type(problem)):
        append()
    assert (listing(directory) == before) == restored


def test_what_a_killed_process_left_is_removed_wherever_it_wrote(tmp_path):
    (tmp_path / f"{UNFINISHED}checkpoint-ab12").mkdir()
    folders = ("", CHECKPOINT_FOLDER, ROWS_FOLDER, FIGURE_FOLDER)
    for folder in folders:
        (tmp_path / folder).mkdir(exist_ok=True)
        for name in (f"{UNFINISHED}state-0-ab12.npz", "state-0.npz"):
            (tmp_path / folder / name).touch()
    remove_unfinished(tmp_path)
    left = {path for path in tmp_path.rglob("*") if not path.is_dir() or UNFINISHED in path.name}
    assert left == {tmp_path / folder / "state-0.npz" for folder in folders}


@pytest.mark.parametrize("letter", ["漢", "/"])
def test_points_have_names_that_a_file_system_takes(letter, tmp_path):
    """Also the files beside them; labels of usual length are names themselves."""
    just = "k=" + "a" * (NAME_BYTES - 2)
    for label in ("network.widths=10", just):
        assert point_directory(tmp_path, label).name == label
    found = {point_directory(tmp_path, f"key={letter * 400}{end}") for end in "ab"}
    assert len(found) == 2
    for folder in found:
        folder.mkdir()
        folder.with_name(f"{folder.name}.output.txt").touch()
        assert len(folder.name.encode()) <= NAME_BYTES
        assert folder.parent == tmp_path


def test_what_was_made_is_removed_when_the_recipe_cannot_be_written(recipe, tmp_path, monkeypatch):
    def full(path, text):
        raise InputError(path.name, path.parent, "No space left on device")

    monkeypatch.setattr("sampler.storage.run_directory.write_whole", full)
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError):
        claim(tmp_path / "mine" / "deep" / "run", recipe)
    assert list((tmp_path / "mine").iterdir()) == []


# --- one process holds a directory, until it ends however it ends

HOLD = """
import pathlib, sys
from sampler.storage.directory import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


@pytest.mark.slow
def test_a_directory_is_held_until_its_process_is_killed(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], cwd=ROOT, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        assert is_held(tmp_path)
        with pytest.raises(InputError, match="is in use"), locked(tmp_path):
            pass
        process.kill()
        process.wait()
        assert not is_held(tmp_path)
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    assert not is_held(tmp_path)


def test_the_most_memory_is_that_of_pages_that_were_written():
    """Not that of addresses: an array of four gigabytes that nothing was written to has none."""
    before, addresses = most_memory(), np.empty(2**32, np.uint8)
    assert most_memory() - before < 2**28
    addresses[: 2**29] = 1
    assert most_memory() > 2**29
