"""One-shot episodes: what defines them, what the seed decides, and their tokens."""

import numpy as np

from sampler.data.episodes import (
    TOKENS,
    UNKNOWN,
    draw_episodes,
    episode_inputs,
    normalised_patches,
    position_table,
)
from sampler.data.image_files import Drawings
from sampler.streams import Stream, stream
from tests.assertions import assert_equal_to_rounding

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


# --- tokens of an episode


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
    waves = np.empty((48, 64))
    for t, i in np.ndindex(48, 32):
        angle = t / 10000 ** (2 * i / 64)
        waves[t, 2 * i : 2 * i + 2] = np.sin(angle), np.cos(angle)
    expected = (waves - waves.mean()) / waves.std()
    assert_equal_to_rounding(position_table(48, 64), expected, operations=4 * 48)


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
