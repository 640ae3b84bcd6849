"""Theory of attended inputs that an export may have: its time, and memory against its forecast."""

import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sampler.jobs.forecast import peak_bytes
from sampler.jobs.plan import Point, make_plan
from sampler.recipes.recipe import load_recipe
from tests.benchmarks.gallery import GIB, measured

# Heads of each layer, and channels: windows of two layers, few kept heads of six layers, all heads
# of deep models, and single heads as paths of one layer.
CASES = (
    ((2, 2), 32),
    ((4, 4), 32),
    ((2, 2, 2, 1, 1, 1), 64),
    ((6, 6), 16),
    ((4, 4, 4), 16),
    ((4, 4, 4, 4), 16),
    ((145,), 40),
    ((145,), 200),
    ((145,), 768),
)
EXAMPLES, TESTS, LATENT = 300, 100, 8
RECIPE = """
name = "heads"
task = { kind = "arrays", path = "data.npz" }
network = { widths = 100 }
posterior = { temperature = 0.1 }
theory = { starts = 1 }
"""


def measure_exported_heads() -> Iterator[str]:
    """A row for each case: seconds of `solve`, and its peak beside the forecast.

    Seconds are those of processors, in which other work on the machine has no part.
    """
    yield "| heads | D | paths | exit | processor seconds | GiB | predicted |"
    yield "|---|---|---|---|---|---|---|"
    for heads, channels in CASES:
        with tempfile.TemporaryDirectory() as folder:
            path = recipe_of(Path(folder), heads, channels)
            plan = make_plan("solve", Point(load_recipe(path, []), None))
            before = os.times()
            code, _, peak = measured(path, Path(folder) / "run", "solve")
            after = os.times()
        seconds = sum(after[2:4]) - sum(before[2:4])  # of finished children, user and system
        yield (
            f"| {' × '.join(map(str, heads))} | {channels} | {math.prod(heads)} | {code} | "
            f"{seconds:.0f} | {peak:.2f} | "
            f"{peak_bytes(plan.forecast.parts) / GIB:.2f} |"
        )


def recipe_of(folder: Path, heads: tuple[int, ...], channels: int) -> Path:
    """A recipe of random attended inputs, which lie near few directions as those of a model do."""
    rng, paths = np.random.default_rng(0), math.prod(heads)
    latent = rng.standard_normal((EXAMPLES + TESTS, paths, LATENT))
    attended = latent @ rng.standard_normal((LATENT, channels)) / 5
    attended += 0.5 * rng.standard_normal((EXAMPLES + TESTS, 1, channels))
    attended += 0.1 * rng.standard_normal(attended.shape)
    labels = np.sign(latent[:, 0, 0] + 0.5 * latent[:, -1, 1])
    np.savez(
        folder / "data.npz",
        attended_train=attended[:EXAMPLES].astype(np.float32),
        labels_train=labels[:EXAMPLES],
        attended_test=attended[EXAMPLES:].astype(np.float32),
        labels_test=labels[EXAMPLES:],
        heads=np.array(heads),
    )
    recipe = folder / "heads.toml"
    recipe.write_text(RECIPE)
    return recipe
