"""Columns of theories of sampled attention, as they stand beside the exact posterior.

They are read from the group `attention_theories` of the draws. A column has an error of its own,
known by the same groups of draws as that of the exact posterior where these are repetitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from sampler.analysis.attention_theories import DEVIATIONS, EXACT_ROW, THEORY
from sampler.analysis.compared import Compared
from sampler.analysis.draws_table import ATTENTION_THEORIES, EXCHANGEABLE
from sampler.analysis.estimate import Estimate, RepetitionWeights, mean_of
from sampler.analysis.verdict import Verdict


@dataclass(frozen=True)
class AttentionColumns:
    """The columns that serve, and why others do not.

    columns  name → key of `comparison.json` → what it predicts, with its deviations
    exact    key → the exact posterior at the same draws, of what follows from attention alone
    refused  name → reason
    """

    columns: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)
    exact: Mapping[str, Estimate] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: xr.DataTree) -> "AttentionColumns":
        """Those of stored draws; nothing where theories were not solved there."""
        if ATTENTION_THEORIES not in tree.children:
            return cls()
        table = tree[ATTENTION_THEORIES].to_dataset()
        refused = {
            str(name): str(reason)
            for name, reason in zip(
                table[THEORY].values, table["not_usable_because"].values, strict=True
            )
            if str(reason)
        }
        columns = {
            str(name): estimates_of(table.sel({THEORY: name}))
            for name in table[THEORY].values
            if str(name) not in refused
        }
        return cls(columns, columns.pop(EXACT_ROW), refused)

    def predicted(self, key: str) -> dict[str, Estimate]:
        return {name: one[key] for name, one in self.columns.items() if key in one}

    @property
    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """Every column as a theory of the user's own is given."""
        return {
            name: {key: np.asarray(found.value) for key, found in one.items()}
            for name, one in self.columns.items()
        }

    def compared(self, tree: xr.DataTree, weights: RepetitionWeights) -> dict[str, Compared]:
        """Attention itself, and the trace of U_1: quantities of sampled attention alone.

        The trace stands for U_1 where heads can be exchanged, which leaves it as it is.
        """
        sampled = dict(self.exact)
        if self.columns and tree["posterior"].attrs.get(EXCHANGEABLE):
            draws = tree["posterior"].to_dataset().get("order_parameter")
            if draws is not None:
                trace = np.trace(draws.values.astype(np.float64), axis1=2, axis2=3)
                sampled["overlap_trace"] = mean_of(trace, weights)
        found = {}
        for key, one in sampled.items():
            own = {name: np.asarray(each.value) for name, each in self.predicted(key).items()}
            found[key] = Compared(None, one, own=own or None)
        return found

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Verdicts on the columns that do not serve."""
        return {
            name: Verdict("neutral", f"{name}: nothing can be said of it: {reason}.")
            for name, reason in self.refused.items()
        }


def estimates_of(column: xr.Dataset) -> dict[str, Estimate]:
    found = {}
    for name, values in column.items():
        deviations = column.get(f"{name}{DEVIATIONS}")
        if deviations is None or not np.isfinite(values.values).all():
            continue
        rows = deviations.values
        mcse = np.sqrt(np.sum(rows**2, axis=0))
        found[str(name)] = Estimate(values.values, mcse, rows, len(rows) - 1)
    return found


def gap_of(sampled: Estimate, theory: Estimate, paired: bool) -> Estimate:
    """The sampled numbers with the error of their difference from a theory that has one, too.

    paired  whether rows of deviations belong to the same repetitions in both; else both errors
            count as independent
    """
    of_sampled, of_theory = sampled.deviations, theory.deviations
    if of_sampled is None:
        return Estimate(sampled.value, np.hypot(sampled.mcse, theory.mcse), None, sampled.degrees)
    if paired and len(of_sampled) == len(of_theory):
        rows = of_sampled - of_theory
        mcse = np.sqrt(np.sum(rows**2, axis=0))
    else:
        rows = np.concatenate([of_sampled, of_theory])
        mcse = np.hypot(sampled.mcse, theory.mcse)
    return Estimate(sampled.value, mcse, rows, min(sampled.degrees, theory.degrees))
