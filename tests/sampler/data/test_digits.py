"""Handwritten digits: patches in place, heads as their words say, one output per class."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from sampler.data.digits import Digits
from sampler.data.image_files import resize
from sampler.data.make import build_task
from sampler.errors import InputError
from sampler.settings.recipe import Recipe
from tests.sampler.data.test_images import write_images

SMALL = {"examples_train": 30, "examples_test": 40}


def task_of(attention=None, **settings):
    task = Digits(**SMALL | settings)
    return build_task(Recipe(task=task, attention=attention, network={"widths": 10}))


def digits_of(split):
    """What scikit-learn says of the drawings of a split."""
    stored = load_digits()
    pairs = zip(stored.data / 16.0, stored.target, strict=True)
    known = {image.tobytes(): digit for image, digit in pairs}
    return np.array([known[image.tobytes()] for image in split.inputs[..., :64].sum(axis=1)])


def test_labels_are_those_of_the_drawings():
    task = task_of(examples_validation=50, seed=3)
    for one, classes in ((task, range(10)), (task_of(classes=(7, 2)), (7, 2))):
        for split in one.splits:
            expected = (digits_of(split)[:, None] == np.array(classes)) - 1.0 / len(classes)
            np.testing.assert_array_equal(split.labels, expected)
    other = task_of(examples_validation=50, seed=4)
    assert not np.array_equal(task.train.inputs, other.train.inputs)


@pytest.mark.parametrize(
    ("train", "validation", "test"), [(848, 50, 2), (2, 50, 899), (1000, 0, 797)]
)
def test_no_drawing_is_in_two_splits_however_large_they_are(train, validation, test):
    """Of the 1797 drawings; with one example more two splits would share one."""
    sizes = {"examples_train": train, "examples_validation": validation, "examples_test": test}
    task = task_of(**sizes)
    splits = [split for split in task.splits if split is not None]
    drawings = [{one.tobytes() for one in split.inputs.sum(axis=1)} for split in splits]
    assert [len(split.labels) for split in splits] == [
        one for one in (train, test, validation) if one
    ]
    assert len(set.union(*drawings)) == train + validation + test
    larger = "examples_train" if train == max(sizes.values()) else "examples_test"
    with pytest.raises(InputError, match="1797 images"):
        task_of(**sizes | {larger: sizes[larger] + 1})


def test_heads_attend_what_their_names_say():
    """Columns are softmax over keys of the logits in words, computed pair by pair."""
    beta = 7.0
    attention = {"heads": [["similar", "near", "uniform"]], "inverse_temperature": beta}
    task = task_of(attention=attention, examples_train=2, examples_test=2)
    image = task.train.inputs[0, :, :64].sum(axis=0).reshape(8, 8)
    patches = [image[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] for i in range(4) for j in range(4)]
    logits = np.zeros((3, 16, 16))
    for s in range(16):
        for t in range(16):
            logits[0, s, t] = beta * np.mean(patches[s] * patches[t])
            apart = np.hypot(s // 4 - t // 4, s % 4 - t % 4) / 4.0
            logits[1, s, t] = -beta * apart**2
    weights = np.exp(logits)
    expected = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(task.train.attention[0][0], expected, rtol=1e-12)


# --- images of a file


def task_of_file(**settings):
    section = {"kind": "digits", "patch": 3, **SMALL, **settings}
    section["images"] = str(section["images"])
    return build_task(Recipe(task=section, network={"widths": 10}))


@pytest.mark.parametrize("ending", [".gz", ".npz"])
def test_images_of_a_file_are_cut_into_patches(tmp_path, ending):
    generator = np.random.default_rng(0)
    images = generator.integers(1, 256, (150, 6, 6))
    labels = generator.choice([3, 5, 8], 150)
    path = write_images(tmp_path, images.astype(np.uint8), labels, ending)
    task = task_of_file(images=path, classes=["8", "3"])
    known = {tuple(image.ravel()): label for image, label in zip(images, labels, strict=True)}
    seen = set()
    for split in task.splits:
        for tokens, label in zip(split.inputs, split.labels, strict=True):
            image = np.zeros((6, 6))
            for place, token in enumerate(tokens):
                row, column = divmod(place, 2)
                whole = token[:36].reshape(6, 6)
                block = np.s_[3 * row : 3 * row + 3, 3 * column : 3 * column + 3]
                image[block] = whole[block]
                assert np.count_nonzero(whole) == 9
                np.testing.assert_array_equal(token[36:], np.arange(4) == place)
            pixels = tuple(np.rint(255 * image).astype(int).ravel())
            expected = {8: [0.5, -0.5], 3: [-0.5, 0.5]}[known[pixels]]
            np.testing.assert_array_equal(label, expected)
            seen.add(pixels)
    assert len(seen) == sum(split.examples for split in task.splits)


def test_images_can_be_made_smaller_and_square(tmp_path):
    """Others are refused as they are."""
    images = np.random.default_rng(1).integers(0, 256, (80, 12, 9)).astype(np.uint8)
    path = write_images(tmp_path, images, np.arange(80) % 2, ".npz")
    inputs = task_of_file(images=path, side=6).train.inputs[..., :36].sum(axis=1)
    expected = resize(images / 255.0, 6).reshape(80, 36)
    nearest = np.abs(inputs[:, None] - expected).max(axis=-1).min(axis=1)
    np.testing.assert_allclose(nearest, 0, atol=1e-6)
    with pytest.raises(InputError) as caught:
        task_of_file(images=path)
    assert caught.value.field == "task.images"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"patch": 4}, "task.patch"),
        ({"classes": ["0", "7"]}, "task.classes"),
        ({"classes": ["0"]}, "task.classes"),
        ({"classes": ["0", "0"]}, "task.classes"),
        ({"examples_train": 60}, "task.examples_test"),
    ],
)
def test_images_that_do_not_fit_are_refused(tmp_path, settings, field):
    path = write_images(tmp_path, np.ones((80, 6, 6)), np.arange(80) % 2, "")
    with pytest.raises(InputError) as caught:
        task_of_file(images=path, **settings)
    assert caught.value.field == field
