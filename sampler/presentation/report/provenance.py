"""Provenance of results, and what to cite."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sampler import __version__
from sampler.presentation.table import Column, Link, Table
from sampler.storage.manifest import Manifest

FILES = {
    "recipe.toml": "the recipe, every default written out",
    "manifest.json": "provenance, machine-readable",
    "theory.nc": "the theory: order parameters, predictor, infinite width",
    "draws.nc": "the draws, in the layout of ArviZ",
    "task.nc": "two examples of the task, and the attention to one",
    "own_theories.nc": "what theories of your own predict",
    "comparison.json": "theory against samples, diagnostics, cost",
    "sweep.csv": "the sweep, a row per point",
    "sweep.nc": "the sweep, a dimension per swept key",
    "finite_size.json": "U₁ by width, with power laws",
    "selection.json": "the points chosen on the validation split",
    "pruning.json": "heads removed, and what it costs",
    "run.log": "what was printed",
}
MEBIBYTE = 2**20
MEMORY = Column("peak memory", unit=" MiB", scale=1 / MEBIBYTE)


WHERE_FROM = {
    "begun": "begun",
    "ended": "ended",
    "command": "command",
    "recipe_hash": "hash of the recipe",
    "package_version": "version of the program",
    "git_commit": "commit",
    "python": "Python",
    "platform": "platform",
    "devices": "devices",
    "precision": "precision",
    "seeds": "seeds",
    "flags": "flags",
}


def provenance_tables(manifest: Manifest) -> list[Table]:
    """Program, machine, seeds and timings, as far as the manifest has them."""
    given = {label: getattr(manifest, key) for key, label in WHERE_FROM.items()}
    rows = [[label, _text(value)] for label, value in given.items() if value]
    if manifest.choice:
        rows.append(
            ["space and algorithm", "{space}, {algorithm}: {reason}".format(**manifest.choice)]
        )
    versions = [[name, found or "not installed"] for name, found in manifest.versions.items()]
    peaks = manifest.peak_memory_bytes
    stages = [[stage, seconds, peaks.get(stage)] for stage, seconds in manifest.seconds.items()]
    return [
        Table("Where the results came from", ("what", "value"), rows),
        Table("Versions", ("package", "version"), versions),
        Table("Time and memory", ("stage", "seconds", MEMORY), stages),
    ]


def _text(value: object) -> str:
    """Nested settings on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(inner)}" for key, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def files_table(directory: Path) -> Table:
    """Return the table of the files in the directory."""
    size = Column("size", unit=" MiB", scale=1 / MEBIBYTE, digits=2)
    rows = [
        [Link(name, name), what, (directory / name).stat().st_size]
        for name, what in FILES.items()
        if (directory / name).is_file()
    ]
    return Table("Files beside this page", ("file", "holds", size), rows)


def opening_lines(directory: Path) -> str:
    """Two lines that open the most telling file there is."""
    if (directory / "sweep.nc").is_file():
        name, what = "sweep.nc", 'print(sweep["accuracy_theory"])'
        return f'import xarray; sweep = xarray.open_dataset("{name}")\n{what}'
    if (directory / "draws.nc").is_file():
        what = 'print(draws["posterior"]["order_parameter"].mean(("chain", "draw")))'
        return f'import xarray; draws = xarray.open_datatree("draws.nc")\n{what}'
    what = 'print(theory["order_parameter"])'
    return f'import xarray; theory = xarray.open_dataset("theory.nc")\n{what}'


@dataclass(frozen=True)
class Paper:
    """A paper as CITATION.cff lists it, and what this software has from it."""

    authors: str
    title: str
    where: str
    year: int
    arxiv: str
    why: str


SOFTWARE = f"The attention-posterior contributors: attention-posterior, version {__version__}."
PAPERS = (
    Paper(
        "Lorenzo Tiberi, Francesca Mignacco, Kazuki Irie and Haim Sompolinsky",
        "Dissecting the Interplay of Attention Paths in a Statistical Mechanics Theory of "
        "Transformers",
        "Advances in Neural Information Processing Systems",
        2024,
        "2405.15926",
        "the theory",
    ),
    Paper(
        "Tan M. Nguyen, Tam Nguyen, Nhat Ho, Andrea L. Bertozzi, Richard G. Baraniuk and "
        "Stanley J. Osher",
        "A Primal-Dual Framework for Transformers and Neural Networks",
        "International Conference on Learning Representations",
        2023,
        "2406.13781",
        "attention as support-vector regression, and attention variants that follow",
    ),
)
