"""Numbers that mean nothing here are refused, in files, in memory and block by block."""

import h5py
import numpy as np
import pytest

import sampler
from sampler.cli import main
from sampler.errors import ExitCode, InputError
from sampler.storage.own_theories import checked
from sampler.tasks import splits
from sampler.tasks.arrays import read_arrays
from tests.sampler.tasks.test_arrays import arrays
from tests.tasks import replace, spoil, write_arrays

SIGNS, BITS = np.array([-1.0, 1.0, 1.0, -1.0, 1.0]), np.array([0.0, 1.0, 1.0, 0.0, 0.0])


def attended():
    """Four paths of two layers, 5 training and 4 test examples, 7 channels."""
    generator = np.random.default_rng(1)
    found = {"heads": np.array([2, 2])}
    for name, examples in (("train", 5), ("test", 4)):
        found[f"attended_{name}"] = generator.standard_normal((examples, 4, 7))
        found[f"labels_{name}"] = generator.standard_normal(examples)
    return found


def store(folder, stored):
    with h5py.File(folder / "mine.h5", "w") as file:
        for key, array in stored.items():
            file[key] = array
    return folder / "mine.h5"


def read_whole(path):
    """Make the task and every block of it."""
    return [list(split.blocks()) for split in read_arrays(path).splits]


@pytest.fixture(params=[2**28, 0], ids=["held", "streamed"])
def read(request, tmp_path, monkeypatch):
    """Read arrays from a file whose splits fit into memory, or do not."""
    monkeypatch.setattr(splits, "HELD_BYTES", request.param)
    monkeypatch.setattr(splits, "BLOCK_BYTES", 8 * 2 * 224)  # two examples, or fewer
    return lambda stored: read_whole(store(tmp_path, stored))


@pytest.mark.parametrize("layout", [arrays, attended])
def test_every_array_that_is_zero_throughout_is_refused(read, layout):
    keys = [key for key in layout() if key.startswith(("inputs", "attention", "attended"))]
    for key in keys:
        stored = layout()
        stored[key][:] = 0.0
        with pytest.raises(InputError, match=rf"^{key} = 0.0: is zero throughout"):
            read(stored)
        stored[key][-1].flat[-1] = 1e-9  # one number of the last example is enough
        read(stored)


@pytest.mark.parametrize("layout", [arrays, attended])
def test_every_number_whose_square_may_be_too_large_is_refused(read, layout):
    for key in (key for key in layout() if key != "heads"):
        stored = layout()
        last = tuple(size - 1 for size in stored[key].shape)
        stored[key][(0, *last[1:])] = 1e150
        read(stored)
        # With one of the other sign their sum is moderate.
        stored[key][(0, *last[1:])], stored[key][last] = 1e151, -1e151
        with pytest.raises(InputError, match=rf"^{key}\[0.*\] = 1e\+151: must not exceed 1e\+150"):
            read(stored)
        stored[key][(0, *last[1:])] = 0.0
        place = ", ".join(map(str, last))
        with pytest.raises(InputError, match=rf"^{key}\[{place}.*\] = -1e\+151"):
            read(stored)


def test_a_number_that_is_not_finite_is_named_before_one_that_is_too_large(read):
    stored = arrays()
    stored["inputs_train"][0, 0, :2] = 1e200, np.nan
    with pytest.raises(InputError, match=r"^inputs_train\[0, 0, 1\] = nan"):
        read(stored)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (SIGNS, BITS, r"^labels_test = 0 and 1: must mean what labels_train does, -1 and 1"),
        (BITS, SIGNS, r"^labels_test = -1 and 1: must mean what labels_train does, 0 and 1"),
        (SIGNS, 0 * BITS, r"^labels_test = 0 and 1"),
        (SIGNS, SIGNS, None),
        (BITS, BITS, None),
        (SIGNS, np.ones(5), None),
        (BITS, np.ones(5), None),
        (SIGNS, 0.5 * BITS, None),
        (0.5 * SIGNS, BITS, None),
    ],
)
@pytest.mark.parametrize("outputs", [1, 2])
def test_classes_with_other_numbers_in_another_split_are_refused(
    read, train, test, message, outputs
):
    train, test = (np.stack(outputs * [labels], axis=1) for labels in (train, test))
    if message is None:
        read(arrays() | {"labels_train": train, "labels_test": test[:4]})
        return
    with pytest.raises(InputError, match=message):
        read(arrays() | {"labels_train": train, "labels_test": test[:4]})


def test_so_are_those_of_a_validation_split(read):
    stored = arrays(sizes={"train": 5, "test": 4, "validation": 3})
    stored |= {"labels_train": SIGNS, "labels_test": SIGNS[:4], "labels_validation": BITS[:3]}
    with pytest.raises(InputError, match=r"^labels_validation = 0 and 1"):
        read(stored)


def masked(array):
    return np.ma.masked_greater(array, 0.0)


def as_keywords(stored):
    """Arrays of a file as `arrays_task` takes them."""
    found = {key: array for key, array in stored.items() if not key.startswith("attention")}
    for name in ("train", "test"):
        found[f"attention_{name}"] = [stored[f"attention_{name}_{layer}"] for layer in (1, 2)]
    return found


@pytest.mark.parametrize("key", list(arrays()))
def test_masked_arrays_are_refused(key):
    stored = arrays()
    replace(key, masked)(stored)
    where = key.replace("_1", "\\[0\\]").replace("_2", "\\[1\\]")
    with pytest.raises(InputError, match=rf"^{where} = \(a masked array\): give a plain array"):
        sampler.arrays_task(**as_keywords(stored))
    replace(key, list)(stored)  # a list of masked arrays
    with pytest.raises(InputError, match=rf"^{key} = \(a masked array\): give a plain array"):
        sampler.make_task("arrays", **stored)


def test_estimators_refuse_masked_and_zero_arrays():
    stored, regressor = arrays(), sampler.AttentionRegressor(widths=3)
    tokens, attention = stored["inputs_train"], [stored["attention_train_1"]]
    y = stored["labels_train"]
    plain = tokens[:, 0]
    for X, labels, field in (
        (masked(plain), y, "X"),
        (plain, masked(y), "y"),
        ((masked(tokens), attention), y, "X"),
        ((tokens, [masked(attention[0])]), y, "X"),
    ):
        with pytest.raises(InputError, match=rf"^{field} = \(a masked array\)"):
            regressor.fit(X, labels)
    with pytest.raises(InputError, match=r"^attention_X_1 = 0.0: is zero throughout"):
        regressor.fit((tokens, [0 * attention[0]]), y)


def test_predictions_of_an_own_theory_are_no_masked_arrays():
    axes = {"predictor_mean": {"test_example": 3}}
    values = np.ma.masked_array(np.arange(3.0), [False, True, False])
    with pytest.raises(InputError, match=r"own theory .mine: predictor_mean. = \(a masked array"):
        checked("mine", {"predictor_mean": values}, axes)
    found = checked("mine", {"predictor_mean": values.data}, axes)["predictor_mean"]
    assert found.tolist() == [0.0, 1.0, 2.0]


def test_the_command_refuses_with_its_exit_code(tmp_path, capsys):
    stored = arrays()
    replace("inputs_train", spoil(1e200, (1, 2, 3)))(stored)
    recipe = write_arrays(tmp_path, stored, "network = {widths = 3}\n")
    assert main(["check", str(recipe)]) == ExitCode.BAD_INPUT
    assert "inputs_train[1, 2, 3] = 1e+200: must not exceed" in capsys.readouterr().err
