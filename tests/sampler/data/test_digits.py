"""Handwritten digits: patches in place, heads as their words say, one output per class."""

import numpy as np
from sklearn.datasets import load_digits

from sampler.data.digits import Digits, patches_with_positions, read_images
from sampler.data.make import build_task
from sampler.settings.recipe import Recipe

SMALL = {"examples_train": 30, "examples_test": 40}


def task_of(attention=None, **settings):
    task = Digits(**SMALL | settings)
    return build_task(Recipe(task=task, attention=attention, network={"widths": 10}))


def test_the_tokens_of_an_image_are_its_patches():
    images, _ = read_images(tuple(range(10)))
    for patch, tokens in ((1, 64), (2, 16), (4, 4)):
        inputs = patches_with_positions(images[:3], patch)
        assert inputs.shape == (3, tokens, 64 + tokens)
        # All tokens together are the image: no pixel is lost or counted twice.
        np.testing.assert_array_equal(inputs[..., :64].sum(axis=1), images[:3].reshape(3, 64))
        assert np.all((inputs[..., :64] != 0).sum(axis=-1) <= patch**2)
        np.testing.assert_array_equal(inputs[1, :, 64:], np.eye(tokens))
    third = patches_with_positions(images[:1], 4)[0, 2, :64].reshape(8, 8)
    np.testing.assert_array_equal(third[4:, :4], images[0, 4:, :4])


def test_splits_are_disjoint_and_the_labels_those_of_the_drawings():
    task = task_of(examples_validation=50, seed=3)
    drawings = np.concatenate([s.inputs[..., :64].sum(axis=1) for s in task.splits])
    labels = np.concatenate([s.labels for s in task.splits])
    assert drawings.shape == (120, 64)
    stored = load_digits()
    pairs = zip(stored.data / 16.0, stored.target, strict=True)
    known = {image.tobytes(): digit for image, digit in pairs}
    assert len({image.tobytes() for image in drawings}) == 120
    digits = np.array([known[image.tobytes()] for image in drawings])
    np.testing.assert_array_equal(np.argmax(labels, axis=1), digits)
    np.testing.assert_array_equal(np.unique(labels), np.array([0.0, 1.0]) - 0.1)
    other = task_of(examples_validation=50, seed=4)
    assert not np.array_equal(task.train.inputs, other.train.inputs)


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


def test_two_classes_have_two_outputs():
    task = task_of(classes=[3, 8])
    assert task.outputs == 2
    np.testing.assert_array_equal(np.unique(task.train.labels), [-0.5, 0.5])
