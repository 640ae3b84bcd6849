"""Files of images: labelled arrays, MNIST's format, Omniglot's archives; splits of characters."""

import functools
import gzip
import hashlib
import http.server
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sampler.data.characters import (
    OneShotImages,
    read_drawings,
    refuse_shared_drawings,
    split_characters,
)
from sampler.data.image_files import (
    Drawings,
    download_omniglot,
    read_omniglot,
    resize,
    shrink,
    sort_drawings,
    with_rotations,
)
from sampler.errors import InputError
from tests.recipes import ink_of, png, random_drawings, write_omniglot


@pytest.mark.parametrize(("source", "target"), [(105, 32), (8, 32)])
def test_images_are_resized_as_pillow_does(source, target, rng):
    """Which averages with weights of a triangle."""
    images = rng.random((3, source, source)).astype(np.float32)
    expected = [
        np.asarray(Image.fromarray(image).resize((target, target), Image.Resampling.BILINEAR))
        for image in images
    ]
    np.testing.assert_allclose(resize(images.astype(float), target), expected, atol=1e-5)


def test_many_images_are_made_smaller_as_few_are(rng):
    """More than are held as floating-point numbers at a time."""
    ink = rng.random((1003, 5, 5)) < 0.5
    np.testing.assert_allclose(shrink(list(ink)), resize(ink.astype(float), 32), atol=1e-6)


# --- labelled images


def write_idx(path, values):
    """An IDX file of bytes, compressed if its name says so."""
    sizes = np.array(values.shape, ">u4").tobytes()
    content = bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_images(folder, images, labels, ending):
    """Write one file or two: the path of the images."""
    if ending == ".npz":
        np.savez(folder / "some.npz", images=images, labels=labels)
        return folder / "some.npz"
    write_idx(folder / f"some-labels-idx1-ubyte{ending}", np.asarray(labels))
    write_idx(folder / f"some-images-idx3-ubyte{ending}", images)
    return folder / f"some-images-idx3-ubyte{ending}"


def read(path) -> Drawings:
    return read_drawings(OneShotImages(images=str(path)))


@pytest.mark.parametrize(
    ("ending", "scale"), [(".npz", np.bool_(True)), ("", np.uint8(255)), (".gz", np.uint8(255))]
)
def test_labelled_images_in_any_number_format(tmp_path, rng, ending, scale):
    expected = random_drawings(rng, characters=3, drawings=2)
    order = rng.permutation(6)
    images = (expected.images * scale).astype(scale.dtype)[order]
    received = read(write_images(tmp_path, images, np.repeat([0, 1, 7], 2)[order], ending))
    assert received.names == ("0", "1", "7")
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
        ({"images": np.full((2, 2, 2), -1), "labels": [1, 1]}, "images"),
        ({"images": GOOD[:3], "labels": [1, 1, 2]}, "task.images"),
        (None, "task.images"),
    ],
)
def test_images_that_cannot_be_used_are_refused(tmp_path, arrays, field):
    path = tmp_path / "images.npz"
    if arrays is not None:
        np.savez(path, **arrays)
    with pytest.raises(InputError) as caught:
        split_characters(read(path), OneShotImages())
    assert caught.value.field.partition("[")[0] == field


@pytest.mark.parametrize("change", ["no labels", "other labels", "short"])
def test_a_file_that_is_not_in_the_format_of_mnist(tmp_path, change):
    labels = np.zeros(3 if change == "other labels" else 2)
    path = write_images(tmp_path, np.zeros((2, 3, 3)), labels, ".gz")
    if change == "short":
        path.write_bytes(path.read_bytes()[:-12])
    elif change == "no labels":
        (tmp_path / "some-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError) as caught:
        read(path)
    assert caught.value.field == ("labels" if change == "other labels" else "task.images")


# --- splits of characters


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
        for part in (splits.train, splits.validation, splits.test):
            for name, first in zip(part.names, part.first, strict=True):
                row = 2 * drawings.names.index(name)
                expected = drawings.images[row : row + 2]
                assert np.array_equal(part.images[first : first + 2], expected)
        refuse_shared_drawings(splits.train, splits.test, "digits")
        checksums.append(splits.checksum)
    assert checksums[0] == checksums[1]
    assert checksums[0] != checksums[2]
    both = Drawings(made().images[3:4], ("x",), np.array([1]))
    with pytest.raises(InputError) as caught:
        refuse_shared_drawings(made(), both, "digits")
    assert caught.value.field == "task.test"


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


def test_only_training_characters_are_rotated():
    plain = split_characters(made(), OneShotImages(rotations=False))
    turned = split_characters(made(), OneShotImages())
    assert turned.train.characters == 4 * plain.train.characters
    for name in ("validation", "test"):
        one, other = (getattr(splits, name).images for splits in (turned, plain))
        assert np.array_equal(one, other)


def test_lists_name_characters_or_alphabets():
    labels = [
        f"{alphabet}/{letter}" for alphabet in ("Greek", "Greek 2", "Latin") for letter in "ab"
    ]
    drawings = sort_drawings(np.zeros((12, 4, 4), np.float32), labels * 2)
    settings = OneShotImages(
        characters_test=("Greek",), characters_validation=("Latin/b", "Latin/a"), rotations=False
    )
    splits = split_characters(drawings, settings)
    assert splits.test.names == ("Greek/a", "Greek/b")
    assert splits.validation.names == ("Latin/a", "Latin/b")
    assert splits.train.names == ("Greek 2/a", "Greek 2/b")


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


# --- Omniglot's archives


SMALL_1, SMALL_2 = "images_background_small1.zip", "images_background_small2.zip"


@pytest.fixture
def folder(tmp_path):
    write_omniglot(tmp_path / SMALL_1, {"Greek": 2, "Latin": 1})
    write_omniglot(tmp_path / SMALL_2, {"Greek": 2, "Korean": 3})
    return tmp_path


def test_the_union_of_archives_takes_a_character_once(folder):
    drawings = read_omniglot(folder)
    names = ["Greek/character01", "Greek/character02", "Latin/character01"]
    names[2:2] = [f"Korean/character0{number}" for number in (1, 2, 3)]
    assert list(drawings.names) == names
    assert drawings.counts.tolist() == [3] * 6
    expected = resize(ink_of("Korean/character02/0002_03.png")[None].astype(float), 32)[0]
    assert np.array_equal(drawings.images[drawings.first[3] + 2], expected)
    (folder / SMALL_2).unlink()
    assert list(read_omniglot(folder).names) == [*names[:2], names[-1]]


@pytest.mark.parametrize(
    "content",
    [b"no image", png(ink_of("a"))[:200], png(ink_of("a", 104)), png(ink_of("other"))],
    ids=["unreadable", "truncated", "mis-sized", "conflicting"],
)
def test_an_image_of_an_archive_that_cannot_be_used_is_refused(folder, content):
    write_omniglot(folder / SMALL_1, {"Greek": 1}, **{"Greek/character01/0001_02.png": content})
    with pytest.raises(InputError):
        read_omniglot(folder)


def test_archives_that_are_not_whole_or_not_there_are_refused(folder):
    (folder / SMALL_2).write_bytes((folder / SMALL_2).read_bytes()[:-100])
    for place in (folder, folder / "none"):
        with pytest.raises(InputError):
            read_omniglot(place)


@pytest.fixture
def server(folder):
    """The folder, served on this host."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()


def sha256(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_missing_and_damaged_files_are_fetched(server, folder, tmp_path):
    own = tmp_path / "own"
    checksums = {name: sha256(folder / name) for name in (SMALL_1, SMALL_2)}
    own.mkdir()
    (own / SMALL_1).write_bytes(b"damaged")
    download_omniglot(own, server, checksums)
    for name in checksums:
        assert (own / name).read_bytes() == (folder / name).read_bytes()
    # What is there and intact needs no network.
    download_omniglot(own, "http://127.0.0.1:9/", checksums)
    # These are not the official ones.
    with pytest.raises(InputError):
        download_omniglot(tmp_path / "other", server)
    assert not (tmp_path / "other" / SMALL_1).exists()
