"""Arrays brought by the user: what is read, and what is refused by name."""

import h5py
import numpy as np
import pytest

from sampler.cli import main
from sampler.errors import ExitCode, InputError
from sampler.recipes.recipe import load_recipe
from sampler.tasks.arrays import read_arrays
from sampler.tasks.make import build_task
from tests import ROOT
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("outputs", [None, 3])
def test_arrays_come_back_as_float64(path, dtype, outputs):
    stored = arrays(dtype, outputs)
    np.savez(path, **stored)
    task = read_arrays(path)
    for name, split in (("train", task.train), ("test", task.test)):
        assert split.inputs.dtype == np.float64
        assert np.array_equal(split.inputs, stored[f"inputs_{name}"])
        expected = stored[f"labels_{name}"].reshape(split.examples, -1)
        assert np.array_equal(split.labels, expected)
        for layer, matrices in enumerate(split.attention, start=1):
            assert np.array_equal(matrices, stored[f"attention_{name}_{layer}"])
    assert task.heads == (2, 3)
    assert task.path_names == ("0·0", "0·1", "0·2", "1·0", "1·1", "1·2")


def test_test_labels_may_be_absent(path):
    stored = arrays()
    del stored["labels_test"]
    np.savez(path, **stored)
    assert read_arrays(path).test.labels is None


def test_kept_heads_select_attention_names_and_paths(tmp_path):
    stored = arrays()
    recipe = write_arrays(tmp_path, stored, KEPT_HEADS)
    task = build_task(load_recipe(recipe))
    assert task.path_names == ("1·2", "1·0")
    assert np.array_equal(task.train.attention[0], stored["attention_train_1"][:, [1]])
    assert np.array_equal(task.test.attention[1], stored["attention_test_2"][:, [2, 0]])


def with_validation(**settings):
    return arrays(sizes=SIZES | {"validation": 3}, **settings)


def test_a_validation_split_is_read_and_its_heads_kept(tmp_path):
    stored = with_validation(outputs=2)
    recipe = write_arrays(tmp_path, stored, KEPT_HEADS)
    validation = build_task(load_recipe(recipe)).validation
    assert np.array_equal(validation.inputs, stored["inputs_validation"])
    assert np.array_equal(validation.labels, stored["labels_validation"])
    assert np.array_equal(validation.attention[1], stored["attention_validation_2"][:, [2, 0]])


def test_no_validation_split_is_none(path):
    np.savez(path, **arrays())
    assert read_arrays(path).validation is None


def test_a_file_that_is_not_there_yet(capsys):
    recipe = ROOT / "runs" / "bring_your_own.toml"
    code = main(["check", str(recipe), "--set", "task.path=nowhere.npz"])
    assert code == ExitCode.BAD_INPUT
    error = capsys.readouterr().err
    assert "task.path = " in error
    assert "No such file or directory; name an .npz or .h5 file; what it holds is said by" in error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove("inputs_train"), r"^inputs_train = .*absent"),
        (remove("labels_train"), r"^labels_train = .*absent"),
        (remove("inputs_test"), r"^inputs_test = .*absent"),
        (remove("attention_test_2"), r"^attention_test_2 = .*absent"),
        (remove("attention_train_1"), r"^attention_train_1 = .*absent"),
        (lambda stored: stored.update(atention_train_3=np.ones(2)), r"^atention_train_3 = .*known"),
        (lambda stored: stored.update(attention_train_4=np.ones(2)), r"^attention_train_3 = "),
        (replace("inputs_train", lambda a: a.astype(int)), r"^inputs_train = 'int64': .*float32"),
        (replace("inputs_train", lambda a: a.astype(object)), r"^inputs_train = .*float32"),
        (replace("inputs_test", lambda a: a.astype(complex)), r"^inputs_test = 'complex128'"),
        (replace("labels_train", lambda a: a[:3]), r"^labels_train = \(3, 1\): .* 5 examples"),
        (replace("labels_test", lambda a: a[:, None, None]), r"^labels_test = \(4, 1, 1\)"),
        (
            replace("labels_test", lambda a: np.stack([a, a], 1)),
            r"^labels_test = \(4, 2\): .*1 out",
        ),
        (replace("inputs_train", lambda a: a[..., 0]), r"^inputs_train = \(5, 6\): "),
        (replace("inputs_test", lambda a: a[..., :5]), r"^inputs_test = \(4, 6, 5\): use 7"),
        (replace("inputs_test", lambda a: a[:0]), r"^inputs_test = \(0, 6, 7\)"),
        (replace("attention_train_1", lambda a: a[:, :, :3]), r"^attention_train_1 = \(5, 2, 3, 6"),
        (replace("attention_train_1", lambda a: a[0]), r"^attention_train_1 = \(2, 6, 6\)"),
        (replace("attention_train_2", lambda a: a[:, :0]), r"^attention_train_2 = \(5, 0, 6, 6\)"),
        (replace("attention_test_2", lambda a: a[:, :2]), r"^attention_test_2 = .* use 3 heads"),
        (replace("inputs_train", spoil(np.nan, (1, 2, 3))), r"^inputs_train\[1, 2, 3\] = nan"),
        (replace("labels_test", spoil(np.inf, 3)), r"^labels_test\[3, 0\] = inf"),
        (
            replace("attention_test_1", spoil(-np.inf, (0, 1, 2, 3))),
            r"^attention_test_1\[0, 1, 2, 3",
        ),
    ],
)
def test_an_array_that_cannot_be_used_is_named(path, change, message):
    stored = arrays()
    change(stored)
    np.savez(path, **stored)
    with pytest.raises(InputError, match=message) as caught:
        read_arrays(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove("labels_validation"), r"^labels_validation = \(absent\): .*required"),
        (remove("inputs_validation"), r"^inputs_validation = \(absent\): .*required"),
        (remove("attention_validation_2"), r"^attention_validation_2 = \(absent\)"),
        (
            replace("labels_validation", lambda a: a[:2]),
            r"^labels_validation = \(2, 1\): .* 3 examples of inputs_validation",
        ),
        (replace("inputs_validation", lambda a: a[..., :5]), r"^inputs_validation = .* use 7"),
        (
            replace("attention_validation_1", lambda a: a[:, :1]),
            r"^attention_validation_1 = .* use 2 heads",
        ),
        (
            replace("labels_validation", lambda a: np.stack([a, a], 1)),
            r"^labels_validation = \(3, 2\): use 1 outputs",
        ),
    ],
)
def test_a_validation_split_is_whole_or_refused(path, change, message):
    stored = with_validation()
    change(stored)
    np.savez(path, **stored)
    with pytest.raises(InputError, match=message):
        read_arrays(path)


def test_large_finite_entries_are_no_reason_to_refuse(path):
    stored = arrays()
    stored["inputs_train"][0] = 1e150
    np.savez(path, **stored)
    assert read_arrays(path).train.inputs.max() == 1e150


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04 truncated", None])
def test_a_file_that_is_no_npz(path, content):
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"^task\.path = "):
        read_arrays(path)


def test_a_truncated_npz(path):
    np.savez_compressed(path, **arrays())
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match=r"^task\.path = "):
        read_arrays(path)


def test_a_damaged_array_is_named(path):
    np.savez_compressed(path, **arrays())
    content = bytearray(path.read_bytes())
    start = content.index(b"inputs_train.npy") + 100
    content[start : start + 40] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"^inputs_train = \(unreadable\)"):
        read_arrays(path)


def test_a_single_array_is_no_npz(tmp_path):
    np.save(tmp_path / "one.npy", np.ones(3))
    with pytest.raises(InputError, match="not one array"):
        read_arrays(tmp_path / "one.npy")


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


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_lengths_and_names_of_heads_are_read(suffix, tmp_path):
    stored = with_lengths()
    names = {key: np.array(value) for key, value in NAMES.items()}
    path = tmp_path / f"arrays.{suffix}"
    if suffix == "npz":
        np.savez(path, **stored, **names)
    else:
        with h5py.File(path, "w") as file:
            for key, array in stored.items():
                file[key] = array
            for key, value in NAMES.items():
                file[key] = value
    task = read_arrays(path)
    assert task.train.lengths is None
    assert task.test.lengths.tolist() == [6, 2, 4, 1]
    assert task.test.part(slice(1, 3)).lengths.tolist() == [2, 4]
    assert task.test.keeping(((0,), (1,))).lengths.tolist() == [6, 2, 4, 1]
    assert task.head_names == (("a", "b"), ("x", "y", "residual"))
    assert task.path_names[2] == "a·residual"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths_test": np.array([6, 2, 4])}, r"lengths_test = \(int64 \(3,\)\): .* 4 examples"),
        ({"lengths_test": np.array([6, 2, 4, 1.5])}, "lengths_test = 'float64': store integers"),
        ({"lengths_test": np.array([6, 2, 0, 1])}, r"lengths_test\[2\] = 0: .* from 1 to 6"),
        ({"lengths_train": np.full(5, 3)}, r"attention_train_1\[0\] = .* gives to padding"),
        (
            {"attention_test_2": np.ones((4, 3, 6, 6))},
            r"attention_test_2\[1\] = 1.0: .* to padding",
        ),
        ({"head_names_1": np.array(["a", "b"])}, r"head_names_2 = \(absent\)"),
        (NAMES | {"head_names_1": np.array(["a", "a"])}, "head_names_1 = .*2 different names"),
        (NAMES | {"head_names_3": np.array(["a"])}, "head_names_3 = .*there are 2 layers"),
    ],
)
def test_lengths_and_names_that_do_not_fit_are_named(change, message, path):
    np.savez(path, **(with_lengths() | change))
    with pytest.raises(InputError, match=message):
        read_arrays(path)
