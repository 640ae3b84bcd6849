"""What commands print of a run, in the order in which a physicist asks.

The network and its data, how the theory was solved, whether the samples can be trusted, U₁, how far
theories are off, numbers by predictor, and the verdict.
"""

from collections.abc import Sequence
from dataclasses import replace

import xarray as xr

from sampler.analysis.comparison import Comparison
from sampler.analysis.results import RunResults
from sampler.analysis.text import NO_BREAK, wrapped
from sampler.analysis.verdict import limits_sentence
from sampler.mcmc.diagnostics import Diagnostics
from sampler.presentation.table import Table
from sampler.presentation.tables import (
    MOST_ROWS,
    numbers_table,
    order_parameter_table,
    other_accuracies_table,
    sampled_temperature_table,
    statements_table,
)
from theory import Architecture

EVERYTHING = "report.html"


def network_text(architecture: Architecture, examples: int, temperature: float | None) -> str:
    """Sizes of network and data in one line: L, H, N, P, P/N, D and 𝒯."""
    widths = sorted(set(architecture.widths))
    width = str(widths[0]) if len(widths) == 1 else f"({_listed(architecture.widths)})"
    parts = {
        "L": str(architecture.layers),
        "H": _listed(architecture.heads),
        "N": width,
        "P": f"{examples}",
        "P/N": f"{examples / max(widths):.3g}",
        "D": f"{architecture.channels}",
        "𝒯": "sampled" if temperature is None else f"{temperature:g}",
    }
    texts = (f"{name} = {value}".replace(" ", NO_BREAK) for name, value in parts.items())
    return wrapped(", ".join(texts))


def _listed(numbers: Sequence[int]) -> str:
    return " + ".join(map(str, numbers))


def theory_text(theory: xr.Dataset) -> str:
    """How the saddle point was found, and whether the next order can be used."""
    lines = [f"theory: {theory.attrs['explanation']}"]
    if "next_order_explanation" in theory.attrs:
        lines.append(f"  {theory.attrs['next_order_explanation']}")
    return wrapped("\n".join(lines))


def solved_text(run: RunResults) -> str:
    """The numbers of a theory by predictor, where nothing was sampled."""
    tables = numbers_table(run), other_accuracies_table(run)
    return "\n\n".join(table.text(elsewhere=EVERYTHING) for table in tables if table)


def diagnostics_text(diagnostics: Diagnostics) -> str:
    """The verdict on the draws, the worst numbers beside their limits, and every reason."""
    verdict = "can be trusted" if diagnostics.passed else "FAIL their diagnostics"
    lines = [diagnostics.warning] if diagnostics.warning else []
    lines += [f"samples: {verdict}"]
    if diagnostics.quantities:
        lines[-1] += f"; {limits_sentence(diagnostics)}"
    lines += [f"  failed: {reason}" for reason in diagnostics.reasons]
    lines += [f"  note: {remark}" for remark in diagnostics.remarks]
    return wrapped("\n".join(lines))


def comparison_text(run: RunResults) -> str:
    """U₁, how far every theory is off, and numbers by predictor."""
    comparison, parts = run.comparison, []
    if run.theory is None and not comparison.user_theories:
        parts.append("comparison: no theory stored in this directory")
    tables: list[Table] = [
        order_parameter_table(comparison),
        statements_table(comparison, brief=True),
        numbers_table(run, brief=True),
        sampled_temperature_table(comparison),
    ]
    parts += [
        replace(table, title="").text(elsewhere=EVERYTHING, most=MOST_ROWS)
        for table in tables
        if table
    ]
    return "\n" + "\n\n".join(parts) + remarks_text(comparison)


def remarks_text(comparison: Comparison) -> str:
    """How numbers that are not to be trusted were obtained, a line for each."""
    remarks = {
        str(comparison.about(name, "label")): str(comparison.about(name, "remark"))
        for name in comparison.quantities
    }
    lines = [f"{label}: {text}" for label, text in remarks.items() if "NOT" in text]
    return "".join(f"\n{wrapped(line)}" for line in lines)


def verdicts_text(run: RunResults) -> str:
    """The closing lines: what the samples allow to say of every theory."""
    has_theory = run.theory is not None
    verdicts = [run.verdict] if has_theory or run.comparison is None else []
    if run.comparison is not None:
        verdicts += run.comparison.user_verdicts.values()
    return "\n".join(wrapped(verdict.headline) for verdict in verdicts)


def arviz_summary(tree: xr.DataTree) -> str:
    """ArviZ's summary of the order parameters; of the predictor where there are none."""
    import arviz_stats  # only here: it takes long

    posterior = tree["posterior"].to_dataset()
    names = [name for name in posterior if "order_parameter" in str(name)]
    if not names:
        return ""
    table = arviz_stats.summary(tree, var_names=names)
    return "\n".join(line.rstrip() for line in table.to_string(max_rows=MOST_ROWS).splitlines())
