"""Arrays brought by the user, of tokens or of attended inputs: read, refused, or doubted."""

import dataclasses

import h5py
import numpy as np
import pytest

import sampler
from sampler.analysis.user_theories import checked
from sampler.cli import main
from sampler.data import examples as limits
from sampler.data.arrays import read_arrays, task_of_arrays
from sampler.data.examples import attended_by_numpy
from sampler.data.heads_of_task import with_chosen_heads
from sampler.data.make import build_task
from sampler.errors import ExitCode, InputError
from sampler.problem import build_problem
from sampler.settings.recipe import Recipe, load_recipe
from sampler.settings.task_sections import UNIFORM, Attention
from tests.recipes import KEPT_HEADS, remove, replace, spoil, write_arrays

HEADS = (2, 3)
SIZES = {"train": 5, "test": 4}


def arrays(outputs=None, seed=0, sizes=SIZES):
    """Two layers with 2 and 3 heads, 5 training and 4 test examples, 6 tokens, 7 channels."""
    generator = np.random.default_rng(seed)
    stored = {}
    for name, examples in sizes.items():
        shape = (examples,) if outputs is None else (examples, outputs)
        stored[f"inputs_{name}"] = generator.standard_normal((examples, 6, 7))
        stored[f"labels_{name}"] = generator.standard_normal(shape)
        for layer, heads in enumerate(HEADS, start=1):
            matrices = generator.standard_normal((examples, heads, 6, 6))
            stored[f"attention_{name}_{layer}"] = matrices
    return stored


def with_validation(**settings):
    return arrays(sizes=SIZES | {"validation": 3}, **settings)


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
    assert whole.path_names == ("0·0", "0·1", "0·2", "1·0", "1·1", "1·2")
    assert kept.path_names == ("1·2", "1·0")


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_lengths_and_names_of_heads_are_read(suffix, tmp_path):
    """Of data without labels of the test set, and without a validation set."""
    stored = with_lengths() | NAMES
    del stored["labels_test"]
    task = read_arrays(write(tmp_path / f"arrays.{suffix}", stored))
    assert task.test.labels is None
    assert task.validation is None
    assert task.train.lengths is None
    assert task.test.lengths.tolist() == [6, 2, 4, 1]
    assert task.test.part(slice(1, 3)).lengths.tolist() == [2, 4]
    assert task.test.keeping(((0,), (1,))).lengths.tolist() == [6, 2, 4, 1]
    assert task.head_names == (("a", "b"), ("x", "y", "residual"))
    assert task.path_names[2] == "a·residual"


def test_layers_keep_their_numbers_where_they_are_as_many():
    task = task_of_arrays(arrays() | {"layer_numbers": np.array([4, 7])})
    one, two = (with_chosen_heads(task, Attention(heads=(("0",),) * layers)) for layers in (1, 2))
    assert task.numbers == two.numbers == (4, 7)
    assert one.numbers == (1,)
    assert dataclasses.replace(task, hypernetworks=(True, False)).numbers == (1, 2, 3)


# --- attended inputs in the place of tokens and attention


RECIPE = Recipe(name="a", task={"kind": "arrays", "path": "-"}, network={"widths": 2})


def attended() -> dict[str, np.ndarray]:
    """The same problem at the end of the paths, its last token read out."""
    tokens = with_validation()
    problem = build_problem(RECIPE, task_of_arrays(tokens))
    ends = {
        "train": problem.learning.attended,
        "test": problem.attended_test,
        "validation": problem.attended_validation,
    }
    found = {f"attended_{name}": np.asarray(end) for name, end in ends.items()}
    labels = {key: array for key, array in tokens.items() if key.startswith("labels_")}
    return found | labels | {"heads": np.array(HEADS)}


def test_both_layouts_make_the_same_problem():
    one, other = (
        build_problem(RECIPE, task_of_arrays(stored)) for stored in (with_validation(), attended())
    )
    for name in ("attended", "labels", "architecture"):
        np.testing.assert_array_equal(getattr(one.learning, name), getattr(other.learning, name))
    for name in ("attended_test", "labels_test", "attended_validation", "labels_validation"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.path_names == other.path_names


def test_other_heads_are_another_problem_and_a_sub_network_keeps_the_paths_of_its_own(tmp_path):
    stored = attended()
    other = stored | {"heads": np.array([3, 2])}
    assert task_of_arrays(other).checksum != task_of_arrays(stored).checksum
    task = build_task(load_recipe(write_arrays(tmp_path, stored, KEPT_HEADS)))
    assert task.path_names == ("1·2", "1·0")
    for name, split in task.named_splits.items():
        np.testing.assert_array_equal(split.inputs, stored[f"attended_{name}"][:, [5, 3]])


@pytest.mark.parametrize(
    ("network", "field"),
    [
        ('readout = "mean"', "readout"),
        ("mlp = {width = 2}", "mlp"),
        ("hypernetwork = true", "hypernetwork"),
        ("heads = [[0], [3]]", "heads"),
    ],
)
def test_a_network_that_needs_tokens_is_refused(network, field, tmp_path):
    settings = f'[sampler]\nspace = "weights"\n[network]\nwidths = 3\n{network}\n'
    recipe = write_arrays(tmp_path, attended(), settings)
    with pytest.raises(InputError) as caught:
        build_task(load_recipe(recipe))
    assert caught.value.field == f"network.{field}"


# --- what is refused


def tokens() -> dict[str, np.ndarray]:
    return with_validation() | with_lengths()


def without_attention(stored):
    for key in [key for key in stored if key.startswith("attention")]:
        del stored[key]


REFUSED = [
    (tokens, remove("labels_train"), "labels_train"),
    (tokens, lambda stored: stored.update(atention_train_3=np.ones(2)), "atention_train_3"),
    (tokens, lambda stored: stored.update(attention_train_4=np.ones(2)), "attention_train_3"),
    (tokens, replace("inputs_train", lambda a: a.astype(complex)), "inputs_train"),
    (tokens, replace("attention_train_2", lambda a: a.astype(str)), "attention_train_2"),
    (tokens, replace("labels_train", lambda a: a[:3]), "labels_train"),
    (tokens, lambda stored: stored.update(labels_test=np.ones((4, 2))), "labels_test"),
    (tokens, without_attention, "attention_train_1"),
    (tokens, lambda stored: stored.update(layer_numbers=np.array([3])), "layer_numbers"),
    (tokens, replace("inputs_test", lambda a: a[..., :5]), "inputs_test"),
    (tokens, replace("inputs_test", lambda a: a[:0]), "inputs_test"),
    (tokens, replace("attention_test_2", lambda a: a[:, :2]), "attention_test_2"),
    (tokens, replace("attention_test_1", spoil(-np.inf, (0, 1, 0, 0))), "attention_test_1"),
    # A split of validation examples is whole.
    (tokens, remove("labels_validation"), "labels_validation"),
    # Lengths of sequences, beyond which nothing is attended to, and names of all heads.
    (tokens, replace("lengths_test", lambda a: a + 0.5), "lengths_test"),
    (tokens, replace("lengths_test", lambda a: a - 1), "lengths_test"),
    (tokens, lambda stored: stored.update(lengths_train=np.full(5, 3)), "attention_train_1"),
    (tokens, lambda stored: stored.update(head_names_1=np.array(["a", "b"])), "head_names_2"),
    (tokens, lambda s: s.update(NAMES, head_names_1=np.array(["a", "a"])), "head_names_1"),
    (tokens, lambda s: s.update(NAMES, head_names_1=np.array(["a", "b·c"])), "head_names_1"),
    (attended, remove("attended_train"), "attended_train"),
    (attended, remove("heads"), "heads"),
    (attended, lambda s: s.update(inputs_train=np.ones((5, 6, 7))), "attended_train"),
    (attended, replace("heads", lambda a: a[:1]), "attended_train"),
    (attended, replace("heads", lambda a: a * 10**9), "attended_train"),
    (attended, replace("attended_train", spoil(np.nan, (1, 2, 3))), "attended_train"),
]


@pytest.mark.parametrize(("make", "change", "field"), REFUSED)
def test_an_array_that_cannot_be_used_is_named(make, change, field, tmp_path):
    stored = make()
    change(stored)
    with pytest.raises(InputError) as caught:
        read_arrays(write(tmp_path / "arrays.npz", stored))
    assert caught.value.field.partition("[")[0] == field


def test_files_that_are_none_and_what_is_no_array_in_one_are_named(tmp_path):
    path = tmp_path / "arrays.npz"
    for content in (None, b"PK\x03\x04 truncated"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InputError, match=r"^task\.path"):
            read_arrays(path)
    path = write(tmp_path / "arrays.h5", arrays())
    for empty in (None, h5py.Empty("f8")):
        with h5py.File(path, "r+") as file:
            del file["inputs_test"]
            file.create_group("inputs_test") if empty is None else file.update(inputs_test=empty)
        with pytest.raises(InputError) as caught:
            read_arrays(path)
        assert caught.value.field == "inputs_test"


def masked(array):
    return np.ma.masked_greater(array, 0.0)


def test_masked_arrays_in_which_what_is_masked_would_count_are_refused():
    """Of a task, alone or in a list, of an estimator, and of a theory of one's own."""
    stored, regressor = arrays(), sampler.AttentionRegressor(widths=3)
    plain, y = stored["inputs_train"][:, 0], stored["labels_train"]
    axes = {"predictor_mean": {"test_example": len(y)}}
    of_a_list = {"attention_train_2": list(masked(stored["attention_train_2"]))}
    for call, field in (
        (lambda: sampler.Arrays(**stored | {"labels_test": masked(y)}), "labels_test"),
        (lambda: sampler.Arrays(**stored | of_a_list), "attention[1]"),
        (lambda: regressor.fit(masked(plain), y), "X"),
        (lambda: regressor.fit(plain, masked(y)), "y"),
        (lambda: checked("mine", {"predictor_mean": masked(y)}, axes), 'own theory "mine'),
    ):
        with pytest.raises(InputError) as caught:
            call()
        assert caught.value.field.startswith(field)


# --- types, layouts and files


def mapped(array, folder):
    """The same numbers in a file that may not be written to."""
    path = folder / f"{len(list(folder.iterdir()))}.npy"
    np.save(path, np.asfortranarray(array))
    return np.load(path, mmap_mode="r")


LAYOUTS = {
    "plain": lambda array, _: array,
    "byte order": lambda array, _: array.astype(array.dtype.newbyteorder()),
    "Fortran": lambda array, _: np.asfortranarray(array),
    "backwards": lambda array, _: array[::-1].copy()[::-1],
    "map": mapped,
}
# Where arrays are, the bytes that are held, their layout, and their type.
PLACED = [
    ("memory", 2**28, "backwards", "g"),
    ("memory", 2**28, "map", "?"),
    (".npz", 2**28, "Fortran", "f2"),
    (".npz", 2**28, "byte order", "i8"),
    (".h5", 2**28, "plain", "?"),
    (".h5", 0, "byte order", "u2"),
]


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
    for split, same in zip(received.splits, expected.splits, strict=True):
        for block, one in zip(split.blocks(), same.blocks(), strict=True):
            for array, other in zip(block.arrays, one.arrays, strict=True):
                assert array.dtype == other.dtype
                assert array.dtype.isnative
                assert array.flags.c_contiguous
                assert np.array_equal(array, other)


@pytest.mark.parametrize("how", [{}, {"mode": "r+"}], ids=str)
def test_a_file_that_is_open_in_this_session_is_read(how, tmp_path):
    path = write(tmp_path / "arrays.h5", with_lengths())
    expected = read_arrays(path).identity
    with h5py.File(path, **how):
        assert read_arrays(path).identity == expected


# --- uniform heads


@pytest.mark.parametrize("with_matrices", [True, False])
def test_uniform_heads_are_uniform_over_the_tokens_of_a_sequence(with_matrices):
    """As of every sequence by itself, without padding."""
    stored = with_lengths()
    if not with_matrices:
        stored = {key: array for key, array in stored.items() if "attention" not in key}
    heads = ((UNIFORM,), (UNIFORM, "1" if with_matrices else UNIFORM))
    task = with_chosen_heads(task_of_arrays(stored, True), Attention(heads=heads))
    for readout in ("last", "mean"):
        found = attended_by_numpy(task.test, readout, (False, False))
        for example, length in enumerate(stored["lengths_test"]):
            real = slice(0, length)
            inputs = stored["inputs_test"][example, real]
            other = equal = np.full((length, length), 1.0 / length)
            if with_matrices:
                other = stored["attention_test_2"][example, 1, real, real]
            read = np.eye(length)[-1] if readout == "last" else np.full(length, 1.0 / length)
            expected = [inputs.T @ equal @ upper @ read for upper in (equal, other)]
            np.testing.assert_allclose(found[example], expected, rtol=0, atol=1e-13)


def test_lengths_that_cannot_be_are_named_where_heads_are_uniform():
    stored = {key: array for key, array in arrays().items() if "attention" not in key}
    with pytest.raises(InputError, match="lengths_test"):
        task_of_arrays(stored | {"lengths_test": np.array([6, 2, 7, 1])}, heads_are_chosen=True)


# --- what looks as if it meant something else is used with a warning


MANY = {"train": 12, "test": 6}
KEYS = {f"attention_{name}_{layer}": layer + 1 for name in MANY for layer in (1, 2)}
FOR_QUERIES, FOR_KEYS = 2, 3


def softmax(logits, axis):
    weights = np.exp(logits)
    return weights / weights.sum(axis=axis, keepdims=True)


def as_written(axis, dtype=np.float64, mask=True):
    """Arrays whose attention sums to 1 over this axis: 2 is that of keys."""
    stored = arrays(sizes=MANY)
    for key in KEYS:
        stored[key] = softmax(np.where(mask, stored[key], -np.inf), axis).astype(dtype)
    return stored


def concerns(stored):
    return task_of_arrays(stored).concerns


def test_attention_that_is_query_by_key_is_named():
    """Also where its sums are rounded as those of half precision, and of single heads."""
    assert concerns(as_written(FOR_QUERIES, np.float16)) == ()
    (said,) = concerns(as_written(FOR_KEYS, np.float16))
    for key, heads in KEYS.items():
        assert f"{key} ({heads} of {heads} heads)" in said
    sees = np.tri(6).T  # keys up to each query
    right, wrong = as_written(2, mask=sees > 0), as_written(3, mask=sees.T > 0)
    # The same both ways.
    right["attention_test_2"][:, 1] = 1 / 6
    right["attention_train_1"][:, :] = np.eye(6)
    assert concerns(right) == ()
    right["attention_test_2"][:, 2] = wrong["attention_test_2"][:, 2]
    (said,) = concerns(right)
    assert said.startswith("attention_test_2 (1 of 3 heads): ")
    # One example that is right clears a head.
    right["attention_test_2"][-1, 2] = right["attention_test_2"][-1, 0]
    assert concerns(right) == ()


def test_padding_does_not_count():
    stored = as_written(FOR_KEYS)
    for key in KEYS:
        inner = stored[key][..., :4, :4]
        stored[key] = np.zeros_like(stored[key])
        stored[key][..., :4, :4] = inner / inner.sum(axis=3, keepdims=True)
    assert concerns(stored) == ()  # as no sequence says where it ends
    lengths = {f"lengths_{name}": np.full(size, 4) for name, size in MANY.items()}
    (said,) = concerns(stored | lengths)
    assert said.startswith("attention_train_1 (2 of 2 heads), ")


@pytest.mark.parametrize(
    ("labels", "doubtful"),
    [([0.0, 1.0], True), ([-1.0, 1.0], False), ([1.0], False), (np.eye(3), False)],
)
def test_zero_and_one_may_be_classes_where_there_is_no_output_for_each(labels, doubtful):
    labels = np.asarray(labels)
    of_splits = {
        f"labels_{name}": labels[np.arange(size) % len(labels)] for name, size in MANY.items()
    }
    assert len(concerns(as_written(FOR_QUERIES) | of_splits)) == doubtful


def test_commands_say_so(tmp_path, capsys):
    stored = as_written(FOR_KEYS)
    recipe = write_arrays(tmp_path, stored, "network = {widths = 3}\n")
    (said,) = concerns(stored)
    assert main(["check", str(recipe)]) == ExitCode.OK
    assert said in " ".join(capsys.readouterr().out.split())
