"""The page of a run or of a sweep, from stored results."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from sampler import __version__
from sampler.analysis.results import RunResults, open_run
from sampler.analysis.sweeps import SWEEP_FILE, SweepResults
from sampler.errors import ExitCode, InputError
from sampler.presentation.figures.draw import FIGURES, draw_figures
from sampler.presentation.report import provenance, sweep, tables
from sampler.presentation.report.elements import Picture, Table, templates
from sampler.presentation.report.verdict import READING, trust_verdict
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.storage.manifest import Manifest, read_manifest
from sampler.storage.run_directory import RECIPE_FILE, write_atomically
from sampler.storage.status import state_of

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


def write_report(directory: Path, ended: ExitCode | None = None) -> list[Path]:
    """Draw the figures and write the page; return what was written, the page last.

    ended: the exit code of the command that is about to end here and has not recorded it yet.
    Raises InputError if nothing is stored that could be told.
    """
    recipe, manifest = load_recipe(directory / RECIPE_FILE), read_manifest(directory)
    drawn, about = (_sweep_page if recipe.sweep else _run_page)(directory, recipe)
    style = files("sampler.presentation.report").joinpath("style.css").read_text(encoding="utf-8")
    template = templates().get_template("sweep.html" if recipe.sweep else "run.html")
    text = template.render(
        **about | {"titles": about["titles"] | LAST_SECTIONS},
        recipe=recipe,
        notice=_state(directory, manifest, ended),
        style=Markup(style),
        recipe_text=(directory / RECIPE_FILE).read_text(encoding="utf-8"),
        provenance=provenance.provenance_tables(manifest),
        directory=directory,
        files=provenance.files_table(directory),
        opening=provenance.opening_lines(directory),
        software=provenance.SOFTWARE,
        papers=provenance.PAPERS,
        version=__version__,
    )
    file = directory / REPORT_FILE
    write_atomically(file, lambda path: path.write_text(text, encoding="utf-8"))
    return [*drawn, file]


def _run_page(directory: Path, recipe: Recipe) -> tuple[list[Path], dict[str, Any]]:
    """The figures that were drawn, and what the template of a run needs."""
    run = open_run(directory)
    drawn = draw_figures(directory, run)
    diagnostics, found = run.diagnostics, run.differences
    quality = run.compared("predictive_quality")
    titles = {"verdict": "Verdict", "comparison": "Theory against exact posterior"}
    sampled = diagnostics is not None or run.order_parameter_draws is not None
    return drawn, {
        "subtitle": _subtitle(recipe),
        "titles": titles | {"diagnostics": "Diagnostics of the samples" if sampled else ""},
        "theory_verdict": run.verdict,
        "trust_verdict": trust_verdict(diagnostics),
        "sentence": tables.accuracy_sentence(run),
        "own_verdicts": [] if run.comparison is None else list(run.comparison.own.values()),
        "main_table": tables.summary_table(run),
        "reading": READING if found else None,
        "explanation": _explanation(run),
        "shown": _pictures(drawn),
        "comparison_tables": _there(
            tables.accuracy_table(run),
            tables.differences_table(found),
            tables.order_parameter_table(run),
            tables.further_table(run),
            tables.head_score_table(run),
            tables.quality_table(quality),
            tables.evidence_table(run),
            tables.sampled_settings_table(run),
        ),
        "reliability_tables": tables.reliability_tables(quality),
        **_diagnostics(run),
    }


def _explanation(run: RunResults) -> str | None:
    """How saddle point and next order were found; None where the theory does not say it."""
    keys = ("explanation", "next_order_explanation")
    said = [] if run.theory is None else [run.theory.attrs.get(key) for key in keys]
    return "; ".join(text for text in said if text) or None


def _diagnostics(run: RunResults) -> dict[str, Any]:
    """Remarks and tables about the draws."""
    found = run.diagnostics
    if found is None:
        return {"remarks": [], "diagnostics_tables": [], "cost_tables": []}
    return {
        "remarks": [f"Failed: {reason}." for reason in found.reasons]
        + [f"Note: {remark}." for remark in found.remarks],
        "diagnostics_tables": _there(tables.diagnostics_table(found)),
        "cost_tables": _there(tables.sampler_table(found, run.comparison.cost)),
    }


def _sweep_page(directory: Path, recipe: Recipe) -> tuple[list[Path], dict[str, Any]]:
    """The figures that were drawn, and what the template of a sweep needs."""
    points = sweep.reported_points(directory, recipe)
    if all(point.run is None for point in points):
        remedy = "no point of this sweep has results yet; first use `run` or `sweep`"
        raise InputError("DIR", directory, remedy)
    shown = SweepResults(directory)
    drawn = draw_figures(directory, shown) if (directory / SWEEP_FILE).is_file() else []
    shown_figures, chosen = _pictures(drawn), _there(sweep.selection_table(shown.selection))
    more = shown_figures["comparison"] or chosen
    return drawn, {
        "subtitle": f"{_subtitle(recipe)}; {len(points)} points over {', '.join(recipe.sweep)}",
        "titles": {"verdict": "Verdict", "comparison": "Along the sweep" if more else ""},
        "trend": sweep.sweep_trend(points, shown.finite_size),
        "trust": sweep.sweep_trust(points),
        "points": sweep.points_table(points),
        "chosen": chosen,
        "reading": READING if any(point.found for point in points) else None,
        "shown": shown_figures,
    }


def _there(*found: Table | None) -> list[Table]:
    """Those that have something to show."""
    return [table for table in found if table is not None]


def _pictures(drawn: list[Path]) -> dict[str, Any]:
    """The figures that were drawn, by the section they stand in, in the order of their table.

    The first one of the comparison is "main", on the first screen.
    """
    found = {path.stem: path for path in drawn if path.suffix == ".png"}
    shown: dict[str, list[Picture]] = {"comparison": [], "diagnostics": []}
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
        said = state_of(directory).replace("`", "")
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
