"""Images of every source: resizing, digits, labelled arrays, splits of characters, and patches."""

import gzip

import numpy as np
import pytest

from sampler.data.characters import (
    OneShotImages,
    read_drawings,
    refuse_shared_drawings,
    split_characters,
)
from sampler.data.episodes import TOKENS, episode_inputs, normalised_patches, position_table
from sampler.data.image_files import (
    Drawings,
    resizing_matrix,
    sort_drawings,
    with_rotations,
)
from sampler.errors import InputError
from tests.assertions import assert_equal_to_rounding
from tests.pictures import random_drawings


@pytest.mark.parametrize(("source", "target"), [(105, 32), (8, 32), (32, 32)])
def test_resizing_keeps_a_constant_and_mirrors(source, target):
    matrix = resizing_matrix(source, target)
    assert_equal_to_rounding(matrix.sum(axis=1), np.ones(target), operations=source + 1)
    # Centres are products with source/target: rounding of positions up to the size of the source.
    assert_equal_to_rounding(matrix, matrix[::-1, ::-1], operations=4 * source)


def test_resizing_is_the_triangular_filter_written_out():
    scale = 105 / 32
    weights = [max(0.0, 1 - abs(j - (2.5 * scale - 0.5)) / scale) for j in range(105)]
    expected = np.array(weights) / sum(weights)
    assert_equal_to_rounding(resizing_matrix(105, 32)[2], expected, operations=4 * 105)


@pytest.mark.parametrize("scale", [np.uint8(255), np.bool_(True)])
def test_labelled_images_in_any_number_format(tmp_path, rng, scale):
    expected = random_drawings(rng, characters=3, drawings=2)
    order = rng.permutation(6)
    images = (expected.images * scale).astype(scale.dtype)
    labels = np.repeat(["a", "b", "c"], 2)
    path = tmp_path / "images.npz"
    np.savez(path, images=images[order], labels=labels[order])
    received = read_drawings(OneShotImages(images=str(path)))
    assert received.names == ("a", "b", "c")
    assert received.counts.tolist() == [2, 2, 2]
    for c in range(3):
        mine, theirs = (d.images[2 * c : 2 * c + 2].reshape(2, -1) for d in (expected, received))
        assert sorted(map(tuple, mine.tolist())) == sorted(map(tuple, theirs.tolist()))


GOOD = np.zeros((4, 5, 5))


@pytest.mark.parametrize(
    ("arrays", "field"),
    [
        ({"images": GOOD}, "labels"),
        ({"images": GOOD + np.nan, "labels": [1, 1, 2, 2]}, "images"),
        ({"images": np.full((2, 2, 2), 300), "labels": [1, 1]}, "images"),
        ({"images": GOOD[:3], "labels": [1, 1, 2]}, "task.images"),
        (None, "task.images"),
    ],
)
def test_images_that_cannot_be_used_are_refused(tmp_path, arrays, field):
    path = tmp_path / "images.npz"
    if arrays is not None:
        np.savez(path, **arrays)
    with pytest.raises(InputError) as caught:
        split_characters(read_drawings(OneShotImages(images=str(path))), OneShotImages())
    assert caught.value.field.partition("[")[0] == field


def write_idx(path, values):
    """An IDX file of bytes, compressed if its name says so."""
    sizes = np.array(values.shape, ">u4").tobytes()
    content = bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_files_in_the_format_of_mnist(tmp_path, rng, ending):
    images, labels = rng.integers(0, 256, (6, 28, 28)), np.array([1, 0, 1, 7, 0, 7])
    path = tmp_path / f"t10k-images-idx3-ubyte{ending}"
    write_idx(path, images)
    write_idx(tmp_path / f"t10k-labels-idx1-ubyte{ending}", labels)
    received = read_drawings(OneShotImages(images=str(path)))
    np.savez(tmp_path / "same.npz", images=images.astype(np.uint8), labels=labels)
    expected = read_drawings(OneShotImages(images=str(tmp_path / "same.npz")))
    assert received.names == expected.names == ("0", "1", "7")
    assert np.array_equal(received.images, expected.images)
    assert received.counts.tolist() == [2, 2, 2]


@pytest.mark.parametrize("change", ["no labels", "other labels", "short"])
def test_a_file_that_is_not_in_the_format_of_mnist(tmp_path, change):
    path = tmp_path / "x-images-idx3-ubyte.gz"
    labels = tmp_path / "x-labels-idx1-ubyte.gz"
    write_idx(path, np.zeros((2, 3, 3)))
    write_idx(labels, np.zeros(3 if change == "other labels" else 2))
    if change == "short":
        path.write_bytes(path.read_bytes()[:-12])
    elif change == "no labels":
        labels.unlink()
    with pytest.raises(InputError) as caught:
        read_drawings(OneShotImages(images=str(path)))
    assert caught.value.field == ("labels" if change == "other labels" else "task.images")


def made(characters=20) -> Drawings:
    return random_drawings(np.random.default_rng(1), characters=characters, drawings=2)


def test_splits_share_no_character_and_leave_none_out():
    """The seed decides them."""
    drawings, checksums = made(), []
    for seed in (0, 0, 1):
        splits = split_characters(drawings, OneShotImages(seed=seed, rotations=False))
        names = [set(part.names) for part in (splits.train, splits.validation, splits.test)]
        assert [len(part) for part in names] == [11, 3, 6]
        assert set.union(*names) == set(drawings.names)
        for one, other in ((splits.train, splits.test), (splits.validation, splits.test)):
            refuse_shared_drawings(one, other, "digits")
        for part in (splits.train, splits.validation, splits.test):
            for name, first in zip(part.names, part.first, strict=True):
                row = 2 * drawings.names.index(name)
                expected = drawings.images[row : row + 2]
                assert np.array_equal(part.images[first : first + 2], expected)
        checksums.append(splits.checksum)
    assert checksums[0] == checksums[1]
    assert checksums[0] != checksums[2]
    both = Drawings(made().images[3:4], ("x",), np.array([1]))
    with pytest.raises(InputError) as caught:
        refuse_shared_drawings(made(), both, "digits")
    assert caught.value.field == "task.test"


def test_rotated_training_characters_are_new_ones():
    plain = split_characters(made(), OneShotImages(rotations=False))
    turned = split_characters(made(), OneShotImages())
    assert turned.train.characters == 4 * plain.train.characters
    assert turned.validation.names == plain.validation.names
    assert np.array_equal(turned.test.images, plain.test.images)
    count = len(plain.train.images)
    for turns in range(4):
        part = turned.train.images[turns * count : (turns + 1) * count]
        assert np.array_equal(part[3], np.rot90(plain.train.images[3], turns))


def test_lists_name_characters_or_alphabets():
    images = np.zeros((12, 4, 4), np.float32)
    labels = np.repeat(["Greek/a", "Greek/b", "Korean/a", "Korean/b", "Latin/a", "Latin/b"], 2)
    drawings = sort_drawings(images, list(labels))
    settings = OneShotImages(
        characters_test=("Korean",), characters_validation=("Latin/b", "Latin/a"), rotations=False
    )
    splits = split_characters(drawings, settings)
    assert splits.test.names == ("Korean/a", "Korean/b")
    assert splits.validation.names == ("Latin/a", "Latin/b")
    assert splits.train.names == ("Greek/a", "Greek/b")


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"characters_test": ("letters/03",), "characters_train": ("letters",)}, "characters_test"),
        ({"characters_validation": ("Greek",)}, "characters_validation"),
        ({"fraction_test": 0.5}, "characters_train"),
    ],
)
def test_overlapping_unknown_and_too_few_characters_are_refused(settings, field):
    with pytest.raises(InputError) as caught:
        split_characters(made(6), OneShotImages(**settings))
    assert caught.value.field == f"task.{field}"


def test_patches_are_row_major_and_normalised(rng):
    images = rng.random((3, 32, 32)).astype(np.float32)
    images[1, :8, 8:16] = 0.25
    received = normalised_patches(images, copies=3)
    assert received.shape == (3, 16, 192)
    for patch in (0, 1, 6, 15):
        row, column = 8 * (patch // 4), 8 * (patch % 4)
        values = images[2, row : row + 8, column : column + 8].astype(float).reshape(-1)
        expected = (values - values.mean()) / np.sqrt(values.var() + 1e-5)
        for copy in range(3):
            assert_equal_to_rounding(
                received[2, patch, 64 * copy : 64 * copy + 64], expected, operations=200
            )
    assert np.array_equal(received[1, 1], np.zeros(192))


def test_positions_are_standardised_sinusoids():
    table = position_table(48, 64)
    assert_equal_to_rounding([table.mean(), table.var() - 1], [0, 0], operations=4, scale=48 * 64)
    sines = [[np.sin(t / 10000 ** (2 * i / 64)) for i in range(32)] for t in range(48)]
    # The same up to one factor and one constant: correlated with coefficient 1.
    correlation = np.corrcoef(np.ravel(sines), np.ravel(table[:, 0::2]))[0, 1]
    assert_equal_to_rounding(correlation, 1.0, operations=48 * 64)


def test_inputs_are_patch_plus_position_plus_label(rng):
    patches, embedding = rng.standard_normal((5, 16, 64)), rng.standard_normal((3, 64))
    drawings, labels = np.array([[4, 0, 2], [1, 1, 3]]), np.array([[1, 0, 2], [0, 1, 2]])
    positions = position_table(TOKENS, 64)
    received = episode_inputs(patches, positions, embedding, drawings, labels)
    assert received.shape == (2, TOKENS, 64)
    for example, token in ((0, 0), (0, 17), (1, 47)):
        image, patch = divmod(token, 16)
        expected = (
            patches[drawings[example, image], patch]
            + embedding[labels[example, image]]
            + positions[token]
        )
        assert_equal_to_rounding(received[example, token], expected, operations=4)


def test_rotated_characters_have_the_drawings_of_their_own(rng):
    """A quarter turn is the transposed image with its rows in reverse order."""
    images = rng.random((6, 32, 32)).astype(np.float32)
    drawings = Drawings(images, ("a", "b", "c"), np.array([1, 2, 3]))
    rotated = with_rotations(drawings)
    assert rotated.characters == 12
    own = {"a": [0], "b": [1, 2], "c": [3, 4, 5]}
    for character, (name, first) in enumerate(zip(rotated.names, rotated.first, strict=True)):
        original, _, angle = name.partition(" ")
        turns = int(angle.removesuffix("°") or 0) // 90
        expected = images[own[original]]
        for _ in range(turns):
            expected = expected.transpose(0, 2, 1)[:, ::-1]
        received = rotated.images[first : first + rotated.counts[character]]
        np.testing.assert_array_equal(received, expected)
