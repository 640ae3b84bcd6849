"""The page of a run or of a sweep."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from sampler import __version__
from sampler.errors import ExitCode, InputError
from sampler.presentation.figures.draw import draw_run_figures, draw_sweep_figures
from sampler.presentation.report.captions import DIAGNOSTICS, RESULTS, SWEEP, Caption
from sampler.presentation.report.elements import (
    Html,
    element,
    figure,
    joined,
    listing,
    paragraphs,
    section,
)
from sampler.presentation.report.provenance import (
    citation,
    data_section,
    provenance_tables,
    recipe_text,
)
from sampler.presentation.report.sweep import (
    points_table,
    reported_points,
    sweep_trend,
    sweep_trust,
)
from sampler.presentation.report.tables import (
    accuracy_sentence,
    accuracy_table,
    diagnostics_table,
    differences_table,
    evidence_table,
    head_score_table,
    hyper_parameter_table,
    order_parameter_table,
    quality_tables,
    sampler_table,
)
from sampler.presentation.report.verdict import (
    READING,
    Verdict,
    differences,
    theory_verdict,
    trust_verdict,
)
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.storage.manifest import Manifest, read_manifest
from sampler.storage.results import RunResults, open_run
from sampler.storage.run_directory import FIGURE_FOLDER, RECIPE_FILE, write_atomically
from sampler.storage.status import state_of
from sampler.storage.sweeps import SweepResults


def page(title: str, subtitle: str, notices: Html, sections: Mapping[str, tuple[str, Html]]) -> str:
    """A complete HTML document.

    sections: identity → title and content, in the order of the page.
    """
    contents = [element("a", name, href=f"#{key}") for key, (name, _) in sections.items()]
    style = Html(files(__package__).joinpath("style.css").read_text(encoding="utf-8"))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title}: theory and exact posterior"),
        # An empty icon, or a browser asks for one.
        element("link", rel="icon", href="data:,"),
        element("style", style),
    )
    body = element(
        "body",
        element("a", "To the verdict", href="#verdict", class_="skip"),
        element(
            "header",
            element("h1", title),
            element("p", subtitle, class_="subtitle"),
            element("nav", listing(contents), aria_label="Contents"),
        ),
        element(
            "main",
            notices,
            *(section(key, name, content) for key, (name, content) in sections.items()),
        ),
        element(
            "footer", element("p", f"From stored results, by attention-posterior {__version__}.")
        ),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def verdict_box(verdict: Verdict) -> Html:
    """A verdict with its reasons; the colour says nothing that the words do not."""
    headline = element("p", element("strong", verdict.headline))
    reasons = [listing(verdict.reasons)] if verdict.reasons else []
    return element("div", headline, *reasons, class_=f"verdict {verdict.tone}")


def notice(text: str) -> Html:
    return element("p", text, class_="notice")


def figures_and_tables(*parts: Html | None) -> Html:
    """What there is of them, one after the other."""
    return joined([part for part in parts if part is not None])


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
    run = open_run(directory)
    drawn = draw_run_figures(directory, run)
    manifest = run.manifest
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


def _verdict_of_run(run: RunResults, comparison: dict) -> Html:
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


def _comparison(directory: Path, run: RunResults, drawn: list[Path]) -> Html:
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
    laws = SweepResults(directory).finite_size
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


def _common(directory: Path, manifest: Manifest) -> dict[str, tuple[str, Html]]:
    """Sections that every page ends with."""
    recipe = (directory / RECIPE_FILE).read_text(encoding="utf-8")
    return {
        "recipe": ("Recipe", recipe_text(recipe)),
        "provenance": ("Provenance", provenance_tables(manifest)),
        "data": ("Data", data_section(directory)),
        "cite": ("How to cite", citation()),
    }


def _state(directory: Path, manifest: Manifest, ended: ExitCode | None) -> str | None:
    """What a reader has to know before anything else; None if all went well."""
    command = manifest.command or "run"
    code = manifest.finished.get(command) if ended is None else int(ended)
    if code is None:
        said = state_of(directory).replace("`", "")
        return f"Not finished: {said}." if manifest.command else None
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
