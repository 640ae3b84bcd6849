"""What the terminal and notebooks show of a run: theory, diagnostics, and the comparison table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from sampler.analysis.compared import Row
from sampler.analysis.comparison import ComparedRun, TheoryAndDraws, compare_head_scores
from sampler.analysis.difference import CONFIDENCE, Difference
from sampler.analysis.draws_table import comparison_table
from sampler.analysis.labels import EXACT, LEADING, LIMIT, NEXT, NEXT_ORDER
from sampler.analysis.results import RunResults
from sampler.analysis.verdict import Verdict
from sampler.errors import InputError
from sampler.mcmc.diagnostics import Diagnostics
from sampler.presentation.report.verdict import trust_verdict
from sampler.presentation.terminal import Column, table_lines, unbroken, wrapped
from sampler.storage.run_directory import write_json

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

MOST_ROWS = 15
# Of the columns of a table, before those of the user's own theories.
LEFT_OUT_FIRST = 1000
# Columns of the comparison as a DataFrame, and how they are called where they are shown.
COLUMNS = {
    "theory": LEADING,
    "next_order": NEXT,
    "sampled": EXACT,
    "mcse": "± MCSE",
    "difference_in_mcse": "difference / MCSE",
    "relative_difference": "relative difference",
    "gp": LIMIT,
    "test_error": "± test set",
}


def theory_text(table: xr.Dataset) -> str:
    """How the saddle point was found, and its accuracy beside the GP limit's."""
    lines = [f"theory: {table.attrs['explanation']}"]
    if "next_order_explanation" in table.attrs:
        lines.append(f"  {table.attrs['next_order_explanation']}")
    predictors = {LEADING: "theory", NEXT: "next_order", LIMIT: "gp"}
    accuracies = {who: float(table.get(f"accuracy_{n}", np.nan)) for who, n in predictors.items()}
    found = [f"{who} {value:.3f}" for who, value in accuracies.items() if np.isfinite(value)]
    if found:
        lines.append(f"accuracy: {', '.join(found)}")
    others = {"trained": "the trained network", "nearest_neighbour": "pixel nearest neighbour"}
    found = [
        f"{label} {float(table[f'accuracy_{name}']):.3f}"
        for name, label in others.items()
        if f"accuracy_{name}" in table
    ]
    if found:
        lines.append(f"  beside it: {', '.join(found)}")
    for name in table["subnetwork"].values if "subnetwork" in table.coords else ():
        value = float(table["accuracy_gp_subnetwork"].sel(subnetwork=name))
        if np.isfinite(value):
            lines.append(f"  {LIMIT}, only {name}: {value:.3f}")
    return wrapped("\n".join(lines))


def diagnostics_text(diagnostics: Diagnostics) -> str:
    """Verdict first, then its reasons, remarks and the worst numbers."""
    verdict = "the samples can be trusted" if diagnostics.passed else "FAILED"
    lines = [f"diagnostics: {verdict}"]
    lines += [f"  failed: {reason}" for reason in diagnostics.reasons]
    lines += [f"  note: {remark}" for remark in diagnostics.remarks]
    judged = diagnostics.quantities.values()
    if judged:
        parts = [
            f"worst R-hat {max(q.r_hat for q in judged):.4f}",
            f"bulk ESS {min(q.ess_bulk for q in judged):.0f}",
            f"tail ESS {min(q.ess_tail for q in judged):.0f}",
        ]
        found = diagnostics.numbers
        if found.get("bfmi"):
            parts.append(f"BFMI {min(found['bfmi']):.2f}")
            parts.append(f"{found['leapfrog_steps_per_draw']:.0f} leapfrog steps per draw")
        elif "bfmi" in found:
            parts.append("independent draws")
        counts = f"{diagnostics.chains} chains of {diagnostics.draws} draws"
        lines.append(f"  {counts}: {unbroken(parts)}")
    return wrapped("\n".join(lines))


def comparison_text(run: RunResults) -> str:
    """The comparison of a run as text."""
    comparison, path_names = run.comparison, None if run.theory is None else run.path_names
    shown, left_out = [], 0
    for of_quantity in comparison.rows(list(path_names or ())).values():
        rows, more = shown_rows(of_quantity)
        shown, left_out = [*shown, *rows], left_out + more
    settings = [setting_text(row) for row in shown if row.spread is not None]
    rows = [row for row in shown if row.spread is None]
    if path_names is None:
        lines = ["comparison: no theory stored in this directory", *map(sampled_text, rows)]
    else:
        lines = ["", *table_text([row for row in rows if row.remark or np.isfinite(row.theory)])]
    lines += ["(more elements in comparison.json)"] if left_out else []
    lines += ["", *settings] if settings else []
    if comparison.differences:
        lines += ["", *whole_text(list(comparison.differences.values()))]
    lines += head_lines(comparison, path_names or ())
    verdicts = [] if path_names is None or comparison.verdict is None else [comparison.verdict]
    verdicts += comparison.own.values()
    lines += ["", *(wrapped(verdict.headline) for verdict in verdicts)] if verdicts else []
    return "\n".join(lines)


def head_lines(comparison: ComparedRun, path_names: Sequence[str]) -> list[str]:
    """Head scores, largest first; nothing where no layer has more than one head."""
    found = comparison.get("head_score")
    if found is None or found.theory is None or np.shape(found.theory)[1] < 2:
        return []
    rows = found.element_rows("head_score", path_names)
    rows = sorted(rows, key=lambda row: -row.sampled)
    more = ["(more heads in comparison.json)"] if len(rows) > MOST_ROWS else []
    return ["", "head scores, largest first:", *table_text(rows[:MOST_ROWS]), *more]


def whole_text(differences: Sequence[Difference]) -> list[str]:
    """What may be said of every quantity as a whole; once where it is the same of all."""
    first, *others = dict.fromkeys(one.statement for one in differences)
    if not others:
        return [wrapped(f"every quantity as a whole: {first}")]
    longest = max(len(one.name) for one in differences)
    lines = [
        wrapped(f"  {one.name:{longest}}  {one.statement.removesuffix(CONFIDENCE)}")
        for one in differences
    ]
    return ["as a whole, relative to the size of the quantity, with 95 % confidence:", *lines]


def table_text(rows: Sequence[Row]) -> list[str]:
    """Lines of the comparison table: a column for every theory, and one for the samples."""
    plain = [row.gp is None for row in rows]
    columns = [
        Column("leading\norder", [known(row, row.theory) for row in rows]),
        *(
            [Column("next\norder", [known(row, row.next_order) for row in rows])]
            if any(np.isfinite(row.next_order) for row in rows)
            else []
        ),
        # The last of many are left out first, when there is no room even without differences.
        *(
            Column(shortened(name), [known(row, row.own.get(name, np.nan)) for row in rows], place)
            for place, name in enumerate(own_names(rows), start=1)
        ),
        Column("exact\nposterior", [known(row, row.sampled) for row in rows]),
        Column("± MCSE", [error_text(row.mcse) for row in rows]),
        Column(
            "diff/\nMCSE",
            [in_mcse(row) * p for row, p in zip(rows, plain, strict=True)],
            LEFT_OUT_FIRST,
        ),
        Column(
            "diff",
            [f"{r.relative_difference:.1%}" * p for r, p in zip(rows, plain, strict=True)],
            LEFT_OUT_FIRST + 1,
        ),
    ]
    header, *lines, (note,) = table_lines([row.name for row in rows], columns)
    for row, of_row in zip(rows, lines, strict=True):
        of_row += [wrapped(f"  {beside(row)}")] if row.gp is not None else []
    notes = [f"{note[:-1]}: all is in comparison.json and report.html)"] if note else []
    return [*chain(header, *lines), *map(wrapped, notes)]


def beside(row: Row) -> str:
    """What stands below the line of an accuracy or of an evidence."""
    first = f"by {row.remark}" if row.remark else f"test set ± {row.test_error:.4f}"
    return f"{first}, {LIMIT} {known(row, row.gp)}"


def sampled_text(row: Row) -> str:
    """A line of the samples alone."""
    error = f"by {row.remark}" if row.remark else f"test set ± {row.test_error:.4f}"
    return f"{row.name}: {EXACT} {known(row, row.sampled)} ± {error_text(row.mcse)} ({error})"


def setting_text(row: Row) -> str:
    """A line of what was sampled beside the weights."""
    return wrapped(
        f"{row.name}: prior median {row.theory:.4g}, {EXACT} {row.sampled:.4g} ± {row.mcse:.2g} "
        f"(spread {row.spread:.2g})"
    )


def own_names(rows: Iterable[Row]) -> list[str]:
    """Names of the user's own theories that have a number in these rows."""
    return list(dict.fromkeys(name for row in rows for name in row.own))


def shortened(name: str) -> str:
    """A name that fits a column of the terminal."""
    return name if len(name) <= 11 else name[:10] + "…"


def shown_rows(rows: Sequence[Row]) -> tuple[list[Row], int]:
    """What is shown of a matrix, its diagonal where it has many elements; how many are left out."""
    if len(rows) <= MOST_ROWS:
        return list(rows), 0
    shown = [row for row in rows if len(set(row.element)) == 1][:MOST_ROWS]
    return shown, len(rows) - len(shown)


def known(row: Row, number: float) -> str:
    """A number of this line, – where there is none."""
    return f"{number:.{3 if row.remark else 4}f}" if np.isfinite(number) else "–"


def in_mcse(row: Row) -> str:
    """Difference of a line in Monte Carlo standard errors, – where that error is 0."""
    return f"{row.difference_in_mcse:.1f}" if np.isfinite(row.difference_in_mcse) else "–"


def error_text(mcse: float) -> str:
    """A Monte Carlo standard error, which is never rounded to 0."""
    return f"{mcse:.1e}" if 0.0 < mcse < 0.00005 else f"{mcse:.4f}"


@dataclass(frozen=True)
class Comparison:
    """Theory against draws; prints as `compare` does.

    results  theory, draws and their comparison, in memory or in a directory
    """

    results: RunResults

    @property
    def result(self) -> ComparedRun:
        """Diagnostics, cost, and every compared quantity with its errors."""
        return self.results.comparison

    @property
    def theory(self) -> xr.Dataset:
        """The table of the theory."""
        return self.results.theory

    @property
    def draws(self) -> xr.DataTree:
        """The tree of the draws."""
        return self.results.draws

    @property
    def path_names(self) -> tuple[str, ...]:
        """Names along the axis of U_1."""
        return tuple(str(name) for name in self.theory["path"].values)

    @property
    def trusted(self) -> bool:
        """Whether the draws passed their diagnostics."""
        return self.result.diagnostics.passed

    @property
    def verdict(self) -> Verdict:
        """On the theory: what the samples allow to say of it, in the words of the report."""
        return self.result.verdict

    @property
    def own_verdicts(self) -> Mapping[str, Verdict]:
        """Name of a theory of your own → what the samples allow to say of it."""
        return self.result.own

    @property
    def reliability(self) -> Verdict:
        """On the samples: whether they can be trusted, every number beside its limit."""
        return trust_verdict(self.result.diagnostics)

    @property
    def differences(self) -> Mapping[str, Difference]:
        """Key of `comparison.json` → size of the difference, its interval, and what may be said."""
        return self.result.differences

    def plot(self, figure: str = "order_parameter") -> "Figure":
        """A figure, by its name among those of a run, such as "accuracy" or "predictor_mean".

        Raises InputError, with the names that there are, for another one.
        """
        # Only here: `compare` in a terminal needs no figures.
        from sampler.presentation.figures.draw import draw_figure

        return draw_figure(self.results, figure)

    def to_dataset(self) -> xr.Dataset:
        """Theory, sampled, MCSE and differences of every compared quantity, with its axes."""
        return comparison_table(dict(self.result.compared), self.theory)

    def to_dataframe(self) -> "pandas.DataFrame":
        """The comparison table: a row for each element of U_1, each score and each setting.

        `difference_in_mcse` is (sampled − theory)/MCSE, `relative_difference` is in units of
        |sampled|. `test_error` is the error by the finite test set, of the sampled number. A theory
        of your own has a column of its name.
        """
        import pandas

        rows = list(chain(*self.result.rows(list(self.path_names)).values()))
        own = own_names(rows)
        numbers = [
            [getattr(row, column) for column in COLUMNS] + [row.own.get(name) for name in own]
            for row in rows
        ]
        names = [row.name for row in rows]
        return pandas.DataFrame(numbers, names, [*COLUMNS, *own], dtype=float)

    def save(self, path: str | Path) -> None:
        """Write strict JSON, the content of `comparison.json`."""
        write_json(Path(path), self.result.to_json())

    def __repr__(self) -> str:
        table = comparison_text(self.results)
        return f"{diagnostics_text(self.result.diagnostics)}\n{table}"

    def _repr_html_(self) -> str:
        frame = self.to_dataframe().rename(columns=COLUMNS)
        table = frame.to_html(na_rep="", float_format="{:.4g}".format)
        table = (
            f"<details><summary>every number, {len(frame)} rows</summary>"
            f'<div style="overflow-x: auto">{table}</div></details>'
        )
        verdicts = (self.verdict, *self.own_verdicts.values(), self.reliability)
        return "".join(verdict._repr_html_() for verdict in verdicts) + table


def head_table(theory: xr.Dataset, draws: xr.DataTree | None = None) -> "pandas.DataFrame":
    """Head scores by layer, from 1, and head, from 0; those of the draws with their MCSE."""
    import pandas

    columns = {
        name: theory[f"head_score{ending}"].values
        for name, ending in (("theory", ""), ("next_order", NEXT_ORDER), ("trained", "_trained"))
        if f"head_score{ending}" in theory
    }
    if draws is not None:
        found = compare_head_scores(TheoryAndDraws.of(theory, draws)).get("head_score")
        if found is not None:
            columns |= {"sampled": found.sampled.value, "mcse": found.sampled.mcse}
    layers, heads = (theory[axis].values for axis in ("layer", "head"))
    index = pandas.MultiIndex.from_product([layers, heads], names=["layer", "head"])
    table = pandas.DataFrame({name: np.ravel(one) for name, one in columns.items()}, index)
    return table.dropna(how="all")  # a layer with fewer heads than another


def refuse_unrelated(theory: xr.Dataset, draws: xr.DataTree) -> None:
    """Raise InputError unless theory and draws belong to the same paths, test set, temperature."""
    if not isinstance(theory, xr.Dataset) or "order_parameter" not in theory:
        raise InputError("theory", type(theory).__name__, "give what solve(task, network) returns")
    if not isinstance(draws, xr.DataTree) or "posterior" not in draws.children:
        raise InputError("draws", type(draws).__name__, "give what sample(task, network) returns")
    posterior = draws["posterior"].to_dataset()
    for axis in ("path", "test_example"):
        expected, received = (
            [str(name) for name in table[axis].values] if axis in table.coords else None
            for table in (theory, posterior)
        )
        if received is not None and received != expected:
            raise InputError("draws", received, f"these are not the {axis}s of the theory")
    expected = theory.attrs["temperature"]
    received = float(draws["constant_data"]["temperature"])
    if received != expected:
        remedy = f"compare with a theory at it, not at {expected}"
        raise InputError("draws.temperature", received, remedy)
