"""`python -m tests.benchmarks.gpu`: what an accelerator gives, and whether its numbers are right.

Parts of at most eight minutes each, the most important first. A row is written as soon as it is
measured, into `gpu_rows.json` and the table of all rows, `GPU.md`; what is there is not measured
again, so a part that ran out of time goes on where it ended. Needs no network. Runs on a processor
too, with `--small`.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

# Other processes use the same card meanwhile.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax

from tests import ROOT
from tests.benchmarks import gpu_measured as measured

HERE = ROOT / "tests" / "benchmarks"
SPACES = tuple(measured.WARMUP)


@dataclass(frozen=True)
class Row:
    """A row of a table: the name by which it is kept, and how it is measured."""

    name: str
    measure: Callable[[], str]


@dataclass(frozen=True)
class Table:
    """Rows under one head; `note` says how to read them."""

    note: str
    head: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Sizes:
    """Sizes of what is measured.

    cases       (paths, examples)
    seconds     of sampling or training for each row
    recipe      of the whole run, and what it changes
    characters  of the training
    """

    width: int = 100
    cases: tuple[tuple[int, int], ...] = ((4, 100), (4, 600), (16, 100), (16, 600))
    chains: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    batches: tuple[int, ...] = (16, 64, 256, 1024, 4096)
    seconds: float = 4.0
    further: tuple[str, ...] = ()
    figure: tuple[int, int, int] = (16, 600, 512)
    figure_chains: tuple[int, ...] = (4, 64)
    figure_seconds: float = 60.0
    characters: int = 400
    training: tuple[str, ...] = ()
    training_seconds: float = 120.0


SMALL = Sizes(
    width=10,
    cases=((4, 100),),
    chains=(1, 2),
    batches=(16,),
    seconds=0.5,
    further=("--set", "sampler.draws=400", "--set", "sampler.warmup=40"),
    figure=(4, 100, 12),
    figure_chains=(2,),
    figure_seconds=0.5,
    characters=12,
    training=("training.widths=16", "training.key_size=4", "training.batch=4",
              "training.validation_every=20", "training.evaluation_examples=20"),
    training_seconds=1.0,
)  # fmt: skip


def correctness(sizes: Sizes, folder: Path) -> Iterator[Table]:
    """Densities, gradients and a whole run, against a processor."""
    densities = [
        Row(f"energy {paths} {examples}",
            partial(measured.energy_row, paths, examples, sizes.width))
        for paths, examples in sizes.cases
    ]  # fmt: skip
    densities += [
        Row(f"{space} {precision}",
            partial(measured.density_row, space, precision, *sizes.cases[0], sizes.width))
        for precision in ("float64", "float32")
        for space in SPACES
    ]  # fmt: skip
    yield Table(
        "Largest relative differences to a processor at 8 points.",
        "| density | precision | problem | value | gradient | verdict |",
        tuple(densities),
    )
    yield Table(
        "The same recipe here and on a processor: largest difference of means in its Monte Carlo "
        "standard error.",
        "| recipe | elements | difference |",
        (Row("quickstart", partial(measured.run_row, "quickstart", folder, sizes.further)),),
    )


def times(sizes: Sizes, folder: Path) -> Iterator[Table]:
    """Rates of matrices, importance draws and chains."""
    yield Table(
        "At most, GFLOP/s.",
        "| matrix | products | batched Cholesky |",
        tuple(
            Row(f"rate {examples}", partial(measured.rate_row, examples))
            for examples in sorted({examples for _, examples in sizes.cases})
        ),
    )
    yield Table(
        "Importance draws; GFLOP/s of their Cholesky factors alone.",
        "| problem | batch | densities per second | GFLOP/s | efficiency | "
        "effective draws per second |",
        tuple(
            Row(f"importance {paths} {examples} {batch}",
                partial(measured.importance_row, paths, examples, sizes.width, batch))
            for paths, examples in sizes.cases
            for batch in sizes.batches
        ),
    )  # fmt: skip
    yield chains_table(sizes, sizes.cases, sizes.chains, sizes.seconds)


def figure(sizes: Sizes, folder: Path) -> Iterator[Table]:
    """Chains at the size of figure 3 of arXiv 2405.15926."""
    paths, examples, width = sizes.figure
    wide = replace(sizes, width=width)
    yield chains_table(wide, ((paths, examples),), sizes.figure_chains, sizes.figure_seconds)


def chains_table(
    sizes: Sizes, cases: tuple[tuple[int, int], ...], chains: tuple[int, ...], seconds: float
) -> Table:
    return Table(
        "NUTS; GFLOP/s of Cholesky factors, inverses and their products alone.",
        "| space | problem | chains | leapfrog steps per draw | gradients per second | GFLOP/s | "
        "effective draws per second |",
        tuple(
            Row(f"chains {space} {paths} {examples} {sizes.width} {count}",
                partial(measured.chain_row, space, paths, examples, count, sizes.width, seconds))
            for space in SPACES
            for paths, examples in cases
            for count in chains
        ),
    )  # fmt: skip


def training(sizes: Sizes, folder: Path) -> Iterator[Table]:
    """Steps of the training of the published size, on made-up drawings."""
    row = partial(
        measured.training_row, sizes.characters, sizes.training_seconds, sizes.training, folder
    )
    yield Table(
        "`runs/one_shot_train_paper.toml`.",
        "| network | steps measured | ms per step | hours of the whole training |",
        (Row("training", row),),
    )


PARTS = {"correctness": correctness, "times": times, "figure": figure, "training": training}


def main() -> None:
    """Measure the parts that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of GPU.md and its rows")
    parser.add_argument("--minutes", type=float, default=8.0, help="of each part, before a new row")
    parser.add_argument("--small", action="store_true", help="sizes for a processor")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.parts if name not in PARTS]
    if unknown:
        parser.error(f"{unknown[0]!r} is no part: use {', '.join(PARTS)}")
    jax.config.update("jax_enable_x64", True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = Kept.read(arguments.out)
    sizes = SMALL if arguments.small else Sizes()
    for name in arguments.parts or PARTS:
        ends = time.monotonic() + 60.0 * arguments.minutes
        for table in PARTS[name](sizes, arguments.out):
            kept.measure(name, table, ends)


class Kept:
    """Rows of one device, by part and table, in a file and in a text."""

    def __init__(self, folder: Path, rows: dict) -> None:
        self.folder, self.rows = folder, rows
        self.device = f"{jax.devices()[0].device_kind}, jax {version('jax')}"

    @classmethod
    def read(cls, folder: Path) -> "Kept":
        """What was measured before; SystemExit where it was on another device."""
        file = folder / "gpu_rows.json"
        found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
        kept = cls(folder, found["parts"] if found else {})
        if found and found["device"] != kept.device:
            raise SystemExit(
                f"{file} is of {found['device']}, and this is {kept.device}: name another --out"
            )
        return kept

    def measure(self, part: str, table: Table, ends: float) -> None:
        """Measure the rows that are missing, until the time is over."""
        there = self.rows.setdefault(part, {}).setdefault(
            table.head, {"note": table.note, "rows": {}}
        )
        print(f"\n{part}: {table.note}\n\n{table.head}", flush=True)
        for row in table.rows:
            if row.name not in there["rows"]:
                if time.monotonic() > ends:
                    print("the time of this part is over; run it again for the other rows")
                    break
                there["rows"][row.name] = row.measure()
                self.write()
            print(there["rows"][row.name], flush=True)

    def write(self) -> None:
        """Both files."""
        text = json.dumps({"device": self.device, "parts": self.rows}, indent=1, ensure_ascii=False)
        (self.folder / "gpu_rows.json").write_text(text + "\n", encoding="utf-8")
        lines = [f"# Measured on {self.device}", "", "Written by `make gpu`."]
        for part, tables in self.rows.items():
            lines += ["", f"## {part.capitalize()}"]
            for head, table in tables.items():
                rule = "|" + "---|" * (head.count("|") - 1)
                lines += ["", table["note"], "", head, rule, *table["rows"].values()]
        (self.folder / "GPU.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
