"""`python -m tests.benchmarks.gpu`: what an accelerator gives, and whether its numbers are right.

Parts, the most important first; each row is printed as soon as it is measured. Needs no network.
Runs on a processor too, with `--small`.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

# Other processes use the same card meanwhile.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax

from tests.benchmarks import gpu_measured as measured

SPACES = tuple(measured.WARMUP)
# What measures a row of a table.
Row = Callable[[], str]


@dataclass(frozen=True)
class Table:
    """Rows under one head; `note` says how to read them."""

    note: str
    head: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Sizes:
    """Sizes of what is measured.

    cases    (paths, examples)
    seconds  of sampling for each row
    recipe   settings of the whole run
    figure   (paths, examples, width) of figure 3 of arXiv 2405.15926
    """

    width: int = 100
    cases: tuple[tuple[int, int], ...] = ((4, 100), (4, 600), (16, 100), (16, 600))
    chains: tuple[int, ...] = (1, 16, 256)
    seconds: float = 4.0
    recipe: tuple[str, ...] = ()
    figure: tuple[int, int, int] = (16, 600, 512)
    figure_chains: tuple[int, ...] = (4, 64)
    figure_seconds: float = 60.0


SMALL = Sizes(
    width=10,
    cases=((4, 100),),
    chains=(1, 2),
    seconds=0.5,
    recipe=("--set", "sampler.draws=400", "--set", "sampler.warmup=40"),
    figure=(4, 100, 12),
    figure_chains=(2,),
    figure_seconds=0.5,
)


def correctness(sizes: Sizes, folder: Path) -> Iterator[Table]:
    """Densities, gradients and a whole run, against a processor."""
    densities = [
        partial(measured.energy_row, paths, examples, sizes.width)
        for paths, examples in sizes.cases
    ]
    densities += [
        partial(measured.density_row, space, precision, *sizes.cases[0], sizes.width)
        for precision in ("float64", "float32")
        for space in SPACES
    ]
    yield Table(
        "Largest relative differences to a processor at 8 points.",
        "| density | precision | problem | value | gradient | verdict |",
        tuple(densities),
    )
    yield Table(
        "The same recipe here and on a processor: largest difference of means in its Monte Carlo "
        "standard error.",
        "| recipe | elements | difference |",
        (partial(measured.run_row, "quickstart", folder, sizes.recipe),),
    )


def times(sizes: Sizes, folder: Path) -> Iterator[Table]:
    """Rates of matrices and chains."""
    yield Table(
        "At most, GFLOP/s.",
        "| matrix | products | batched Cholesky |",
        tuple(
            partial(measured.rate_row, examples)
            for examples in sorted({examples for _, examples in sizes.cases})
        ),
    )
    cases = [(paths, examples, sizes.width) for paths, examples in sizes.cases]
    yield chains_table(cases, sizes.chains, sizes.seconds)


def figure(sizes: Sizes, folder: Path) -> Iterator[Table]:
    """Chains at the size of figure 3."""
    yield chains_table([sizes.figure], sizes.figure_chains, sizes.figure_seconds)


def chains_table(
    cases: list[tuple[int, int, int]], chains: tuple[int, ...], seconds: float
) -> Table:
    """Rates of chains in both spaces; cases are (paths, examples, width)."""
    return Table(
        "NUTS; GFLOP/s of Cholesky factors, inverses and their products alone.",
        "| space | problem | chains | leapfrog steps per draw | gradients per second | GFLOP/s | "
        "effective draws per second |",
        tuple(
            partial(measured.chain_row, space, paths, examples, count, width, seconds)
            for space in SPACES
            for paths, examples, width in cases
            for count in chains
        ),
    )


PARTS = {"correctness": correctness, "times": times, "figure": figure}


def main() -> None:
    """Measure the parts that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--small", action="store_true", help="sizes for a processor")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: use {', '.join(PARTS)}")
    jax.config.update("jax_enable_x64", True)
    print(f"{jax.devices()[0].device_kind}, jax {version('jax')}", flush=True)
    sizes = SMALL if arguments.small else Sizes()
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.parts or PARTS:
            for table in PARTS[name](sizes, Path(folder)):
                rule = "|" + "---|" * (table.head.count("|") - 1)
                print(f"\n{name}: {table.note}\n\n{table.head}\n{rule}", flush=True)
                for row in table.rows:
                    print(row(), flush=True)


if __name__ == "__main__":
    main()
