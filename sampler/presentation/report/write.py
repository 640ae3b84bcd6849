"""`report.html` of a directory, from whatever is stored there: run, sweep, theory or samples."""

import json
from pathlib import Path

from sampler.errors import ExitCode, InputError
from sampler.presentation.figures import draw_run_figures, draw_sweep_figures
from sampler.presentation.report.accuracy_table import accuracy_sentence, accuracy_table
from sampler.presentation.report.captions import DIAGNOSTICS, RESULTS, SWEEP, Caption
from sampler.presentation.report.citation import citation
from sampler.presentation.report.comparison_tables import (
    differences_table,
    head_score_table,
    order_parameter_table,
)
from sampler.presentation.report.diagnostics_table import diagnostics_table, sampler_table
from sampler.presentation.report.differences import differences
from sampler.presentation.report.elements import Html, figure, listing, paragraphs
from sampler.presentation.report.evidence_table import evidence_table
from sampler.presentation.report.hyper_parameter_table import hyper_parameter_table
from sampler.presentation.report.page import figures_and_tables, notice, page, verdict_box
from sampler.presentation.report.provenance import data_section, provenance_tables, recipe_text
from sampler.presentation.report.quality_tables import quality_tables
from sampler.presentation.report.sweep_points import reported_points
from sampler.presentation.report.sweep_verdict import points_table, sweep_trend, sweep_trust
from sampler.presentation.report.verdict import READING, theory_verdict, trust_verdict
from sampler.presentation.stored_run import StoredRun, read_stored_run
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.storage.json_file import write_atomically
from sampler.storage.manifest import read_manifest
from sampler.storage.run_directory import FIGURE_FOLDER, RECIPE_FILE
from sampler.storage.status import state_of

REPORT_FILE = "report.html"
# Figures that another command draws, and the table it leaves beside them.
PRUNING = {"head_scores": "pruning.json", "pruning": "pruning.json"}
ENDINGS = {
    ExitCode.DIAGNOSTICS_FAILED: "It ended with exit code 3: the diagnostics of the samples fail.",
    ExitCode.NOT_CONVERGED: "It ended with exit code 4: the saddle point did not converge.",
}


def write_report(directory: Path, ended: ExitCode | None = None) -> list[Path]:
    """Draw the figures and write the page; return what was written, the page last.

    ended: the exit code of the command that is about to end here and has not recorded it yet.
    Raises InputError if nothing is stored that could be told.
    """
    recipe = load_recipe(directory / RECIPE_FILE)
    write = _sweep_page if recipe.sweep else _run_page
    drawn, text = write(directory, recipe, ended)
    file = directory / REPORT_FILE
    write_atomically(file, lambda path: path.write_text(text, encoding="utf-8"))
    return [*drawn, file]


def _run_page(directory: Path, recipe: Recipe, ended: ExitCode | None) -> tuple[list[Path], str]:
    run = read_stored_run(directory)
    drawn = draw_run_figures(directory, run)
    manifest = read_manifest(directory)
    comparison = run.comparison or {}
    diagnostics = comparison.get("diagnostics")
    sections = {
        "verdict": ("Verdict", _verdict_of_run(run, comparison)),
        "comparison": ("Theory against exact posterior", _comparison(directory, run, drawn)),
    }
    if diagnostics is not None or run.draws is not None:
        sections["diagnostics"] = ("Diagnostics of the samples", _diagnostics(comparison, drawn))
    notices = notice_of_state(_state(directory, manifest, ended))
    sections |= _common(directory, manifest)
    return drawn, page(recipe.name, _subtitle(recipe), notices, sections)


def _verdict_of_run(run: StoredRun, comparison: dict) -> Html:
    diagnostics = comparison.get("diagnostics")
    trusted = None if diagnostics is None else diagnostics.get("verdict") == "pass"
    converged = None if run.theory is None else bool(run.theory.attrs.get("converged", 1))
    found = differences(comparison, run.path_names)
    width = min(run.widths) if run.widths else None
    sampled_settings = bool(comparison.get("hyper_parameters"))
    sentence = accuracy_sentence(run)
    return figures_and_tables(
        verdict_box(theory_verdict(trusted, converged, found, width, sampled_settings)),
        verdict_box(trust_verdict(diagnostics)),
        None if sentence is None else paragraphs(sentence),
        accuracy_table(run),
        differences_table(found),
        paragraphs(READING) if found else None,
    )


def _comparison(directory: Path, run: StoredRun, drawn: list[Path]) -> Html:
    comparison = run.comparison or {}
    explained = None if run.theory is None else run.theory.attrs.get("explanation")
    pruned = [
        directory / FIGURE_FOLDER / f"{name}.png"
        for name, table in PRUNING.items()
        if (directory / table).is_file()
    ]
    there = [path for path in pruned if path.is_file()]
    return figures_and_tables(
        None if explained is None else paragraphs(f"Theory: {explained}."),
        *_figures(RESULTS, drawn + there),
        order_parameter_table(run),
        head_score_table(comparison),
        *quality_tables(comparison),
        evidence_table(comparison.get("log_evidence") or {}),
        hyper_parameter_table(comparison.get("hyper_parameters") or {}),
    )


def _diagnostics(comparison: dict, drawn: list[Path]) -> Html:
    diagnostics = comparison.get("diagnostics") or {}
    said = [f"Failed: {reason}." for reason in diagnostics.get("reasons", ())]
    said += [f"Note: {remark}." for remark in diagnostics.get("remarks", ())]
    return figures_and_tables(
        listing(said) if said else None,
        diagnostics_table(diagnostics),
        *_figures(DIAGNOSTICS, drawn),
        sampler_table(diagnostics, comparison.get("cost") or {}),
    )


def _sweep_page(directory: Path, recipe: Recipe, ended: ExitCode | None) -> tuple[list[Path], str]:
    points = reported_points(directory, recipe)
    if all(point.run is None for point in points):
        remedy = "no point of this sweep has results yet; first use `run` or `sweep`"
        raise InputError("DIR", str(directory), remedy)
    drawn = draw_sweep_figures(directory) if (directory / "sweep.csv").is_file() else []
    finite_size = directory / "finite_size.json"
    laws = json.loads(finite_size.read_text("utf-8")) if finite_size.is_file() else None
    manifest = read_manifest(directory)
    verdict = figures_and_tables(
        verdict_box(sweep_trend(points, laws)),
        verdict_box(sweep_trust(points)),
        points_table(points),
        paragraphs(READING) if any(point.found for point in points) else None,
    )
    missing = None
    if not drawn:
        missing = notice("The figures of a sweep are drawn when its points are gathered.")
    sections = {
        "verdict": ("Verdict", verdict),
        "comparison": ("Along the sweep", figures_and_tables(missing, *_figures(SWEEP, drawn))),
        **_common(directory, manifest),
    }
    swept = f"{_subtitle(recipe)}; {len(points)} points over {', '.join(recipe.sweep)}"
    notices = notice_of_state(_state(directory, manifest, ended))
    return drawn, page(recipe.name, swept, notices, sections)


def _common(directory: Path, manifest: dict) -> dict[str, tuple[str, Html]]:
    """Sections that every page ends with."""
    recipe = (directory / RECIPE_FILE).read_text(encoding="utf-8")
    return {
        "recipe": ("Recipe", recipe_text(recipe)),
        "provenance": ("Provenance", provenance_tables(manifest)),
        "data": ("Data", data_section(directory)),
        "cite": ("How to cite", citation()),
    }


def _state(directory: Path, manifest: dict, ended: ExitCode | None) -> str | None:
    """What a reader has to know before anything else; None if all went well."""
    command = manifest.get("command", "run")
    code = manifest.get("finished", {}).get(command) if ended is None else int(ended)
    if code is None:
        said = state_of(directory).replace("`", "")
        return f"Not finished: {said}." if manifest.get("command") else None
    unfinished = f"It ended with exit code {code}: not everything came to its end."
    return ENDINGS.get(ExitCode(code), unfinished) if code else None


def notice_of_state(state: str | None) -> Html:
    return Html("") if state is None else notice(state)


def _figures(captions: dict[str, Caption], drawn: list[Path]) -> list[Html]:
    """The figures that were drawn, in the order of their captions."""
    pictures = {path.stem: path for path in drawn if path.suffix == ".png"}
    return [
        figure(pictures[name], caption.alternative, caption.text)
        for name, caption in captions.items()
        if name in pictures
    ]


def _subtitle(recipe: Recipe) -> str:
    """Task, width, temperature and space in a line."""
    parts = [recipe.task.kind.replace("_", " ")]
    if "network.widths" not in recipe.sweep:
        parts.append(f"width N = {recipe.network.widths}")
    if "posterior.temperature" not in recipe.sweep:
        sampled = " (prior median)" if recipe.posterior.temperature_spread else ""
        parts.append(f"temperature 𝒯 = {recipe.posterior.temperature:g}{sampled}")
    return ", ".join(parts)
