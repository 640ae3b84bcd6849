"""The directory of a run: claimed once for one recipe, and held by one process."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sampler.data.make import build_task
from sampler.errors import DiskError, ExitCode, InputError, RequeueError
from sampler.settings.identity import settings_that_fix_draws
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import (
    CHECKPOINT_FOLDER,
    FIGURE_FOLDER,
    NAME_BYTES,
    ROWS_FOLDER,
    find_directory,
    is_held,
    locked,
    point_directory,
    remove_unfinished,
)
from sampler.storage.files import UNFINISHED
from sampler.storage.fingerprint import determining
from sampler.storage.manifest import read_manifest
from sampler.storage.run_directory import RunDirectory, opened_directory
from tests import ROOT


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "given.toml"
    path.write_text('name = "a"\ntask.kind = "markov_chain"\nnetwork.widths = 3\n')
    return load_recipe(path)


@contextmanager
def begun(directory, recipe, command="run", extended=False) -> Iterator[RunDirectory]:
    """A directory in which a command is begun."""
    plan = determining(settings_that_fix_draws(recipe), build_task(recipe).identity)
    with opened_directory(directory, recipe, plan, extended) as held:
        held.begin(command)
        yield held


def claim(directory, recipe, *words, **named) -> None:
    with begun(directory, recipe, *words, **named):
        pass


def finish(directory, recipe, command="run", code=ExitCode.OK) -> None:
    with begun(directory, recipe, command) as held:
        held.end(code)


@pytest.mark.slow
def test_a_claimed_directory_holds_the_resolved_recipe_and_may_be_claimed_again(recipe, tmp_path):
    directory = tmp_path / "deep" / "run"
    for _ in range(2):
        claim(directory, recipe)
        assert load_recipe(directory / "recipe.toml") == recipe
        assert read_manifest(directory).outcome is None
    assert find_directory(directory) == directory
    for command, code in (("solve", ExitCode.OK), ("sample", ExitCode.DIAGNOSTICS_FAILED)):
        finish(directory, recipe, command, code)
        outcome = read_manifest(directory).outcome
        assert (outcome.command, outcome.code) == (command, int(code))


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
    claim(directory, other)


CLAIMS = """
import sys, time
from pathlib import Path
from sampler.errors import InputError
from sampler.settings.identity import settings_that_fix_draws
from sampler.settings.recipe import load_recipe
from sampler.storage.fingerprint import determining
from sampler.storage.run_directory import opened_directory

recipe = load_recipe(sys.argv[1], [f"name={sys.argv[2]}", "network.widths=" + sys.argv[3]])
plan = determining(settings_that_fix_draws(recipe), None)
print("ready", flush=True)
begin = float(input())
for number in range(8):
    time.sleep(max(0.0, begin + 0.1 * number - time.time()))
    try:
        with opened_directory(Path(f"run-{number}"), recipe, plan, seconds=20.0) as held:
            held.begin("run")
        print(number, flush=True)
    except InputError as problem:
        print(problem, file=sys.stderr)
"""


@pytest.mark.parametrize("names", [("one", "two"), ("one", "one", "one")])
def test_processes_that_claim_new_directories_at_once(names, tmp_path):
    """Of two recipes each directory has one, whole; of one recipe all processes have all."""
    file = tmp_path / "given.toml"
    file.write_text('name = "a"\ntask.kind = "markov_chain"\nnetwork.widths = 3\n')
    words = [sys.executable, "-c", CLAIMS, str(file)]
    width = {"one": "4", "two": "5"}
    children = [
        subprocess.Popen([*words, name, width[name]], cwd=tmp_path, text=True,
                         env={**os.environ, "PYTHONPATH": str(ROOT)},
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for name in names
    ]  # fmt: skip
    for child in children:
        assert child.stdout.readline() == "ready\n"
    begin = time.time() + 0.2
    outputs = [child.communicate(f"{begin}\n", timeout=60)[0] for child in children]
    claimed = [set(map(int, output.split())) for output in outputs]
    for number in range(8):
        winners = {name for name, numbers in zip(names, claimed, strict=True) if number in numbers}
        manifest = read_manifest(tmp_path / f"run-{number}")
        assert {manifest.name} == winners
        assert load_recipe(tmp_path / f"run-{number}" / "recipe.toml").name == manifest.name
    if len(set(names)) == 1:
        assert claimed == [set(range(8))] * len(names)


def test_what_goes_on_in_a_directory(tmp_path):
    """Limits that are raised, a sweep that has grown; no other recipe, and no point is lost."""
    file, directory = tmp_path / "given.toml", tmp_path / "run"
    file.write_text('name = "a"\ntask.kind = "markov_chain"\nnetwork.widths = 3\n')

    def made(*settings: str):
        return load_recipe(file, [each for each in settings if each])

    claim(directory, made("sampler.max_minutes=1.0", "sampler.max_draws=10"))
    claim(directory, made("sampler.max_minutes=5.0", "sampler.max_draws=20"))
    assert load_recipe(directory / "recipe.toml").sampler.max_draws == 20
    for other in ("sampler.draws=20", "network.widths=4", "sweep.network.widths=[3]"):
        with pytest.raises(InputError):
            claim(directory, made(other))
    assert load_recipe(directory / "recipe.toml").sampler.max_draws == 20

    directory = tmp_path / "sweep"

    def grid(widths: list[int], *more: str):
        return made(f"sweep.network.widths={widths}", *more)

    def claim_sweep(recipe) -> None:
        plan = determining({}, None)
        with opened_directory(directory, recipe, plan) as held:
            held.begin("run")

    claim_sweep(grid([5, 6]))
    for recipe in (grid([5]), grid([4, 5, 7])):  # no point is there yet
        claim_sweep(recipe)
    point = point_directory(directory, "network.widths=5")
    finish(point, made("network.widths=5"))
    claim_sweep(grid([9, 5]))
    assert load_recipe(directory / "recipe.toml") == grid([9, 5])
    others = [grid([9]), grid([9, 5], "sampler.draws=20"), grid([9, 5], "sweep.sampler.seed=[0]")]
    for recipe in (*others, made()):
        with pytest.raises(InputError) as refused:
            claim_sweep(recipe)
        assert refused.value.field == "--out"
    assert load_recipe(directory / "recipe.toml") == grid([9, 5])


def test_a_run_keeps_the_time_of_its_beginning_and_who_computed_it(recipe, tmp_path, monkeypatch):
    directory, times = tmp_path / "run", iter(["first", "solved", "sampled", "second", "third"])
    for module in ("manifest", "run_directory"):
        monkeypatch.setattr(f"sampler.storage.{module}.now", lambda: next(times))
    with begun(directory, recipe) as held:
        for stage, seconds in (("solve", 1.0), ("sample", 2.0)):
            held.record_stage(stage, seconds)
        held.end(ExitCode.OK)
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
    with begun(directory, recipe) as held:
        held.record_stage("sample", 2.0)
        held.end(ExitCode.OK)
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
    after = listing(directory)
    assert (after == before) == restored
    another = recipe.model_copy(update={"name": "another"})
    with pytest.raises(InputError):
        claim(directory, another, extended=True)
    assert after == listing(directory)


def listing(directory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_stage_says_who_computed_it_and_no_other_stage_changes_that(
    recipe, tmp_path, monkeypatch
):
    """Versions, commit and flags are those of the process that computed it."""
    directory, computed = tmp_path / "run", {}
    for stage, version, threads in (("solve", "0.1", "1"), ("sample", "0.2", "2")):
        monkeypatch.setattr("sampler.storage.manifest.__version__", version)
        monkeypatch.setattr("sampler.storage.manifest.git_commit", lambda v=version: f"commit {v}")
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        with begun(directory, recipe) as held:
            held.record_stage(stage, 1.0)
        computed[stage] = version, f"commit {version}", threads
        entries = read_manifest(directory).stages
        assert computed == {
            name: (entry.package_version, entry.git_commit, entry.flags["OMP_NUM_THREADS"])
            for name, entry in entries.items()
        }


def test_what_a_killed_process_left_is_removed_wherever_it_wrote(tmp_path):
    folders = [tmp_path / n for n in ("", CHECKPOINT_FOLDER, ROWS_FOLDER, FIGURE_FOLDER)]
    (tmp_path / f"{UNFINISHED}checkpoint-ab12").mkdir()
    for folder in folders:
        folder.mkdir(exist_ok=True)
        for name in (f"{UNFINISHED}state-0-ab12.npz", "state-0.npz"):
            (folder / name).touch()
    remove_unfinished(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("**/*") if path.is_file()}
    where = ("", "checkpoint/", "rows/", "figures/")
    assert left == {f"{folder}state-0.npz" for folder in where}
    assert not list(tmp_path.rglob(f"{UNFINISHED}*"))


@pytest.mark.parametrize("letter", ["漢", "/"])
def test_points_have_names_that_a_file_system_takes(letter, tmp_path):
    """Also the files beside them; labels of usual length are names themselves."""
    long = [f"key={letter * 400}{end}" for end in "ab"]
    found = [point_directory(tmp_path, label) for label in [*long, "network.widths=10"]]
    assert found[2] == tmp_path / "network.widths=10"
    assert len(set(found)) == 3
    for folder in found:
        folder.mkdir()
        folder.with_name(f"{folder.name}.output.txt").touch()
        assert len(folder.name.encode()) <= NAME_BYTES
        assert folder.parent == tmp_path
    just = "k=" + "a" * (NAME_BYTES - 2)
    assert point_directory(tmp_path, just).name == just


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
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
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
    (tmp_path / "file").touch()  # which cannot be written as a directory
    with pytest.raises(InputError), locked(tmp_path / "file"):
        pass
