"""Arrays brought by the user: what is read, and what is refused by name."""

import h5py
import numpy as np
import pytest

from sampler.data import examples as limits
from sampler.data.arrays import read_arrays, task_of_arrays
from sampler.data.examples import attended_by_numpy
from sampler.data.heads_of_task import with_chosen_heads
from sampler.data.make import build_task
from sampler.errors import InputError
from sampler.settings.recipe import load_recipe
from sampler.settings.task_sections import UNIFORM, Attention
from tests.tasks import KEPT_HEADS, remove, replace, spoil, write_arrays

SIZES = {"train": 5, "test": 4}


def arrays(dtype=np.float64, outputs=None, seed=0, sizes=SIZES):
    """Two layers with 2 and 3 heads, 5 training and 4 test examples, 6 tokens, 7 channels."""
    generator = np.random.default_rng(seed)
    stored = {}
    for name, examples in sizes.items():
        shape = (examples,) if outputs is None else (examples, outputs)
        stored[f"inputs_{name}"] = generator.standard_normal((examples, 6, 7))
        stored[f"labels_{name}"] = generator.standard_normal(shape)
        for layer, heads in ((1, 2), (2, 3)):
            matrices = generator.standard_normal((examples, heads, 6, 6))
            stored[f"attention_{name}_{layer}"] = matrices
    return {key: array.astype(dtype) for key, array in stored.items()}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "arrays.npz"


def with_validation(**settings):
    return arrays(sizes=SIZES | {"validation": 3}, **settings)


@pytest.mark.parametrize("outputs", [None, 3])
def test_arrays_come_back_with_all_heads_or_those_that_are_kept(tmp_path, outputs):
    stored = with_validation(outputs=outputs)
    recipe = write_arrays(tmp_path, stored, KEPT_HEADS)
    whole, kept = read_arrays(tmp_path / "mine.npz"), build_task(load_recipe(recipe))
    for task, heads in ((whole, ([0, 1], [0, 1, 2])), (kept, ([1], [2, 0]))):
        for name, split in task.named_splits.items():
            assert np.array_equal(split.inputs, stored[f"inputs_{name}"])
            expected = stored[f"labels_{name}"].reshape(split.examples, -1)
            assert np.array_equal(split.labels, expected)
            for layer, of_layer in enumerate(heads, start=1):
                expected = stored[f"attention_{name}_{layer}"][:, of_layer]
                assert np.array_equal(split.attention[layer - 1], expected)
    assert whole.heads == (2, 3)
    assert whole.path_names == ("0·0", "0·1", "0·2", "1·0", "1·1", "1·2")
    assert kept.path_names == ("1·2", "1·0")


def test_labels_of_the_test_set_and_a_validation_split_may_be_absent():
    stored = arrays()
    del stored["labels_test"]
    task = task_of_arrays(stored)
    assert task.test.labels is None
    assert task.validation is None


@pytest.mark.parametrize("content", [b"PK\x03\x04 truncated", None])
def test_a_file_that_is_no_npz(path, content):
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"task\.path"):
        read_arrays(path)


def with_lengths():
    """Test sequences of 6, 2, 4 and 1 tokens, which padding does not reach, and all of training."""
    stored = arrays()
    lengths = np.array([6, 2, 4, 1])
    real = np.arange(6) < lengths[:, None]
    for layer in (1, 2):
        matrices = stored[f"attention_test_{layer}"]
        matrices *= real[:, None, :, None] | ~real[:, None, None, :]
    return stored | {"lengths_test": lengths}


NAMES = {"head_names_1": ["a", "b"], "head_names_2": ["x", "y", "residual"]}


def write(path, stored):
    if path.suffix == ".npz":
        np.savez(path, **stored)
    else:
        with h5py.File(path, "w") as file:
            for key, array in stored.items():
                file[key] = array
    return path


@pytest.mark.parametrize("how", [{}, {"mode": "r+"}], ids=str)
def test_a_file_that_is_open_in_this_session_is_read(how, tmp_path):
    path = write(tmp_path / "arrays.h5", with_lengths())
    expected = read_arrays(path).identity
    with h5py.File(path, **how):
        assert read_arrays(path).identity == expected


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_lengths_and_names_of_heads_are_read(suffix, tmp_path):
    path = write(tmp_path / f"arrays.{suffix}", with_lengths() | NAMES)
    task = read_arrays(path)
    assert task.train.lengths is None
    assert task.test.lengths.tolist() == [6, 2, 4, 1]
    assert task.test.part(slice(1, 3)).lengths.tolist() == [2, 4]
    assert task.test.keeping(((0,), (1,))).lengths.tolist() == [6, 2, 4, 1]
    assert task.head_names == (("a", "b"), ("x", "y", "residual"))
    assert task.path_names[2] == "a·residual"


REFUSED = [
    (remove("labels_train"), "labels_train"),
    (lambda stored: stored.update(atention_train_3=np.ones(2)), "atention_train_3"),
    (lambda stored: stored.update(attention_train_4=np.ones(2)), "attention_train_3"),
    (replace("inputs_train", lambda a: a.astype(complex)), "inputs_train"),
    (replace("attention_train_2", lambda a: a.astype(str)), "attention_train_2"),
    (replace("labels_train", lambda a: a[:3]), "labels_train"),
    (replace("inputs_test", lambda a: a[..., :5]), "inputs_test"),
    (replace("inputs_test", lambda a: a[:0]), "inputs_test"),
    (replace("attention_test_2", lambda a: a[:, :2]), "attention_test_2"),
    (replace("attention_test_1", spoil(-np.inf, (0, 1, 0, 0))), "attention_test_1"),
    # A split of validation examples is whole.
    (remove("labels_validation"), "labels_validation"),
    # Lengths of sequences, beyond which nothing is attended to, and names of all heads.
    (replace("lengths_test", lambda a: a + 0.5), "lengths_test"),
    (lambda stored: stored.update(lengths_train=np.full(5, 3)), "attention_train_1"),
    (lambda stored: stored.update(head_names_1=np.array(["a", "b"])), "head_names_2"),
    (lambda stored: stored.update(NAMES, head_names_1=np.array(["a", "a"])), "head_names_1"),
]


@pytest.mark.parametrize(("change", "field"), REFUSED)
def test_an_array_that_cannot_be_used_is_named(path, change, field):
    stored = with_validation() | with_lengths()
    change(stored)
    np.savez(path, **stored)
    with pytest.raises(InputError) as caught:
        read_arrays(path)
    assert caught.value.field.partition("[")[0] == field


@pytest.mark.parametrize("empty", ["group", "no value"])
def test_what_is_no_array_in_an_hdf5_file_is_named(tmp_path, empty):
    path = write(tmp_path / "arrays.h5", arrays())
    with h5py.File(path, "r+") as file:
        del file["inputs_test"]
        if empty == "group":
            file.create_group("inputs_test")
        else:
            file["inputs_test"] = h5py.Empty("f8")
    with pytest.raises(InputError) as caught:
        read_arrays(path)
    assert caught.value.field == "inputs_test"


def mapped(array, folder):
    """The same numbers in a file that may not be written to."""
    path = folder / f"{len(list(folder.iterdir()))}.npy"
    np.save(path, np.asfortranarray(array))
    return np.load(path, mmap_mode="r")


TYPES = ["f2", "f4", "f8", "g", "i1", "i8", "u2", "?"]
LAYOUTS = {
    "plain": lambda array, _: array,
    "byte order": lambda array, _: array.astype(array.dtype.newbyteorder()),
    "Fortran": lambda array, _: np.asfortranarray(array),
    "strides": lambda array, _: np.repeat(array, 2, axis=0)[::2],
    "backwards": lambda array, _: array[::-1].copy()[::-1],
    "map": mapped,
}


# Where arrays are, the bytes that are held, their layout, and their type.
PLACED = [("memory", 2**28, layout, "f4") for layout in LAYOUTS]
PLACED += [("memory", 2**28, "plain", dtype) for dtype in TYPES]
PLACED += [(".npz", 2**28, "plain", "f2"), (".npz", 2**28, "byte order", "i8")]
PLACED += [(".h5", held, "byte order", dtype) for held in (2**28, 0) for dtype in ("f4", "u2", "?")]


def blocks_of(task):
    return [block for split in task.splits for block in split.blocks()]


@pytest.mark.parametrize(("place", "held", "layout", "dtype"), PLACED)
def test_real_numbers_of_every_type_and_layout_are_the_same(
    place, held, layout, dtype, tmp_path, monkeypatch
):
    """Zeros and ones, which all types have."""
    plain = {key: (array > 0.0) * 1.0 for key, array in with_validation().items()}
    change = LAYOUTS[layout]
    stored = {key: change(array.astype(dtype), tmp_path) for key, array in plain.items()}
    stored["lengths_train"] = change(np.full(SIZES["train"], 6, "u1"), tmp_path)
    expected = task_of_arrays(plain | {"lengths_train": np.full(SIZES["train"], 6)})
    monkeypatch.setattr(limits, "HELD_BYTES", held)
    if place == "memory":
        received = task_of_arrays(stored)
    else:
        received = read_arrays(write(tmp_path / f"stored{place}", stored))
    for block, same in zip(blocks_of(received), blocks_of(expected), strict=True):
        for array, other in zip(block.arrays, same.arrays, strict=True):
            assert array.dtype == other.dtype
            assert array.dtype.isnative
            assert array.flags.c_contiguous
            assert np.array_equal(array, other)


@pytest.mark.parametrize("with_matrices", [True, False])
def test_uniform_heads_are_uniform_over_the_tokens_of_a_sequence(with_matrices):
    """As of every sequence by itself, without padding."""
    stored = with_lengths()
    if not with_matrices:
        stored = {key: array for key, array in stored.items() if "attention" not in key}
    heads = ((UNIFORM,), (UNIFORM, "1" if with_matrices else UNIFORM))
    task = with_chosen_heads(task_of_arrays(stored, True), Attention(heads=heads))
    for readout in ("last", "mean"):
        attended = attended_by_numpy(task.test, readout, (False, False))
        for example, length in enumerate(stored["lengths_test"]):
            real = slice(0, length)
            tokens = stored["inputs_test"][example, real]
            equal = np.full((length, length), 1.0 / length)
            other = equal
            if with_matrices:
                other = stored["attention_test_2"][example, 1, real, real]
            read = np.eye(length)[-1] if readout == "last" else np.full(length, 1.0 / length)
            expected = [tokens.T @ equal @ upper @ read for upper in (equal, other)]
            np.testing.assert_allclose(attended[example], expected, rtol=0, atol=1e-13)


def test_lengths_that_cannot_be_are_named_where_heads_are_uniform():
    stored = {key: array for key, array in arrays().items() if "attention" not in key}
    with pytest.raises(InputError, match="lengths_test"):
        task_of_arrays(stored | {"lengths_test": np.array([6, 2, 7, 1])}, heads_are_chosen=True)
