"""Examples in blocks: the same numbers as all at once, from memory, a generator or a file."""

import h5py
import numpy as np
import pytest

from sampler.data import examples as limits
from sampler.data.arrays import read_arrays
from sampler.data.examples import Examples, StreamedExamples
from sampler.data.make import build_task
from sampler.errors import InputError
from sampler.jobs.folding import folded_training_set
from sampler.jobs.interruption import Interruption
from sampler.problem import build_problem, fold_training
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import ROWS_FOLDER
from tests.recipes import markov_chain as markov_task

EXAMPLES, PATHS, CHANNELS = 100, 4, 3


@pytest.fixture
def small_blocks(monkeypatch):
    """Nothing is held, and blocks have 16 examples or fewer."""
    monkeypatch.setattr(limits, "HELD_BYTES", 1)
    monkeypatch.setattr(limits, "BLOCK_BYTES", 16 * 8 * (PATHS * CHANNELS + 1))


def attended_arrays(rng, examples=EXAMPLES) -> dict[str, np.ndarray]:
    """Attended inputs of two layers of two heads."""
    arrays = {"heads": np.array([2, 2])}
    for name, count in (("train", examples), ("test", 5)):
        arrays[f"attended_{name}"] = rng.standard_normal((count, PATHS, CHANNELS))
        arrays[f"labels_{name}"] = np.sign(rng.standard_normal(count))
    return arrays


def token_arrays(rng, examples=30) -> dict[str, np.ndarray]:
    """Three tokens of two channels, one layer of two heads."""
    arrays = {}
    for name, count in (("train", examples), ("test", 5)):
        arrays[f"inputs_{name}"] = rng.standard_normal((count, 3, 2))
        arrays[f"attention_{name}_1"] = rng.random((count, 2, 3, 3))
        arrays[f"labels_{name}"] = np.sign(rng.standard_normal((count, 1)))
    return arrays


def with_lengths(rng) -> dict[str, np.ndarray]:
    """The same sequences, which are said to have all of their tokens."""
    return token_arrays(rng) | {"lengths_train": np.full(30, 3), "lengths_test": np.full(5, 3)}


def written(folder, arrays):
    """A file of these arrays, and a recipe that reads it."""
    with h5py.File(folder / "mine.h5", "w") as file:
        for key, values in arrays.items():
            file[key] = values
    path = folder / "mine.toml"
    path.write_text(
        'name = "mine"\ntask = {kind = "arrays", path = "mine.h5"}\n'
        "network = {widths = 6}\nposterior = {temperature = 0.1}\n",
        encoding="utf-8",
    )
    return load_recipe(path)


def joined(split, first=0) -> list[np.ndarray]:
    """All arrays of the blocks from an example on, put together."""
    blocks = [one.arrays[: -1 if one.path_heads else None]
              for one in split.blocks(first)]  # fmt: skip
    return [np.concatenate(arrays) for arrays in zip(*blocks, strict=True)]


def test_markov_chains_do_not_depend_on_blocks(monkeypatch):
    settings = {"examples_train": 41, "examples_test": 4, "tokens": 5, "features": 4, "seed": 3}
    heads = (("good", "random"), ("uniform", "random"))
    whole = markov_task(heads, **settings).train
    monkeypatch.setattr(limits, "HELD_BYTES", 1)
    streamed = markov_task(heads, **settings).train
    assert isinstance(whole, Examples)
    assert isinstance(streamed, StreamedExamples)
    for first, size in ((0, 3), (0, 64), (37, 3)):
        blocks = list(streamed.make(first, size))
        for place, expected in enumerate(whole.arrays):
            received = np.concatenate([block.arrays[place] for block in blocks])
            np.testing.assert_array_equal(received, expected[first:])
    assert (streamed.heads, streamed.shape) == (whole.heads, whole.shape)


@pytest.mark.parametrize(
    ("make", "kept"), [(attended_arrays, ((1,), (1, 0))), (token_arrays, ((1,),))]
)
def test_blocks_of_a_file_are_its_examples(make, kept, rng, tmp_path, monkeypatch):
    """From any of them on, with all heads or some; small files are read like those of NumPy."""
    arrays = make(rng)
    np.savez(tmp_path / "mine.npz", **arrays)
    expected, path = read_arrays(tmp_path / "mine.npz"), written(tmp_path, arrays)
    task = build_task(path)
    assert (task.checksum, task.path_names) == (expected.checksum, expected.path_names)
    monkeypatch.setattr(limits, "HELD_BYTES", 1)
    monkeypatch.setattr(limits, "BLOCK_BYTES", 2000)
    streamed = build_task(path).train
    assert isinstance(streamed, StreamedExamples)
    for split, whole in (
        (streamed, expected.train),
        (streamed.keeping(kept), expected.train.keeping(kept)),
    ):
        assert (split.heads, split.shape) == (whole.heads, whole.shape)
        for first in (0, 17):
            for received, values in zip(joined(split, first), whole.arrays, strict=False):
                np.testing.assert_array_equal(received, values[first:])


@pytest.mark.parametrize("make", [attended_arrays, token_arrays])
def test_rows_of_a_streamed_file_are_those_of_its_arrays(make, rng, tmp_path, monkeypatch):
    recipe = written(tmp_path, make(rng))
    expected = build_problem(recipe, build_task(recipe)).learning
    monkeypatch.setattr(limits, "HELD_BYTES", 1)
    monkeypatch.setattr(limits, "BLOCK_BYTES", 2000)
    received = build_problem(recipe, build_task(recipe)).learning
    assert received.examples == expected.examples > len(expected.labels)
    np.testing.assert_allclose(received.attended, expected.attended, rtol=0, atol=1e-12)
    np.testing.assert_allclose(received.labels, expected.labels, rtol=0, atol=1e-12)
    assert received.residual_squares == pytest.approx(expected.residual_squares, rel=1e-12)


@pytest.mark.parametrize(
    ("make", "key", "place"),
    [
        (attended_arrays, "attended_train", (93, 1, 2)),
        (token_arrays, "attention_train_1", (27, 0, 1, 2)),
        (with_lengths, "lengths_train", (27,)),
    ],
)
def test_a_bad_number_is_named_with_its_example(make, key, place, rng, tmp_path, small_blocks):
    arrays = make(rng)
    arrays[key][place] = 4 if make is with_lengths else np.nan
    recipe = written(tmp_path, arrays)
    with pytest.raises(InputError) as caught:
        list(fold_training(recipe, build_task(recipe)))
    assert caught.value.field == f"{key}{list(place)}"


def test_arrays_of_a_large_file_have_as_many_examples(rng, tmp_path, small_blocks):
    """Which is seen before any of its blocks is read."""
    arrays = token_arrays(rng)
    arrays["attention_train_1"] = arrays["attention_train_1"][:-1]
    with pytest.raises(InputError) as caught:
        build_task(written(tmp_path, arrays))
    assert caught.value.field == "attention_train_1"


def test_networks_outside_the_theory_are_refused(rng, tmp_path, small_blocks):
    recipe = written(tmp_path, token_arrays(rng))
    network = recipe.network.model_copy(update={"values": "relu"})
    outside = recipe.model_copy(update={"network": network})
    with pytest.raises(InputError, match="examples are too many"):
        build_problem(outside, build_task(outside))


def test_rows_are_those_of_the_readout_and_of_the_data(rng, tmp_path, small_blocks):
    recipe = written(tmp_path, token_arrays(rng))
    mean = recipe.network.model_copy(update={"readout": "mean"})
    for one in (recipe, recipe.model_copy(update={"network": mean}), None):
        one = one or written(tmp_path, token_arrays(rng))  # other data
        task = build_task(one)
        *_, expected = fold_training(one, task)
        for point in ("a", "b"):  # the second one finds what the first left
            folder = tmp_path / point
            folder.mkdir(exist_ok=True)
            with pytest.MonkeyPatch.context() as patch:
                if point == "b":
                    patch.delattr("sampler.jobs.folding.fold_training")
                received = folded_training_set(one, task, folder, tmp_path, Interruption())
            assert not (folder / ROWS_FOLDER).exists()
            np.testing.assert_array_equal(received.matrix, expected.matrix)
            sizes = [(r.examples, r.paths, r.channels, r.outputs) for r in (received, expected)]
            assert sizes[0] == sizes[1]
