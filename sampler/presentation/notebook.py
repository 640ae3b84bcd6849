"""A comparison in Python: as in the terminal, with tables and figures in notebooks."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import xarray as xr

from sampler.analysis import comparison
from sampler.analysis.draws import PREDICTIONS
from sampler.analysis.names import numbers_in_model
from sampler.analysis.predictors import LEADING, NEXT, predicted
from sampler.analysis.quantities import QUANTITIES
from sampler.analysis.results import RunResults
from sampler.analysis.text import wrapped
from sampler.analysis.theory_and_draws import TheoryAndDraws
from sampler.errors import InputError, Verbatim
from sampler.posterior.spaces import SpaceName
from sampler.presentation.summary import comparison_text, verdicts_text
from sampler.presentation.views import tables_of
from sampler.storage.files import write_json

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Comparison(comparison.ComparisonTree):
    """Theories against draws, in memory or in a directory; prints as `compare` does.

    run: the results that are compared
    """

    run: RunResults

    @classmethod
    def of(cls, run: RunResults) -> "Comparison":
        return cls(run.comparison.tree, run)

    def plot(self, figure: str = "theory_against_draws", **options: Any) -> "Figure":
        """Draw theory against draws, or another figure of a run by its name, such as "kernels".

        `plot("kernels", paths=True)` has, below, the kernels of pairs of paths. Raises InputError,
        with the known names, for an unknown figure.
        """
        # Only here: `compare` in a terminal needs no figures.
        from sampler.presentation.figures.catalogue import draw_figure

        return draw_figure(self.run, figure, **options)

    def save(self, path: str | Path) -> None:
        """Write strict JSON, the content of `comparison.json`."""
        write_json(Path(path), self.to_json())

    def __repr__(self) -> str:
        parts = wrapped(str(self.reliability)), comparison_text(self.run)
        return "\n".join([*parts, "", verdicts_text(self.run)])

    def _repr_html_(self) -> str:
        verdicts = (self.verdict, *self.user_verdicts.values(), self.reliability)
        first, *others = (table for table in tables_of(self.run) if table)
        hidden = "".join(table._repr_html_() for table in others)
        return (
            "".join(verdict._repr_html_() for verdict in verdicts)
            + first._repr_html_()
            + f"<details><summary>every number</summary>{hidden}</details>"
        )


def head_table(theory: xr.Dataset, draws: xr.DataTree | None = None) -> "pandas.DataFrame":
    """Head scores by layer, from 1, and head, from 0; those of the draws with their MCSE.

    Of a window of a model layers and heads have their numbers in the model.
    """
    import pandas

    if "head_score" not in theory:
        text = "nonlinear values have no head scores; give the theory of linear ones"
        raise InputError("theory", Verbatim("(infinite width)"), text)
    scores = {name: predicted(theory, "head_score", name) for name in (LEADING, NEXT)}
    if "head_score_trained" in theory:
        scores["trained"] = theory["head_score_trained"].values
    columns = {name: values for name, values in scores.items() if values is not None}
    if draws is not None:
        sampled = QUANTITIES["head_score"].sampled(TheoryAndDraws(theory, draws))
        if sampled is not None:
            columns |= {"sampled": sampled.value, "mcse": sampled.mcse}
    places = [
        (layer, number)
        for layer, names in zip(theory["layer"].values, theory["head_name"].values, strict=True)
        for number in numbers_in_model(list(map(str, names)))
    ]
    index = pandas.MultiIndex.from_tuples(places, names=["layer", "head"])
    table = pandas.DataFrame({name: np.ravel(values) for name, values in columns.items()}, index)
    return table.dropna(how="all")  # a layer with fewer heads than another


def refuse_unrelated(theory: xr.Dataset | None, draws: xr.DataTree) -> None:
    """Raise InputError unless theory and draws have one test set, paths, priors, temperature."""
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
    space = draws["posterior"].attrs.get("space")
    if space is not None and space not in get_args(SpaceName):
        remedy = (
            "it has priors of its own, and the theory Gaussian weights; give None as the theory"
        )
        raise InputError("draws.space", space, remedy)
    expected = theory.attrs["temperature"]
    received = float(draws["constant_data"]["temperature"])
    if received != expected:
        remedy = f"compare with a theory at it, not at {expected}"
        raise InputError("draws.temperature", received, remedy)
