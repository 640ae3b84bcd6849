"""Compiled programs kept between runs: where, and that no number depends on them."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from sampler import compiled
from tests import ROOT
from tests.commands import TINY_SAMPLED, assert_same_bits


@pytest.fixture
def setting(monkeypatch):
    """The user's setting, in an environment where JAX was told nothing."""
    for name in (compiled.OF_JAX, *map(str.upper, compiled.CONFIGURATION)):
        monkeypatch.delenv(name, raising=False)
    # What the function sets for the processes to come is undone with the rest.
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(compiled, "sys", SimpleNamespace(modules={}))

    def set_to(value) -> None:
        os.environ[compiled.SETTING] = str(value)

    return set_to


def test_none_are_kept_where_the_name_is_empty_or_no_directory(setting, tmp_path):
    (tmp_path / "file").write_text("")
    for value in ("", tmp_path / "file"):
        setting(value)
        assert compiled.cache_programs() is None
        assert compiled.OF_JAX not in os.environ


def test_entries_whose_writer_was_stopped_are_removed(setting, tmp_path):
    setting(tmp_path)
    folder = compiled.cache_programs()
    assert tmp_path in folder.parents
    for name in ("one-cache", "one-atime", "two-cache"):
        (folder / name).write_bytes(b"0" * 1000)
    del os.environ[compiled.OF_JAX]
    assert compiled.cache_programs() == folder
    assert {path.name for path in folder.glob("*-*")} == {"one-cache", "one-atime"}


@pytest.mark.long
def test_draws_do_not_depend_on_whether_programs_were_found(tmp_path):
    """Compiled without a cache, for the cache, and read from it by a process that compiles none.

    But for one at most: now and then the chunk of the chains has another key, of equal bits.
    """
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(TINY_SAMPLED)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    for name, where in (("without", ""), ("first", "kept"), ("second", "kept")):
        words = ["run", recipe, "--no-figures", "--out", tmp_path / name]
        where = where and str(tmp_path / where)
        done = subprocess.run(
            list(map(str, [sys.executable, "-m", "sampler", *words])),
            cwd=ROOT, env=environment | {compiled.SETTING: where}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode in (0, 3), done.stderr[-2000:]
        assert "cache" not in done.stderr
        entries = sorted((tmp_path / "kept").rglob("*-cache"))
        if name == "first":
            written = {path: path.stat().st_mtime_ns for path in entries}
            assert written
    assert {path: path.stat().st_mtime_ns for path in written} == written
    others = [path.name for path in entries if path not in written]
    assert others == [] or (len(others) == 1 and others[0].startswith("jit_advance"))
    for name in ("first", "second"):
        assert_same_bits(tmp_path / name, tmp_path / "without")
