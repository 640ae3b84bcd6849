"""A checkpoint is used for the run that wrote it, and for no other."""

import pytest

from sampler.errors import InputError
from sampler.storage.checkpoint import read_slots, refuse_another_checkpoint, write_sealed
from sampler.storage.run_directory import CHECKPOINT_SLOTS

STORED = {
    "settings": {"network.widths": 10, "sampler.seed": 0},
    "data": "0123",
    "package major version": "0",
    "schema_version": 2,
}


def test_a_checkpoint_of_the_same_run_is_used(tmp_path):
    refuse_another_checkpoint(tmp_path / "checkpoint", STORED, dict(STORED), "run")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"settings": {**STORED["settings"], "sampler.seed": 1}}, "sampler.seed"),
        ({"data": "x"}, "the data"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_by_what_differs(change, named, tmp_path):
    with pytest.raises(InputError, match=f"of a run with other {named}"):
        refuse_another_checkpoint(tmp_path / "checkpoint", STORED, STORED | change, "run")


@pytest.mark.parametrize("sequences", [(4, 3), (4, 5)])
def test_the_newest_checkpoint_comes_first(sequences, tmp_path):
    for name, sequence in zip(CHECKPOINT_SLOTS, sequences, strict=True):
        write_sealed(tmp_path / name, {"sequence": sequence}, {})
    received = [sealed.header["sequence"] for _, sealed in read_slots(tmp_path).intact]
    assert received == sorted(sequences, reverse=True)
