"""The output of commands for a run, in the order of a physicist's questions.

The network and its data, how the theory was solved, whether the samples can be trusted, U₁, how far
theories are off, numbers by predictor, and the verdict.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import xarray as xr

from sampler.analysis.predictors import LEADING, predictors_of
from sampler.analysis.results import RunResults
from sampler.analysis.text import unbroken, wrapped
from sampler.analysis.verdict import HEADLINE
from sampler.mcmc.convergence import FEWEST_DRAWS
from sampler.presentation.table import Table
from sampler.presentation.views import (
    MOST_ROWS,
    elements_table,
    numbers_table,
    other_accuracies_table,
    other_networks_table,
    sampled_temperature_table,
    statements_table,
)
from sampler.storage.directory import COMPARISON_FILE, DRAWS_FILE
from theory import Architecture

EVERYTHING = "report.html"
# Of intervals and tails, for ArviZ.
TAILS = {"stats.ci_prob": 0.95}


def network_text(
    architecture: Architecture, examples: int, temperature: float | None, infinite: bool = False
) -> str:
    """Sizes of network and data in one line: L, H, N, P, P/N, D and 𝒯.

    infinite: of a network of infinite width the architecture has widths that mean nothing.
    """
    widths = sorted(set(architecture.widths))
    width = str(widths[0]) if len(widths) == 1 else f"({added(architecture.widths)})"
    parts = {
        "L": architecture.layers,
        "H": added(architecture.heads),
        "N": "∞" if infinite else width,
        "P": examples,
        **({} if infinite else {"P/N": f"{examples / max(widths):.3g}"}),
        "D": architecture.channels,
        "𝒯": "sampled" if temperature is None else f"{temperature:g}",
    }
    return wrapped(unbroken([f"{name} = {value}" for name, value in parts.items()]))


def added(numbers: Sequence[int]) -> str:
    return " + ".join(map(str, numbers))


def theory_text(theory: xr.Dataset) -> str:
    """Whether the saddle point was reached, and whether the next order can be used."""
    solved = "saddle point converged" if theory.attrs["converged"] else theory.attrs["explanation"]
    if LEADING not in predictors_of(theory):
        solved = "infinite width alone; none describes this network at finite width"
    parts = [f"theory: {solved}", theory.attrs.get("next_order_explanation")]
    return wrapped("; ".join(part for part in parts if part))


def solved_text(run: RunResults) -> str:
    """The numbers of a theory by predictor, where nothing was sampled."""
    return printed_tables(run, [numbers_table(run), other_accuracies_table(run)])


def printed_tables(run: RunResults, tables: Sequence[Table]) -> str:
    """Those of several tables that have rows, each below an empty line.

    Columns without room are on the page, where there is a directory for one.
    """
    elsewhere = "" if run.directory is None else EVERYTHING
    texts = [table.text(elsewhere=elsewhere, most=MOST_ROWS) for table in tables if table]
    return "".join(f"\n{text}\n" for text in texts).rstrip("\n")


def comparison_text(run: RunResults) -> str:
    """U₁, how far every theory is off, and numbers by predictor."""
    comparison = run.comparison
    tables = [
        elements_table(comparison, HEADLINE),
        statements_table(comparison, brief=True),
        numbers_table(run, brief=True),
        other_networks_table(comparison),
        sampled_temperature_table(comparison),
    ]
    shown, every = len(tables[0].rows), comparison.element_names(HEADLINE) if tables[0] else ()
    text = printed_tables(run, [replace(table, title="") for table in tables])
    if run.theory is None and not comparison.user_verdicts:
        text = f"\ncomparison: no theory stored in this directory{text}"
    remarks = {
        f"{row['label']}: {row['remark']}": None
        for row in comparison.rows.values()
        if "NOT" in row["remark"]
    }
    notes = list(remarks)
    if shown < len(every):
        all_of_them = "" if run.directory is None else f"; all are in {COMPARISON_FILE}"
        notes.insert(0, f"{shown} of {len(every)} elements of U₁ are shown{all_of_them}")
    return "\n".join([text, *map(wrapped, notes)])


def verdicts_text(run: RunResults) -> str:
    """The closing lines: the verdict on every theory."""
    has_theory = run.theory is not None
    verdicts = [run.verdict] if has_theory or run.comparison is None else []
    if run.comparison is not None:
        verdicts += run.comparison.user_verdicts.values()
    return "\n".join(wrapped(verdict.headline) for verdict in verdicts)


def slowest_text(directory: Path, tree: xr.DataTree) -> str:
    """ArviZ's summary of the slowest elements of the order parameters, and how to have the rest.

    Empty where there are no order parameters, or too few draws.
    """
    import arviz_base  # only here: it takes long
    import arviz_stats

    names = [str(name) for name in tree["posterior"].data_vars if "order_parameter" in str(name)]
    if not names or tree["posterior"].sizes["draw"] < FEWEST_DRAWS:
        return ""
    # Its tail ESS is that of the quantile at this probability; the diagnostics have that at 95 %.
    with arviz_base.rc_context(TAILS):
        every = arviz_stats.summary(tree, var_names=names)
    every = every.sort_values("ess_bulk", kind="stable")
    table = every.head(MOST_ROWS)
    return "\n".join(
        [
            f"slowest of {len(every)} elements of the order parameters, by ArviZ",
            *(line.rstrip() for line in table.to_string().splitlines()),
            "in Python, all of them, draw by draw:",
            "  import arviz",
            f"  arviz.rcParams.update({TAILS})",
            f"  draws = arviz.from_netcdf({str(directory / DRAWS_FILE)!r})",
            f"  arviz.summary(draws, var_names={names})",
            f"  arviz.plot_trace(draws, var_names={names[:1]})",
        ]
    )
