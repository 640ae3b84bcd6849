"""Omniglot's twenty one-shot runs, ready-made episodes from alphabets of their own.

Each run has one drawing of each of 20 characters of one alphabet, and 20 drawings to classify.
"""

import zipfile
from pathlib import Path

import numpy as np

from sampler.errors import InputError
from sampler.images.drawings import Drawings
from sampler.images.episodes import CLASSES, Episodes, make_episodes
from sampler.images.image_archive import open_archive, read_ink, read_member
from sampler.images.omniglot import SOURCE_SIDE
from sampler.images.resize import resize
from sampler.recipes.episode_tokens import SIDE

ARCHIVE = "all_runs.zip"
RUNS, CHARACTERS = 20, 20


def read_all_runs(
    folder: Path, examples: int, generator: np.random.Generator
) -> tuple[Drawings, Episodes]:
    """Drawings of all runs, and episodes of two characters of the same run, none of them twice.

    A drawing to classify, its own character and any other one of its run make an episode: 7,600 in
    all, of which `examples` are drawn, with the supports in random order and randomly labelled.
    Raises InputError for a file that cannot be used, or if more episodes are asked for.
    """
    with open_archive(folder / ARCHIVE) as archive:
        pairs = [read_pairs(archive, f"run{run:02d}") for run in range(1, RUNS + 1)]
        names = list(dict.fromkeys(name for run in pairs for pair in run for name in pair))
        ink = np.stack([read_ink(archive, name, SOURCE_SIDE) for name in names])
    place = {name: row for row, name in enumerate(names)}
    candidates = np.array(
        [
            (place[item], place[own], place[other])
            for run in pairs
            for item, own in run
            for _, other in run
            if other != own
        ]
    )
    if examples > len(candidates):
        raise InputError(
            "task.examples_test", examples, f"{ARCHIVE} has {len(candidates)} episodes; use fewer"
        )
    items, own, other = candidates[generator.permutation(len(candidates))[:examples]].T
    asked = generator.integers(2, size=examples)
    label = generator.integers(CLASSES, size=examples)
    supports = np.where(asked[:, None] == np.arange(2), own[:, None], other[:, None])
    # Which character a drawing is of does not matter here: the episodes are there already.
    drawings = Drawings(resize(ink.astype(np.float64), SIDE), (ARCHIVE,), np.array([len(names)]))
    return drawings, make_episodes(supports, items, label, asked)


def read_pairs(archive: zipfile.ZipFile, run: str) -> list[tuple[str, str]]:
    """Members of one run: each drawing to classify with the drawing of its character."""
    name = f"{run}/class_labels.txt"
    lines = read_member(archive, name).decode("ascii", errors="replace").split("\n")
    pairs = [tuple(line.split()) for line in lines if line.strip()]
    if len({pair[-1] for pair in pairs}) != CHARACTERS or any(len(pair) != 2 for pair in pairs):
        raise InputError(
            f"{ARCHIVE}/{name}", f"{len(pairs)} pairs", f"must list {CHARACTERS} pairs of drawings"
        )
    return [(item, own) for item, own in pairs]
