"""Summaries of a run in terminal and notebook: theory, diagnostics, and the comparison."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from sampler.analysis.comparison import ComparedRun, TheoryAndDraws, compare_head_scores
from sampler.analysis.draws_table import PREDICTIONS
from sampler.analysis.labels import NEXT_ORDER
from sampler.analysis.results import RunResults
from sampler.analysis.text import wrapped
from sampler.analysis.verdict import Verdict, limits_sentence
from sampler.errors import InputError, Verbatim
from sampler.mcmc.diagnostics import Diagnostics
from sampler.presentation.tables import (
    MOST_ROWS,
    comparison_table,
    differences_table,
    head_score_table,
    numbers_table,
    order_parameter_table,
    sampled_settings_table,
    summary_table,
)
from sampler.storage.run_directory import write_json

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

EVERYTHING = "comparison.json and report.html"


def theory_text(table: xr.Dataset) -> str:
    """Return how the saddle point was found, and the accuracies that follow from it."""
    lines = [f"theory: {table.attrs['explanation']}"]
    if "next_order_explanation" in table.attrs:
        lines.append(f"  {table.attrs['next_order_explanation']}")
    if "gp_own_explanation" in table.attrs:
        lines.append(f"  {table.attrs['gp_own_explanation']}")
    found = replace(summary_table(RunResults.held(None, theories=table)), title="")
    return "\n".join([wrapped("\n".join(lines)), *([found.text()] if found else [])])


def diagnostics_text(diagnostics: Diagnostics) -> str:
    """Return the verdict on the draws, the worst numbers beside their limits, and every reason."""
    verdict = "the samples can be trusted" if diagnostics.passed else "FAILED"
    lines = [diagnostics.warning] if diagnostics.warning else []
    lines += [f"diagnostics: {verdict}"]
    lines += [f"  {limits_sentence(diagnostics)}"] if diagnostics.quantities else []
    lines += [f"  failed: {reason}" for reason in diagnostics.reasons]
    lines += [f"  note: {remark}" for remark in diagnostics.remarks]
    return wrapped("\n".join(lines))


def comparison_text(run: RunResults) -> str:
    """Return the tables of a comparison, and the verdicts on the theories."""
    comparison, parts = run.comparison, []
    if run.theory is None and not comparison.own:
        parts.append("comparison: no theory stored in this directory")
    for table in (
        summary_table(run),
        order_parameter_table(run),
        numbers_table(run),
        sampled_settings_table(run),
        head_score_table(run),
    ):
        if table:
            parts.append(table.text(elsewhere=EVERYTHING, most=MOST_ROWS))
    differences = comparison.differences
    statements = {one.statement for one in differences.values()}
    if len(statements) == 1:
        parts.append(wrapped(f"every quantity as a whole: {statements.pop()}"))
    elif statements:
        parts.append(differences_table(differences).of("as a whole").text())
    verdicts = [] if run.theory is None else [comparison.verdict]
    verdicts += comparison.own.values()
    if verdicts:
        parts.append("\n".join(wrapped(verdict.headline) for verdict in verdicts))
    return "\n" + "\n\n".join(parts)


@dataclass(frozen=True, repr=False)
class Comparison(RunResults):
    """Theory against draws, in memory or in a directory; prints as `compare` does."""

    @property
    def result(self) -> ComparedRun:
        """Diagnostics, cost, and every compared quantity with its errors."""
        return self.comparison

    @property
    def own_verdicts(self) -> Mapping[str, Verdict]:
        """Name of a theory of your own → what the samples allow to say of it."""
        return self.result.own

    def plot(self, figure: str = "order_parameter", **options: Any) -> "Figure":
        """Draw a figure, by its name among those of a run, such as "kernels" or "predictor_mean".

        `plot("kernels", paths=True)` has, below, the kernels of pairs of paths. Raises InputError,
        with the names that there are, for a figure that there is not.
        """
        # Only here: `compare` in a terminal needs no figures.
        from sampler.presentation.figures.draw import draw_figure

        return draw_figure(self, figure, **options)

    def to_dataset(self) -> xr.Dataset:
        """Theory, sampled, MCSE and differences of every compared quantity, with its axes."""
        columns, used = {}, set()
        if self.theory is None:
            return xr.Dataset()
        for name, one in self.result.compared:
            if name not in self.theory:
                continue
            axes = self.theory[name].dims
            used |= set(axes)
            in_mcse, relative = one.differences
            parts = {
                "theory": one.theory, "sampled": one.sampled.value, "mcse": one.sampled.mcse,
                "difference_in_mcse": in_mcse, "relative_difference": relative,
            }  # fmt: skip
            columns |= {
                f"{name}_{part}": (axes, np.asarray(values, dtype=np.float64))
                for part, values in parts.items()
            }
        return xr.Dataset(columns, coords={axis: self.theory[axis] for axis in sorted(used)})

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return the comparison: a row for each element of U_1, each score and each setting.

        `difference_in_mcse` is (sampled − theory)/MCSE, `relative_difference` is in units of
        |sampled|. `test_error` is the error by the finite test set, of the sampled number. A theory
        of your own has a column of its name.
        """
        rows = list(chain(*self.result.rows(self.path_names).values()))
        return comparison_table("", "", rows).to_dataframe()

    def save(self, path: str | Path) -> None:
        """Write strict JSON, the content of `comparison.json`."""
        write_json(Path(path), self.result.to_json())

    def __repr__(self) -> str:
        return f"{diagnostics_text(self.result.diagnostics)}\n{comparison_text(self)}"

    def _repr_html_(self) -> str:
        rows = list(chain(*self.result.rows(self.path_names).values()))
        table = comparison_table("", "", rows)._repr_html_()
        verdicts = (self.verdict, *self.own_verdicts.values(), self.reliability)
        return (
            "".join(verdict._repr_html_() for verdict in verdicts)
            + summary_table(self)._repr_html_()
            + f"<details><summary>every number, {len(rows)} rows</summary>{table}</details>"
        )


def head_table(theory: xr.Dataset, draws: xr.DataTree | None = None) -> "pandas.DataFrame":
    """Head scores by layer, from 1, and head, from 0; those of the draws with their MCSE."""
    import pandas

    if "head_score" not in theory:
        text = "nonlinear values have no head scores; give the theory of linear ones"
        raise InputError("theory", Verbatim("(infinite width)"), text)
    columns = {
        name: theory[f"head_score{ending}"].values
        for name, ending in (("theory", ""), ("next_order", NEXT_ORDER), ("trained", "_trained"))
        if f"head_score{ending}" in theory
    }
    if draws is not None:
        found = compare_head_scores(TheoryAndDraws(theory, draws)).get("head_score")
        if found is not None:
            columns |= {"sampled": found.sampled.value, "mcse": found.sampled.mcse}
    layers, heads = (theory[axis].values for axis in ("layer", "head"))
    index = pandas.MultiIndex.from_product([layers, heads], names=["layer", "head"])
    table = pandas.DataFrame({name: np.ravel(one) for name, one in columns.items()}, index)
    return table.dropna(how="all")  # a layer with fewer heads than another


def refuse_unrelated(theory: xr.Dataset | None, draws: xr.DataTree) -> None:
    """Raise InputError unless theory and draws belong to the same paths, test set, temperature."""
    if not isinstance(draws, xr.DataTree) or "posterior" not in draws.children:
        raise InputError("draws", type(draws).__name__, "give what sample(task, network) returns")
    if theory is None:
        return
    if not isinstance(theory, xr.Dataset) or "predictor_mean" not in theory:
        raise InputError("theory", type(theory).__name__, "give what solve(task, network) returns")
    for axis, group in (("path", "posterior"), ("test_example", PREDICTIONS)):
        drawn = draws[group].to_dataset() if group in draws.children else xr.Dataset()
        expected, received = (
            [str(name) for name in table[axis].values] if axis in table.coords else None
            for table in (theory, drawn)
        )
        if received is not None and received != expected:
            raise InputError("draws", received, f"these are not the {axis}s of the theory")
    expected = theory.attrs["temperature"]
    received = float(draws["constant_data"]["temperature"])
    if received != expected:
        remedy = f"compare with a theory at it, not at {expected}"
        raise InputError("draws.temperature", received, remedy)
