"""Checkpoints: the newest intact one is used, by the work that wrote it, and saves come in time."""

import logging
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from sampler.errors import DiskError, InputError
from sampler.storage import checkpoints as module
from sampler.storage.archives import DamagedFile, read_archive, read_header, write_archive
from sampler.storage.checkpoints import Checkpoints, newest_header
from sampler.storage.directory import CHECKPOINT_FOLDER, DRAWS_FILE, remove_unfinished
from sampler.storage.result_files import read_draws, write_result

FINGERPRINT = {
    "settings": {"network.widths": 10, "sampler.seed": 0},
    "data": "0123",
    "package major version": "0",
    "schema_version": 2,
}


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / CHECKPOINT_FOLDER


def save(checkpoints: Checkpoints, done: int) -> None:
    header = {"phase": "draws", "done": done, "total": 100}
    checkpoints.save(header, {"step": np.array(done)})


def saved(folder: Path, *steps: int) -> Checkpoints:
    """Checkpoints that were saved after these steps of a hundred."""
    checkpoints = Checkpoints(folder, FINGERPRINT)
    for done in steps:
        save(checkpoints, done)
    return checkpoints


def reached(folder: Path) -> int | None:
    """The step from which another process goes on."""
    stored = Checkpoints(folder, FINGERPRINT).newest()
    return None if stored is None else int(stored.arrays["step"])


def kept(folder: Path) -> dict[int, Path]:
    """Steps that are saved, and where."""
    found = {read_archive(path).header["done"]: path for path in folder.iterdir()}
    return dict(sorted(found.items()))


# --- which one is used


def test_of_all_that_was_saved_the_last_is_used_and_two_are_kept(folder, monkeypatch):
    assert reached(folder) is None
    assert newest_header(folder.parent) is None
    checkpoints = saved(folder)
    for done in range(1, 5):
        save(checkpoints, done)
        assert reached(folder) == newest_header(folder.parent)["done"] == done
        assert list(kept(folder)) == [*range(1, done + 1)][-2:]

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(DiskError):
            save(checkpoints, 5)
    assert list(kept(folder)) == [3, 4]
    save(checkpoints, 5)
    assert list(kept(folder)) == [4, 5]


@pytest.mark.parametrize("how", ["flipped", "truncated", "deleted"])
def test_where_the_newest_is_damaged_the_other_is_used_and_the_log_says_so(how, folder, caplog):
    saved(folder, 1, 2)
    older, path = kept(folder).values()
    content, before = bytearray(path.read_bytes()), older.read_bytes()
    place = len(content) // 3
    path.unlink()
    if how == "flipped":
        content[place] ^= 4
        path.write_bytes(content)
    elif how == "truncated":
        path.write_bytes(content[:place])
    logger, another = logging.getLogger("attention_posterior"), Checkpoints(folder, FINGERPRINT)
    logger.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.INFO, logger="attention_posterior"):
            assert another.newest().header["done"] == 1
    finally:
        logger.removeHandler(caplog.handler)
    assert (path.name in caplog.text) == (how != "deleted")
    assert "draws, 1 of 100" in caplog.text
    save(another, 5)  # in the place of the damaged one
    assert older.read_bytes() == before
    assert list(kept(folder)) == [1, 5]


@pytest.mark.parametrize("how", ["damaged", "deleted"])
def test_where_none_can_be_used_nothing_begins_again_in_silence(how, folder):
    saved(folder, 1, 2)
    for path in folder.iterdir():
        if how == "damaged":
            path.write_bytes(b"damaged")
        else:
            path.unlink()
    with pytest.raises(InputError) as refused:
        reached(folder)
    assert refused.value.field == "DIR"
    folder.rename(folder.with_name("removed"))  # what the remedy says
    assert reached(folder) is None


def test_a_checkpoint_is_used_by_the_same_work_and_no_other(folder):
    saved(folder, 1)
    for change in ({"settings": {**FINGERPRINT["settings"], "sampler.seed": 1}}, {"data": "x"}):
        with pytest.raises(InputError):
            Checkpoints(folder, FINGERPRINT | change).newest()
    assert reached(folder) == 1


# --- when, and how


def test_a_save_is_due_after_ten_seconds_or_twenty_times_the_last(folder, monkeypatch):
    clock, fill = SimpleNamespace(now=0.0, of_a_save=0.0), module.write_archive
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)

    def write(*content):
        clock.now += clock.of_a_save
        return fill(*content)

    monkeypatch.setattr(module, "write_archive", write)
    checkpoints = Checkpoints(folder, FINGERPRINT, every=10.0)
    for clock.of_a_save, wait in ((0.1, 10.0), (0.5, 10.0), (3.0, 60.0), (0.0, 10.0)):
        save(checkpoints, 1)
        for seconds, due in ((wait - 0.01, False), (0.02, True)):
            clock.now += seconds
            assert checkpoints.due == due
    assert not Checkpoints(None, every=0.0).due


class Killed(BaseException):
    """The process ends here."""


def test_a_kill_in_the_first_save_leaves_nothing_that_is_in_the_way(folder, monkeypatch):
    """Whatever was done of it: the folder comes with its first file."""

    def kill(*_, **__):
        raise Killed

    for name in ("synchronise", "shutil.rmtree", "os.replace"):
        monkeypatch.setattr(f"sampler.storage.files.{name}", kill)
    with pytest.raises(Killed):
        saved(folder, 1)
    monkeypatch.undo()
    assert reached(folder) is None
    assert list(folder.parent.iterdir())
    remove_unfinished(folder.parent)
    assert not list(folder.parent.iterdir())
    saved(folder, 1)
    assert reached(folder) == 1


def test_of_what_came_to_its_end_one_checkpoint_is_kept(folder):
    checkpoints = saved(folder, 1, 2, 3)
    for _ in range(2):
        checkpoints.settle(xr.DataTree())
        assert list(kept(folder)) == [3]
    save(checkpoints, 4)
    assert reached(folder) == 4
    checkpoints.remove()
    assert reached(folder) is None


def test_what_stored_draws_have_is_not_kept_twice_and_comes_back(folder, rng):
    predictor = rng.standard_normal((2, 50, 300, 1)).astype(np.float32)
    state, numbers = rng.standard_normal((2, 7)), rng.standard_normal((2, 50, 300))
    arrays = {"gathered/predictor/0": predictor, "state/z": state, "gathered/lp": numbers}
    checkpoints = Checkpoints(folder, FINGERPRINT)
    checkpoints.save({"phase": "draws", "done": 100, "total": 100}, arrays)
    whole = sum(path.stat().st_size for path in folder.iterdir())
    axes = ("chain", "draw", "test_example")
    groups = {
        "posterior": xr.Dataset({"z": (("chain", "coordinate"), state)}),
        "predictions": xr.Dataset({"predictor": (axes, predictor[..., 0])}),
        # Nearly the same is not the same.
        "other": xr.Dataset({"lp": (axes, numbers + 1e-12)}),
    }
    write_result(folder.parent, DRAWS_FILE, xr.DataTree.from_dict(groups))
    for _ in range(2):
        checkpoints.settle(read_draws(folder.parent))
        (path,) = folder.iterdir()
        assert whole - path.stat().st_size == pytest.approx(predictor.nbytes, rel=0.01)
        received = Checkpoints(folder, FINGERPRINT).newest().arrays
        assert received.keys() == arrays.keys()
        for name, expected in arrays.items():
            assert received[name].dtype == expected.dtype
            np.testing.assert_array_equal(received[name], expected)
    (folder.parent / DRAWS_FILE).unlink()
    with pytest.raises(InputError, match=DRAWS_FILE):
        Checkpoints(folder, FINGERPRINT).newest()


def test_of_an_archive_a_changed_bit_of_any_byte_is_harmless_or_noticed(tmp_path, rng):
    """What is read is what was written. NumPy itself reads the arrays."""
    path, values = tmp_path / "one.npz", rng.standard_normal((3, 2))
    header = {"phase": "draws", "done": 3}
    arrays = {"statistics/lp": values, "state/none": np.zeros((0, 2), np.float32)}
    write_archive(path, header, arrays)
    np.testing.assert_array_equal(np.load(path)["statistics/lp"], values)
    content, noticed = path.read_bytes(), 0
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            stored = read_archive(path)
        except DamagedFile:
            noticed += 1
            continue
        assert stored.header == header
        assert stored.arrays.keys() == arrays.keys()
        for key, expected in arrays.items():
            assert stored.arrays[key].dtype == expected.dtype
            np.testing.assert_array_equal(stored.arrays[key], expected)
    assert noticed > len(content) / 2
    for size in range(0, len(content), 5):
        path.write_bytes(content[:size])
        for read in (read_archive, read_header):
            with pytest.raises(DamagedFile, match=r"one\.npz"):
                read(path)
