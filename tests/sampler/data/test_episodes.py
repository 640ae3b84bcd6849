"""One-shot episodes: what defines them, and that the seed decides them."""

import numpy as np

from sampler.data.episodes import UNKNOWN, draw_episodes
from sampler.data.image_files import Drawings
from sampler.streams import Stream, stream

EXAMPLES = 20_000
COUNTS = np.array([2, 5, 3, 9])


def drawings() -> Drawings:
    images = np.zeros((COUNTS.sum(), 32, 32), np.float32)
    return Drawings(images, ("a", "b", "c", "d"), COUNTS)


def episodes(seed=0):
    return draw_episodes(drawings(), EXAMPLES, stream(seed, Stream.TEST))


CHARACTER = np.repeat(np.arange(4), COUNTS)


def test_an_episode_asks_for_the_label_of_another_drawing_of_one_of_its_characters():
    made = episodes()
    of_images = CHARACTER[made.places[0]]
    assert np.all(of_images[:, 0] != of_images[:, 1])
    same = of_images[:, :2] == of_images[:, 2:]
    assert np.all(same.sum(axis=1) == 1)
    assert np.all(made.places[0][:, :2] != made.places[0][:, 2:])
    label = made.places[1][np.arange(EXAMPLES), same.argmax(axis=1)]
    assert np.array_equal(made.targets, np.where(label == 1, 1.0, -1.0))
    assert np.all(np.sort(made.places[1][:, :2]) == [0, 1])
    assert np.all(made.places[1][:, 2] == UNKNOWN)


def test_every_choice_is_uniform_and_independent():
    made = episodes()
    of_images = CHARACTER[made.places[0]]
    asked = (of_images[:, :2] == of_images[:, 2:]).argmax(axis=1)
    pairs = 4 * of_images[:, 0] + of_images[:, 1]
    cells = [pairs[pairs % 5 != 0], 2 * asked + made.places[1][:, 0]]
    # The query of a character with three drawings, given the support.
    third = (of_images[:, 2] == 2) & (asked == 0)
    cells.append(3 * made.places[0][third, 0] + made.places[0][third, 2])
    for cell, kinds in zip(cells, (12, 4, 6), strict=True):
        seen = np.unique(cell, return_counts=True)[1]
        assert seen.size == kinds
        expected = cell.size / kinds
        error = np.sqrt(expected * (1 - 1 / kinds))
        assert np.all(np.abs(seen - expected) < 4.5 * error)


def test_the_seed_decides_the_episodes():
    one, same, other = episodes(), episodes(), episodes(1)
    for first, second in zip((*one.places, one.targets), (*same.places, same.targets), strict=True):
        assert np.array_equal(first, second)
    assert not np.array_equal(one.places[0], other.places[0])
