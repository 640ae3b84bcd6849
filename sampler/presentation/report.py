"""The page of a run or of a sweep: one file without scripts, from stored results."""

import base64
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sampler import __version__
from sampler.analysis.results import RunResults, open_run
from sampler.analysis.sweep_dataset import gathered
from sampler.analysis.sweep_results import SweepResults, sweep_trend, sweep_trust
from sampler.analysis.text import Number
from sampler.errors import ENDINGS, ExitCode, InputError
from sampler.presentation.figures.catalogue import FIGURES, draw_figures
from sampler.presentation.samples_tables import (
    diagnostics_table,
    heads_table,
    matched_paths_table,
    sampler_table,
)
from sampler.presentation.several_runs import points_table, selection_table
from sampler.presentation.status_text import state_text
from sampler.presentation.style import FigureEntry
from sampler.presentation.table import Column, Link, Table
from sampler.presentation.templates import templates
from sampler.presentation.views import tables_of
from sampler.settings.recipe import Recipe
from sampler.storage.directory import RECIPE_FILE
from sampler.storage.files import write_whole
from sampler.storage.manifest import Manifest, read_manifest
from sampler.storage.status import state_of

REPORT_FILE = "report.html"
# Titles of the sections that every page ends with.
LAST_SECTIONS = {
    "recipe": "Recipe",
    "provenance": "Provenance",
    "data": "Data",
    "cite": "How to cite",
}
FILES = {
    "recipe.toml": "the recipe, every default written out",
    "manifest.json": "provenance, machine-readable",
    "theory.nc": "the theory: order parameters, predictor, infinite width",
    "draws.nc": "the draws, in the layout of ArviZ",
    "teacher.nc": "the network that made the labels",
    "comparison.nc": "theories against samples, element by element and as a whole",
    "comparison.json": "its summary, diagnostics and cost",
    "sweep.csv": "the sweep, a row per point",
    "sweep.nc": "the sweep, a dimension per swept key",
    "selection.json": "the temperatures chosen on the validation split",
    "pruning.json": "heads removed, and the cost",
    "run.log": "what was printed",
}
PROVENANCE = ("begun", "command", "recipe_hash", "seeds")
COMPUTED = (
    "ended", "package_version", "git_commit", "python", "platform", "devices", "flags"
)  # fmt: skip
SIZE = {"unit": " MiB", "scale": 2.0**-20}
# Pixels on the page for a pixel of a figure: text as large as the page's, and sharp.
SHOWN = 0.75


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
        """The picture as text."""
        return f"data:image/png;base64,{base64.b64encode(self.png.read_bytes()).decode('ascii')}"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels of the page."""
        with self.png.open("rb") as file:
            width, height = struct.unpack(">II", file.read(24)[16:])  # the header of a PNG
        return round(SHOWN * width), round(SHOWN * height)


def write_report(
    directory: Path,
    ended: ExitCode | None = None,
    results: RunResults | SweepResults | None = None,
    figures: bool = True,
    failed: dict[str, Exception] | None = None,
) -> list[Path]:
    """Draw the figures and write the page; return the files, the page last.

    At the end of a command the page is there before the figures are, which take longest.

    ended    the exit code of the command that is about to end here and has not recorded it yet
    results  those in memory; others are read from the directory
    figures  whether they are drawn; without them the page has the command to draw them
    failed   takes, by name, what single figures fail with; without it the first error is raised

    Raises InputError for a directory without results.
    """
    recipe = Recipe.load(directory / RECIPE_FILE)
    if results is None:
        results = gathered(directory, recipe) if recipe.sweep else open_run(directory)
    manifest = read_manifest(directory) if isinstance(results, SweepResults) else results.manifest
    contents = sweep_contents(results, recipe) if recipe.sweep else run_contents(results)
    page = partial(
        templates().get_template("sweep.html" if recipe.sweep else "run.html").render,
        **contents,
        recipe=recipe,
        notice=notice_text(directory, manifest, ended),
        concerns=manifest.concerns,
        recipe_text=(directory / RECIPE_FILE).read_text(encoding="utf-8"),
        provenance=provenance_tables(manifest),
        directory=directory,
        files=files_table(directory),
        version=__version__,
    )
    file = directory / REPORT_FILE

    def write(drawn: list[Path] | None) -> None:
        shown = pictures(drawn or [])
        titles = contents["titles"] | LAST_SECTIONS
        if not (shown["comparison"] or any(contents["comparison_tables"])):
            titles["comparison"] = ""
        text = page(titles=titles, shown=shown, undrawn=drawn is None)
        write_whole(file, text)

    if ended is not None or not figures:
        write(None)
    if not figures:
        return [file]
    drawn = draw_figures(directory, results, failed=failed)
    write(drawn)
    return [*drawn, file]


# --- contents of pages of runs and of sweeps


def run_contents(run: RunResults) -> dict[str, Any]:
    """A run with its tables, by the names of its template."""
    tables, is_judged = tables_of(run), run.diagnostics is not None
    attributes = {} if run.theory is None else run.theory.attrs
    explanations = [attributes.get(key) for key in ("explanation", "next_order_explanation")]
    attention = [] if run.attention is None else [heads_table, matched_paths_table]
    return {
        "run": run,
        "subtitle": subtitle(run.recipe),
        "titles": {
            "verdict": "Verdict",
            "comparison": "Theory against exact posterior",
            "attention": "Learned attention" if attention else "",
            "diagnostics": (
                "Diagnostics of the samples"
                if is_judged or run.order_parameter_draws is not None
                else ""
            ),
        },
        "explanation": "; ".join(text for text in explanations if text),
        "main_tables": tables[:2],
        "comparison_tables": tables[2:],
        "attention_tables": [table(run.attention) for table in attention],
        "diagnostics_tables": [diagnostics_table(run.diagnostics)] if is_judged else [],
        "cost_tables": [sampler_table(run.diagnostics, run.comparison.cost)] if is_judged else [],
    }


def sweep_contents(sweep: SweepResults, recipe: Recipe) -> dict[str, Any]:
    """Verdicts and tables of a sweep, by the names of its template."""
    points = sweep.points
    if not any(point.stored for point in points):
        remedy = "no point of this sweep has results yet; first use `run` or `sweep`"
        raise InputError("DIR", sweep.directory, remedy)
    return {
        "subtitle": f"{subtitle(recipe)}; {len(points)} points over {', '.join(recipe.sweep)}",
        "titles": {"verdict": "Verdict", "comparison": "Along the sweep"},
        "trend": sweep_trend(points),
        "trust": sweep_trust(points),
        "points": points_table(points),
        "comparison_tables": [selection_table(sweep.selection)],
    }


def pictures(drawn: list[Path]) -> dict[str, Any]:
    """The figures that were drawn, by their section, in the order of their table.

    The first one of the comparison is "main", below the verdict.
    """
    files = {path.stem: path for path in drawn if path.suffix == ".png"}
    shown: dict[str, list[Picture]] = {"comparison": [], "attention": [], "diagnostics": []}
    for name, entry in FIGURES.items():
        if name in files:
            shown[entry.section].append(Picture(files[name], entry))
    first, *others = shown["comparison"] or [None]
    return {**shown, "main": first, "comparison": others}


def notice_text(directory: Path, manifest: Manifest, ended: ExitCode | None) -> str:
    """Warnings at the top of a report; empty if all went well."""
    code = (manifest.outcome and manifest.outcome.code) if ended is None else int(ended)
    if code is None:
        return f"Not finished: {state_text(state_of(directory))}." if manifest.command else ""
    ending = ENDINGS.get(ExitCode(code), "not everything came to its end")
    return f"It ended with exit code {code}: {ending}." if code else ""


def subtitle(recipe: Recipe) -> str:
    """Task, width and temperature in a line."""
    parts = [recipe.task.kind.replace("_", " ")]
    if "network.widths" not in recipe.sweep:
        parts.append(f"width N = {recipe.network.widths}")
    if "posterior.temperature" not in recipe.sweep:
        sampled = " (prior median)" if recipe.posterior.given_temperature is None else ""
        parts.append(f"temperature 𝒯 = {recipe.posterior.temperature:g}{sampled}")
    return ", ".join(parts)


# --- provenance and files


def provenance_tables(manifest: Manifest) -> list[Table]:
    """Settings, and of every stage program, machine and time, as far as the manifest has them."""
    settings = {key: getattr(manifest, key) for key in PROVENANCE}
    if manifest.choice:
        settings["space and algorithm"] = "{space}, {algorithm}: {reason}".format(**manifest.choice)
    entries = [entry.model_dump() for entry in manifest.stages.values()]
    of_stages = {key: [listed(entry[key]) for entry in entries] for key in COMPUTED} | {
        "seconds": [entry["seconds"] for entry in entries],
        "peak memory": [Number(entry["peak_memory_bytes"], **SIZE) for entry in entries],
    }
    for package in dict.fromkeys(name for entry in entries for name in entry["versions"]):
        of_stages[package] = [entry["versions"].get(package, "") for entry in entries]
    rows = [[key.replace("_", " "), listed(value)] for key, value in settings.items() if value]
    return [
        Table("Where the results came from", ("what", "value"), rows),
        Table(
            "Stages",
            ("", *manifest.stages),
            [[key.replace("_", " "), *cells] for key, cells in of_stages.items()],
        ),
    ]


def listed(value: object) -> str:
    """A value of the manifest as text, its entries separated by commas; empty for none."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {listed(inner)}" for key, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")


def files_table(directory: Path) -> Table:
    """The files of the directory, with links."""
    rows = [
        [Link(name, name), what, (directory / name).stat().st_size]
        for name, what in FILES.items()
        if (directory / name).is_file()
    ]
    columns = ("file", "holds", Column("size", **SIZE, digits=2))
    return Table("Files next to this page", columns, rows)
