"""Slow: killed at random moments and resumed, all in processes of their own: the same bits."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.commands import TINY
from tests.kills import Moment, Work, assert_same_results
from tests.training_recipes import TINY as TRAINING
from tests.training_recipes import write_training

pytestmark = pytest.mark.slow

DRAWS, FEWER, STEPS = 600, 200, 2000
CHAINS = f"""{TINY}
chains = 2
warmup = 200
algorithm = "hmc"
leapfrog_steps = 3
draws = {DRAWS}
"""
TEMPERED = f"""{TINY}
algorithm = "tempered"
space = "order_parameters"
particles = 32
until = "draws"
"""
STREAMED = """
name = "streamed"
task = {kind = "arrays", path = "mine.h5"}
network = {widths = 6}
posterior = {temperature = 0.1}
theory = {starts = 1}
"""
EXAMPLES, PATHS, CHANNELS = 530_000, 4, 16


def moments(many: int, few: int = 0) -> pytest.MarkDecorator:
    """The number of moments, and of works that are killed: all of them, and a few in one work."""
    complete = pytest.param(many, many // 5, marks=pytest.mark.long)
    return pytest.mark.parametrize(("count", "works"), [*([(few, 1)] * bool(few)), complete])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("kills")


def work_of(folder: Path, name: str, text: str, *words: str, **settings) -> Work:
    """The work of a command and a recipe, not yet done."""
    path = folder / f"{name}.toml"
    path.write_text(text)
    command, *options = words
    return Work((command, path, *options), folder / name, folder / "cache", **settings)


@cache
def compiled(work: Work) -> Work:
    """A work that is done twice undisturbed: the second time everything is compiled."""
    work.undisturbed(work.whole.with_name(f"{work.whole.name}-first"))
    return work.undisturbed(work.whole)


@pytest.fixture(scope="module")
def chains(folder) -> Work:
    """A run, after a shorter one that has compiled everything."""
    work = work_of(folder, "chains", CHAINS, "run", steps=DRAWS)
    fewer = replace(work, words=(*work.words, "--set", f"sampler.draws={FEWER}"), steps=FEWER)
    fewer.undisturbed(folder / "fewer")
    return work.undisturbed(work.whole)


@moments(20, few=3)
def test_a_killed_run(count, works, chains, tmp_path):
    hits = chains.killed(tmp_path, chains.moments(count, seed=1), works)
    assert len(hits) >= count / 4


@moments(5)
def test_a_killed_extension(count, works, chains, folder, tmp_path):
    """And equals the run that was asked for as many draws from the start."""
    words = "resume", "--more", DRAWS - FEWER
    extension = replace(chains, words=words, extended=folder / "fewer")
    extension = extension.undisturbed(tmp_path / "whole")
    assert_same_results(extension.whole, chains.whole)
    extension.killed(tmp_path, extension.moments(count, seed=2), works)


@moments(10)
def test_killed_particles(count, works, folder, tmp_path):
    work = compiled(work_of(folder, "tempered", TEMPERED, "run", "--no-figures", steps=4))
    work.killed(tmp_path, work.moments(count, seed=3), works)


@moments(10)
def test_a_killed_training(count, works, folder, tmp_path):
    write_training(folder, np.random.default_rng(5))
    text = TRAINING.replace("steps = 130", f"steps = {STEPS}")
    work = compiled(work_of(folder, "training", text, "train", steps=STEPS))
    work.killed(tmp_path, work.moments(count, seed=4), works)


@moments(5)
def test_a_killed_pass_over_the_examples(count, works, folder, tmp_path):
    if not (folder / "mine.h5").is_file():
        write_examples(folder / "mine.h5", np.random.default_rng(6))
    work = compiled(work_of(folder, "streamed", STREAMED, "solve", streamed=True))
    times = dict(work.course)
    span = times["theory"] - times["examples"]
    seconds = np.random.default_rng(7).uniform(0.0, span, count)
    hits = work.killed(tmp_path, [Moment("examples", at) for at in np.sort(seconds)], works)
    assert hits["examples"] > 0


def write_examples(path: Path, rng) -> None:
    """A file of examples that are too many to be held."""
    with h5py.File(path, "w") as file:
        file["heads"] = np.array([2, 2])
        for split, count in (("train", EXAMPLES), ("test", 5)):
            inputs = rng.integers(-9, 10, (count, PATHS, CHANNELS)).astype(np.float32)
            file[f"attended_{split}"] = inputs
            file[f"labels_{split}"] = np.where(inputs.sum(axis=(1, 2)) > 0, 1, -1)
