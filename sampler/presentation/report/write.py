"""The page of a run or of a sweep, from its results."""

import base64
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sampler import __version__
from sampler.analysis.results import RunResults, open_run
from sampler.analysis.sweep_dataset import gathered
from sampler.analysis.sweep_verdict import sweep_trend, sweep_trust
from sampler.analysis.sweeps import SweepResults
from sampler.analysis.text import together
from sampler.analysis.verdict import trust_verdict
from sampler.errors import ExitCode, InputError
from sampler.mcmc.diagnostics import Diagnostics
from sampler.presentation import draws_tables, tables
from sampler.presentation.attention_tables import attention_tables
from sampler.presentation.figures.draw import FIGURES, draw_figures
from sampler.presentation.status import state_text
from sampler.presentation.style import FigureEntry
from sampler.presentation.sweep_tables import points_table, selection_table
from sampler.presentation.table import Column, Link, Table
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.storage.manifest import Manifest, read_manifest
from sampler.storage.run_directory import RECIPE_FILE, write_atomically
from sampler.storage.status import state_of

FILES = {
    "recipe.toml": "the recipe, every default written out",
    "manifest.json": "provenance, machine-readable",
    "theory.nc": "the theory: order parameters, predictor, infinite width",
    "draws.nc": "the draws, in the layout of ArviZ",
    "task.nc": "names of the heads, and their attention to an example",
    "teacher.nc": "the network that made the labels",
    "comparison.nc": "theories against samples, element by element and as a whole",
    "comparison.json": "its summary, diagnostics and cost",
    "sweep.csv": "the sweep, a row per point",
    "sweep.nc": "the sweep, a dimension per swept key",
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
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(inner)}" for key, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def files_table(directory: Path) -> Table:
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
        name, what = "sweep.nc", 'print(sweep["value"].sel(quantity="accuracy"))'
        return f'import xarray; sweep = xarray.open_dataset("{name}")\n{what}'
    if (directory / "draws.nc").is_file():
        what = 'print(draws["posterior"]["order_parameter"].mean(("chain", "draw")))'
        return f'import xarray; draws = xarray.open_datatree("draws.nc")\n{what}'
    what = 'print(theory["order_parameter"])'
    return f'import xarray; theory = xarray.open_dataset("theory.nc")\n{what}'


SOFTWARE = f"The attention-posterior contributors: attention-posterior, version {__version__}."


# Pixels on the page for a pixel of a figure: text as large as the page's, and sharp.
SHOWN = 0.75
REPORT_FILE = "report.html"
# Titles of the sections that every page ends with.
LAST_SECTIONS = {
    "recipe": "Recipe",
    "provenance": "Provenance",
    "data": "Data",
    "cite": "How to cite",
}
ENDINGS = {
    ExitCode.DIAGNOSTICS_FAILED: "It ended with exit code 3: the diagnostics of the samples fail.",
    ExitCode.NOT_CONVERGED: "It ended with exit code 4: the saddle point did not converge.",
}


@dataclass(frozen=True)
class Picture:
    """A figure inside the page, with its words."""

    png: Path
    entry: FigureEntry

    @property
    def name(self) -> str:
        """The name of its file, and of its place on the page."""
        return self.png.stem

    @property
    def source(self) -> str:
        """The picture itself, as text."""
        return f"data:image/png;base64,{base64.b64encode(self.png.read_bytes()).decode('ascii')}"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels of the page."""
        with self.png.open("rb") as file:
            width, height = struct.unpack(">II", file.read(24)[16:])  # the header of a PNG
        return round(SHOWN * width), round(SHOWN * height)


@cache
def templates() -> Environment:
    """The templates of the pages; every text is escaped."""
    loader = PackageLoader("sampler.presentation.report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters["together"] = together
    return environment


def write_report(
    directory: Path,
    ended: ExitCode | None = None,
    results: RunResults | SweepResults | None = None,
    figures: bool = True,
    failed: dict[str, Exception] | None = None,
) -> list[Path]:
    """Draw the figures and write the page; return what was written, the page last.

    At the end of a command the page is there before the figures are, which take longest.

    ended    the exit code of the command that is about to end here and has not recorded it yet
    results  those that are in memory; what is not is read from the directory
    figures  whether they are drawn; without them the page says how they are
    failed   takes, by name, what single figures fail with; without it the first error is raised

    Raises InputError if nothing is known that could be told.
    """
    recipe, manifest = load_recipe(directory / RECIPE_FILE), read_manifest(directory)
    if recipe.sweep:
        results = results or gathered(directory, recipe)
        about = _sweep_page(results, recipe)
    else:
        results = results or open_run(directory)
        about = _run_page(results)
    style = files("sampler.presentation.report").joinpath("style.css").read_text(encoding="utf-8")
    template = templates().get_template("sweep.html" if recipe.sweep else "run.html")
    page = partial(
        template.render,
        **about,
        recipe=recipe,
        notice=_state(directory, manifest, ended),
        concerns=manifest.concerns,
        style=Markup(style),
        recipe_text=(directory / RECIPE_FILE).read_text(encoding="utf-8"),
        provenance=provenance_tables(manifest),
        directory=directory,
        files=files_table(directory),
        opening=opening_lines(directory),
        software=SOFTWARE,
        version=__version__,
    )
    file = directory / REPORT_FILE

    def write(drawn: list[Path] | None) -> None:
        shown = _pictures(drawn or [])
        titles = about["titles"] | LAST_SECTIONS
        if recipe.sweep and not (shown["comparison"] or about["chosen"]):
            titles["comparison"] = ""
        text = page(titles=titles, shown=shown, undrawn=drawn is None)
        write_atomically(file, lambda path: path.write_text(text, encoding="utf-8"))

    if ended is not None or not figures:
        write(None)
    if not figures:
        return [file]
    drawn = draw_figures(directory, results, failed=failed)
    write(drawn)
    return [*drawn, file]


def _run_page(run: RunResults) -> dict[str, Any]:
    diagnostics, comparison = run.diagnostics, run.comparison
    titles = {"verdict": "Verdict", "comparison": "Theory against exact posterior"}
    titles["attention"] = "" if run.attention is None else "Attention found"
    sampled = diagnostics is not None or run.order_parameter_draws is not None
    keys = ("explanation", "next_order_explanation")
    said = [] if run.theory is None else [run.theory.attrs.get(key) for key in keys]
    return {
        "subtitle": _subtitle(run.recipe),
        "titles": titles | {"diagnostics": "Diagnostics of the samples" if sampled else ""},
        "theory_verdict": run.verdict,
        "trust_verdict": trust_verdict(diagnostics),
        "own_verdicts": [] if comparison is None else list(comparison.user_verdicts.values()),
        "explanation": "; ".join(text for text in said if text) or None,
        "main_tables": tables.tables_of(run)[:2],
        "comparison_tables": tables.tables_of(run)[2:],
        "attention_tables": attention_tables(run.attention),
        "remarks": _remarks(diagnostics),
        "diagnostics_tables": []
        if diagnostics is None
        else [draws_tables.diagnostics_table(diagnostics)],
        "cost_tables": []
        if comparison is None
        else [draws_tables.sampler_table(diagnostics, comparison.cost)],
    }


def _remarks(found: Diagnostics | None) -> list[str]:
    """Every reason why the draws fail, and what else was noted of them."""
    if found is None:
        return []
    failed = [f"Failed: {reason}." for reason in found.reasons]
    return failed + [f"Note: {remark}." for remark in found.remarks]


def _sweep_page(shown: SweepResults, recipe: Recipe) -> dict[str, Any]:
    points = shown.points
    if not any(point.stored for point in points):
        remedy = "no point of this sweep has results yet; first use `run` or `sweep`"
        raise InputError("DIR", shown.directory, remedy)
    return {
        "subtitle": f"{_subtitle(recipe)}; {len(points)} points over {', '.join(recipe.sweep)}",
        "titles": {"verdict": "Verdict", "comparison": "Along the sweep"},
        "trend": sweep_trend(points, shown.finite_size),
        "trust": sweep_trust(points),
        "points": points_table(points),
        "chosen": selection_table(shown.selection),
        "reading": tables.READING if any(point.trusted is not None for point in points) else None,
    }


def _pictures(drawn: list[Path]) -> dict[str, Any]:
    """The figures that were drawn, by the section they stand in, in the order of their table.

    The first one of the comparison is "main", on the first screen.
    """
    found = {path.stem: path for path in drawn if path.suffix == ".png"}
    shown: dict[str, list[Picture]] = {"comparison": [], "attention": [], "diagnostics": []}
    for name, entry in FIGURES.items():
        if name in found:
            shown[entry.section].append(Picture(found[name], entry))
    first, *others = shown["comparison"] or [None]
    return {**shown, "main": first, "comparison": others}


def _state(directory: Path, manifest: Manifest, ended: ExitCode | None) -> str | None:
    """What a reader has to know before anything else; None if all went well."""
    command = manifest.command or "run"
    code = manifest.finished.get(command) if ended is None else int(ended)
    if code is None:
        said = state_text(state_of(directory)).replace("`", "")
        return f"Not finished: {said}." if manifest.command else None
    unfinished = f"It ended with exit code {code}: not everything came to its end."
    return ENDINGS.get(ExitCode(code), unfinished) if code else None


def _subtitle(recipe: Recipe) -> str:
    """Task, width, temperature and space in a line."""
    parts = [recipe.task.kind.replace("_", " ")]
    if "network.widths" not in recipe.sweep:
        parts.append(f"width N = {recipe.network.widths}")
    if "posterior.temperature" not in recipe.sweep:
        sampled = " (prior median)" if recipe.posterior.temperature_spread else ""
        parts.append(f"temperature 𝒯 = {recipe.posterior.temperature:g}{sampled}")
    return ", ".join(parts)
