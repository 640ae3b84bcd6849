"""NUTS in all weights beside the collapsed sampler, on an accelerator or a processor.

    python -m runs.benchmarks.gpu [--small] [--minutes M]

Sixteen paths, 600 examples, N = 512: the size of figure 3 of arXiv 2405.15926. Both sample one
posterior, so U₁ of both agree within their errors; what differs is R-hat and effective draws a
second. Each row has a third of the minutes, ten in all by default, and is printed as soon as it is
measured. Needs no data and no network.
"""

import argparse
import os
import time
from dataclasses import dataclass

# Other processes may use the same card meanwhile.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy as np
from arviz_stats.base import array_stats

import sampler
from sampler.errors import OutOfTimeError

CHAINS = 4
AXES = {"chain_axis": 0, "draw_axis": 1}


@dataclass(frozen=True)
class Size:
    """Heads of both layers, examples, channels and width; warm-up of NUTS."""

    heads: tuple[int, int] = (4, 4)
    examples: int = 600
    channels: int = 64
    width: int = 512
    warmup: int = 150


SMALL = Size(heads=(2, 1), examples=40, channels=8, width=8, warmup=60)
# What is sampled: space, algorithm and precision.
ROWS = (
    ("weights", "nuts", "float32"),
    ("weights", "nuts", "float64"),
    ("order_parameters", "split_hmc", "float64"),
)


def random_task(size: Size):
    """A task whose paths share half of their inputs; labels depend on the mean over the paths."""
    rng, paths = np.random.default_rng(1), int(np.prod(size.heads))
    common = rng.standard_normal((2, size.examples, 1, size.channels))
    attended = common + 0.5 * rng.standard_normal((2, size.examples, paths, size.channels))
    labels = np.sign(attended.mean(axis=2) @ rng.standard_normal(size.channels))
    return sampler.Arrays(
        attended=attended[0],
        attended_test=attended[1],
        labels=labels[0],
        labels_test=labels[1],
        heads=size.heads,
    )


def row(recipe, size: Size, space: str, algorithm: str, precision: str, minutes: float):
    """One line of the table, and U_1 with its error where there are draws."""
    # At NumPyro's 0.8 many trajectories through the weights of a narrow network diverge.
    of_nuts = {"warmup": size.warmup, "target_acceptance": 0.95} if algorithm == "nuts" else {}
    started, name = time.perf_counter(), f"| {space} | {algorithm} | {precision} "
    try:
        draws = sampler.sample(
            recipe, space=space, algorithm=algorithm, precision=precision, chains=CHAINS,
            until="trusted", max_minutes=minutes, progress=False, seed=1, **of_nuts,
        )  # fmt: skip
    except OutOfTimeError:
        return name + f"| no draw after {60 * minutes:.0f} s of warm-up | | | | | |", None
    seconds = time.perf_counter() - started
    overlaps, statistics = draws["posterior"]["order_parameter"].values, draws["sample_stats"]
    rows, columns = np.tril_indices(overlaps.shape[-1])
    entries = overlaps[..., rows, columns].astype(float)
    effective = np.min(array_stats.ess(entries, method="bulk", **AXES))
    r_hat = np.max(array_stats.rhat(entries, method="rank", **AXES))
    mean, error = entries.mean((0, 1)), array_stats.mcse(entries, method="mean", **AXES)
    steps, drawing = float(statistics["n_steps"].mean()), draws["posterior"].attrs["seconds_draws"]
    line = name + (
        f"| {CHAINS} × {entries.shape[1]} | {steps:.0f} | {r_hat:.3f} | {effective:.0f} "
        f"| {effective / drawing:.3g} | {seconds:.0f} | {mean[0]:.4g} ± {error[0]:.2g} |"
    )
    return line, (mean, error)


def largest_difference(found: list) -> str:
    """Largest difference between entries of U_1 of any two rows, in their combined errors."""
    pairs = [(one, other) for i, one in enumerate(found) for other in found[:i]]
    apart = [np.max(np.abs(a - b) / np.hypot(e, f)) for (a, e), (b, f) in pairs]
    if not apart:
        return "fewer than two rows have draws: nothing can be compared"
    count = len(found[0][0])
    return f"largest difference of {count} entries of U₁, any two rows: {max(apart):.1f} errors"


def main() -> None:
    """Print the device, a row for each sampler, and how far their U_1 are apart."""
    parser = argparse.ArgumentParser(prog="python -m runs.benchmarks.gpu", description=__doc__)
    parser.add_argument("--small", action="store_true", help="a size for a processor")
    parser.add_argument("--minutes", type=float, default=9.0, help="of all rows together")
    arguments = parser.parse_args()
    size = SMALL if arguments.small else Size()
    recipe = sampler.Recipe(
        task=random_task(size),
        network={"widths": size.width},
        posterior={"temperature": 0.25},
    )
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; {size}\n")
    print(
        "| space | algorithm | precision | draws | leapfrog steps a draw "
        "| R-hat, worst entry of U₁ | effective draws | effective draws a second of sampling "
        "| seconds in all | U₁[0,0] |"
    )
    print("|" + "---|" * 10, flush=True)
    found = []
    for space, algorithm, precision in ROWS:
        minutes = arguments.minutes / len(ROWS)
        line, moments = row(recipe, size, space, algorithm, precision, minutes)
        print(line, flush=True)
        found += [] if moments is None else [moments]
    print(f"\n{largest_difference(found)}")


if __name__ == "__main__":
    main()
