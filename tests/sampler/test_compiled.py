"""Compiled programs kept between runs: where, how many, and that no number depends on them."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from sampler import compiled
from tests import ROOT
from tests.commands import TINY_SAMPLED, assert_same_bits

ENTRIES = ("one-cache", "one-atime", "two-cache")


@pytest.fixture
def setting(monkeypatch, tmp_path):
    """The user's setting, in an environment where JAX was told nothing."""
    for name in (compiled.OF_JAX, *map(str.upper, compiled.CONFIGURATION)):
        monkeypatch.delenv(name, raising=False)
    # What the function sets for the processes to come is undone with the rest.
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(compiled, "sys", SimpleNamespace(modules={}))

    def set_to(value) -> None:
        os.environ[compiled.SETTING] = str(value)

    return set_to


def test_programs_are_kept_where_the_user_says(setting, tmp_path):
    setting(tmp_path / "here")
    folder = compiled.keep_programs()
    assert folder.parent == tmp_path / "here"
    assert os.environ[compiled.OF_JAX] == str(folder)
    assert os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] == str(compiled.MOST_BYTES)


@pytest.mark.parametrize("value", ["off", "OFF", "0", "no"])
def test_none_are_kept_where_the_user_does_not_want_it(setting, value):
    setting(value)
    assert compiled.keep_programs() is None
    assert compiled.OF_JAX not in os.environ
    assert "are not kept" in compiled.programs_text()


def test_none_are_kept_where_the_directory_cannot_be_made(setting, tmp_path):
    (tmp_path / "file").write_text("")
    setting(tmp_path / "file")
    assert compiled.keep_programs() is None
    assert compiled.OF_JAX not in os.environ


def test_none_are_kept_where_the_file_system_has_no_locks(setting, tmp_path, monkeypatch):
    """What `filelock` says then depends on its version."""

    def refuse(*_, **__):
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    setting(tmp_path)
    assert compiled.keep_programs() is None
    assert compiled.OF_JAX not in os.environ


def test_what_jax_was_told_stays(setting, tmp_path):
    setting(tmp_path / "ours")
    os.environ[compiled.OF_JAX] = str(tmp_path / "theirs")
    assert compiled.keep_programs() == tmp_path / "theirs"
    assert not (tmp_path / "ours").exists()
    assert "theirs" in compiled.programs_text()


def test_entries_whose_writer_was_stopped_are_removed(setting, tmp_path):
    setting(tmp_path)
    folder = compiled.keep_programs()
    for name in ENTRIES:
        (folder / name).write_bytes(b"0" * 1000)
    del os.environ[compiled.OF_JAX]
    assert compiled.keep_programs() == folder
    assert {path.name for path in folder.iterdir()} - {compiled.LOCK} == set(ENTRIES[:2])
    del os.environ[compiled.OF_JAX]
    assert compiled.programs_text().startswith("1 compiled programs, 0.0 MiB in")
    assert compiled.clear_programs() == "1 compiled programs removed"
    assert not folder.exists()
    assert tmp_path.exists()


def test_folders_that_nobody_used_for_long_are_removed_and_others_are_not(setting, tmp_path):
    setting(tmp_path)
    (tmp_path / "not ours").mkdir()
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / compiled.LOCK).write_text("")
    for name in ("old", "not ours"):
        os.utime(tmp_path / name, (0, 0))
    folder = compiled.keep_programs()
    assert {path.name for path in tmp_path.iterdir()} == {"not ours", "new", folder.name}


@pytest.mark.parametrize("changed", ["XLA_FLAGS", "cores", "jaxlib", "processor"])
def test_what_code_depends_on_has_a_folder_of_its_own(changed, monkeypatch):
    before = compiled.machine_key()
    if changed == "XLA_FLAGS":
        monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=maybe")
    elif changed == "cores":
        monkeypatch.setattr(compiled.os, "sched_getaffinity", lambda _: range(97))
    elif changed == "jaxlib":
        monkeypatch.setattr(compiled, "version", lambda name: f"{name} 99")
    else:
        monkeypatch.setattr(compiled, "processor", lambda: ["another"])
    assert compiled.machine_key() != before


@pytest.mark.long
def test_draws_do_not_depend_on_whether_programs_were_found(tmp_path):
    """Compiled without a cache, for the cache, and read from it by a process that compiles none.

    But for one at most: now and then the chunk of the chains has another key, of equal bits.
    """
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(TINY_SAMPLED)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    for name, where in (("without", "off"), ("first", "kept"), ("second", "kept")):
        words = ["run", recipe, "--no-figures", "--out", tmp_path / name]
        where = where if where == "off" else str(tmp_path / where)
        done = subprocess.run(
            list(map(str, [sys.executable, "-m", "sampler", *words])),
            cwd=ROOT, env=environment | {compiled.SETTING: where}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode in (0, 3), done.stderr[-2000:]
        assert "cache" not in done.stderr
        entries = sorted((tmp_path / "kept").glob("*/*-cache"))
        if name == "first":
            written = {path: path.stat().st_mtime_ns for path in entries}
            assert written
    assert {path: path.stat().st_mtime_ns for path in written} == written
    others = [path.name for path in entries if path not in written]
    assert others == [] or (len(others) == 1 and others[0].startswith("jit_advance"))
    for name in ("first", "second"):
        assert_same_bits(tmp_path / name, tmp_path / "without")
