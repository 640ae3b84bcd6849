"""A checkpoint is used for the run that wrote it, and for no other."""

import json

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.storage.checkpoint import (
    DamagedFile,
    read_sealed,
    read_slots,
    refuse_another_checkpoint,
    write_sealed,
)
from sampler.storage.manifest import differences
from sampler.storage.run_directory import CHECKPOINT_FOLDER, CHECKPOINT_SLOTS
from sampler.storage.status import newest_checkpoint
from sampler.tasks.splits import Split
from sampler.tasks.task import Task

STORED = {
    "settings": {"network.widths": 10, "sampler.seed": 0},
    "data": "0123",
    "package major version": "0",
    "schema_version": 2,
}


def test_a_checkpoint_is_used_for_the_same_run_and_no_other(tmp_path):
    refuse_another_checkpoint(tmp_path, STORED, dict(STORED), "run")
    for change in ({"settings": {**STORED["settings"], "sampler.seed": 1}}, {"data": "x"}):
        with pytest.raises(InputError):
            refuse_another_checkpoint(tmp_path, STORED, STORED | change, "run")


@pytest.mark.parametrize(("change", "same"), [(1e-15, True), (1e-9, False)])
def test_data_that_another_processor_rounds_differently_are_the_same(change, same, rng):
    inputs, labels = rng.standard_normal((200, 5, 4)), np.ones((200, 1))
    attention = (rng.random((200, 2, 5, 5)),)
    split = Split(inputs, labels, attention)
    moved = Split(inputs * (1 + change * rng.standard_normal(inputs.shape)), labels, attention)

    def stored(one: Split) -> dict:
        task = Task(one, one, (("a", "b"),), ("a", "b"))
        return json.loads(json.dumps(STORED | {"data": task.identity}))

    assert stored(moved)["data"]["sha256"] != stored(split)["data"]["sha256"]
    assert differences(stored(split), stored(moved)) == ([] if same else ["the data"])


@pytest.mark.parametrize("sequences", [(4, 3), (4, 5)])
def test_the_newest_checkpoint_comes_first(sequences, tmp_path):
    folder = tmp_path / CHECKPOINT_FOLDER
    folder.mkdir()
    assert newest_checkpoint(tmp_path) is None
    for name, sequence in zip(CHECKPOINT_SLOTS, sequences, strict=True):
        write_sealed(folder / name, {"sequence": sequence}, {})
    received = [sealed.header["sequence"] for _, sealed in read_slots(folder).intact]
    assert received == sorted(sequences, reverse=True)
    assert newest_checkpoint(tmp_path)["sequence"] == max(sequences)


def test_what_is_sealed_comes_back_and_every_changed_byte_is_noticed(tmp_path, rng):
    path, values = tmp_path / "sealed.bin", rng.standard_normal((3, 2))
    checksum = write_sealed(path, {"phase": "draws"}, {"statistic/lp": values})
    sealed = read_sealed(path)
    assert (sealed.header, sealed.checksum) == ({"phase": "draws"}, checksum)
    np.testing.assert_array_equal(sealed.arrays["statistic/lp"], values)
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DamagedFile, match=r"sealed\.bin"):
            read_sealed(path)
