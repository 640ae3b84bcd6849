"""Compiled programs kept between runs: where, and that no number depends on them."""

import os

import pytest

from sampler import compiled


@pytest.fixture
def setting(monkeypatch):
    """The user's setting, in an environment where JAX was told nothing."""
    for name in (compiled.OF_JAX, *compiled.CONFIGURATION):
        monkeypatch.delenv(name, raising=False)
    # What the function sets for the processes to come is undone with the rest.
    monkeypatch.setattr(os, "environ", dict(os.environ))

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
