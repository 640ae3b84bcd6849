"""Attention that was found: numbers of its heads with their errors, from the content of `draws.nc`.

Heads are in matched order (`sampler.analysis.attention_table`): what exchanges of heads mix up,
matrices and U_1, then has a mean over draws. Of several modes that mean is no attention: single
draws stand beside it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from sampler.analysis.attention_table import PRIOR_MEAN
from sampler.analysis.draws_table import PREDICTIONS, stored_weights, with_output
from sampler.analysis.estimates import (
    Estimate,
    PredictorEstimates,
    RepetitionWeights,
    mean_of,
    predictor_estimates,
)
from sampler.attention.layers import paired
from sampler.errors import InputError
from sampler.mcmc.convergence import rank_diagnostics, repetition_diagnostics
from sampler.recipes.task_section import UNIFORM

if TYPE_CHECKING:
    import pandas

GROUP, KERNEL = "attention", "kernel"
ENTROPY = "entropy"
OF_REPETITIONS, OF_CHAINS = "spread of repetitions", "MCSE"


@dataclass(frozen=True)
class HeadNumber:
    """A number of a learned head: its mean over draws, and what it is without data.

    layer            from 1, among layers of attention
    head             from 0, at its place in matched order
    quantity         "entropy", "distance from …" or "overlap with …"
    error            standard error of the value, by the spread of repetitions or as an MCSE
    prior            mean over the prior
    prior_deviation  standard deviation of a draw of the prior
    """

    layer: int
    head: int
    name: str
    quantity: str
    value: float
    error: float
    r_hat: float
    prior: float
    prior_deviation: float


@dataclass(frozen=True)
class AttentionFound:
    """Sampled attention, of one run: numbers, mean matrices, single draws, U₁ and the predictor.

    draws  as `sample` returns them
    """

    draws: xr.DataTree

    @classmethod
    def of(cls, draws: Any) -> "AttentionFound":
        """Take draws of a network whose attention is sampled; InputError for any others."""
        if not isinstance(draws, xr.DataTree) or "posterior" not in draws.children:
            remedy = "give what sample(task, network) returns, or a run"
            raise InputError("draws", type(draws).__name__, remedy)
        if GROUP not in draws.children or not cls(draws).layers:
            remedy = 'attention was not sampled; use heads of the kind "learned"'
            raise InputError("draws", list(map(str, draws.children)), remedy)
        return cls(draws)

    @cached_property
    def table(self) -> xr.Dataset:
        """The group `attention` of `draws.nc`: matrices, and numbers of every draw and head."""
        return self.draws[GROUP].to_dataset()

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of attention with learned heads, from 1."""
        found = (re.fullmatch(r"head_of_place_(\d+)", str(name)) for name in self.table)
        return tuple(sorted(int(match[1]) for match in found if match))

    @cached_property
    def weights(self) -> RepetitionWeights:
        """Weights of the chains where they are repetitions; None where they are Markov chains."""
        return stored_weights(self.draws)

    @property
    def chain_weights(self) -> Float[np.ndarray, " chain"]:
        """Weights of the chains, up to a common factor."""
        return np.ones(self.table.sizes["chain"]) if self.weights is None else self.weights

    @property
    def kind_of_errors(self) -> str:
        """Origin of all errors: the spread of repetitions, or the effective draws of chains."""
        return OF_CHAINS if self.weights is None else OF_REPETITIONS

    @cached_property
    def numbers(self) -> tuple[HeadNumber, ...]:
        """Numbers of all learned heads, layer by layer."""
        return tuple(number for layer in self.layers for number in self._of_layer(layer))

    def _of_layer(self, layer: int) -> list[HeadNumber]:
        table, found = self.table, []
        names = [str(name) for name in table[f"head_{layer}"].values]
        references = [str(name) for name in table[f"reference_{layer}"].values]
        columns: list[tuple[str, str, tuple[int, ...]]] = [(ENTROPY, ENTROPY, ())]
        for place, name in enumerate(references):
            columns.append(("distance", f"distance from {name}", (place,)))
        for place, name in enumerate(references):
            if name not in (PRIOR_MEAN, UNIFORM):  # with which that of any columns of sum 1 is 1
                columns.append(("overlap", f"overlap with {name}", (place,)))
        learned = np.flatnonzero(table[f"learned_{layer}"].values)
        for head in learned.tolist():
            for key, quantity, at in columns:
                drawn = table[f"{key}_{layer}"].values[(..., head, *at)]
                prior = table[f"{key}_{layer}_prior"].values[(..., head, *at)]
                estimate = mean_of(drawn, self.weights)
                r_hat = self._r_hat(drawn)
                found.append(
                    HeadNumber(
                        layer,
                        head,
                        names[head],
                        quantity,
                        float(estimate.value),
                        float(estimate.mcse),
                        float(r_hat),
                        float(prior.mean()),
                        float(prior.std(ddof=1)),
                    )
                )
        return found

    def _r_hat(self, drawn: Float[np.ndarray, "chain draw"]) -> float:
        """R-hat of the kind that chains of this run have."""
        if self.weights is None:
            found = rank_diagnostics(drawn[..., None])
        else:
            found = repetition_diagnostics(drawn[..., None])
        return float(found[0, 0])

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each number: layer, head, quantity, value, error, R-hat, and the prior's."""
        import pandas

        return pandas.DataFrame([vars(number) for number in self.numbers])

    def matrices(self, layer: int) -> xr.DataArray:
        """Mean attention [shown_example, head, key, query] of a layer, heads in matched order."""
        of_chains = self.table[f"attention_{layer}"]
        if self.weights is None:
            return of_chains.mean("chain")
        return of_chains.weighted(xr.DataArray(self.chain_weights, dims="chain")).mean("chain")

    def singles(self, layer: int) -> xr.DataArray:
        """Attention of single draws [chain, single, shown_example, head, key, query]."""
        return self.table[f"attention_{layer}_single"]

    @cached_property
    def order_parameter(self) -> Estimate | None:
        """Mean of U₁ with its error, paths in matched order; None where U₁ is not stored.

        Of the draws that attention was measured in; at infinite width U₁ is known.
        """
        posterior = self.draws["posterior"].to_dataset()
        if "order_parameter" not in posterior:
            return None
        measured = self.table["measured_draw"].values
        overlaps = np.asarray(posterior["order_parameter"].sel(draw=measured).values, np.float64)
        heads, pairs = (np.atleast_1d(self.table.attrs[key]) for key in ("heads", "pairs"))
        orders = [
            self.table[f"head_of_place_{layer}"].values
            if layer in self.layers
            else np.broadcast_to(np.arange(count), (*overlaps.shape[:2], count))
            for layer, count in enumerate(heads.tolist(), start=1)
        ]
        rows = matched_rows(paired(tuple(orders), tuple(map(bool, pairs))), overlaps.shape[-1])
        found = np.take_along_axis(overlaps, rows[..., :, None], axis=2)
        return mean_of(np.take_along_axis(found, rows[..., None, :], axis=3), self.weights)

    @property
    def path_names(self) -> tuple[str, ...]:
        """Names of the rows of U₁, whose heads are places in matched order."""
        posterior = self.draws["posterior"].to_dataset()
        return tuple(map(str, posterior["path"].values)) if "path" in posterior.coords else ()

    @cached_property
    def predictor(self) -> PredictorEstimates:
        """Mean and variance of f on the test set, with their errors."""
        table = self.draws[PREDICTIONS].to_dataset()
        draws = {str(name): with_output(str(name), drawn) for name, drawn in table.items()}
        return predictor_estimates(draws, self.weights)

    @property
    def kernel_alignment(self) -> Estimate | None:
        """|e_i·y|/|y| of eigenvectors e_i of the mean kernel, largest first; None where unknown."""
        if KERNEL not in self.draws.children:
            return None
        table = self.draws[KERNEL].to_dataset()
        if "kernel_alignment" not in table:
            return None
        names = ("kernel_alignment", "kernel_alignment_mcse")
        return Estimate(*(table[name].values for name in names))


def matched_rows(
    orders: Sequence[Int[np.ndarray, "chain draw _place"]], rows: int
) -> Int[np.ndarray, "chain draw row"]:
    """The row of U_1 of each draw that stands at each row in matched order.

    orders  for each layer of weights the head that stands at each place
    rows    of U_1, paths with the head of layer 1 slowest, times outputs
    """
    found = np.zeros((*orders[0].shape[:2], 1), int)
    for order in orders:
        found = (found[..., :, None] * order.shape[2] + order[..., None, :]).reshape(
            *found.shape[:2], -1
        )
    outputs = rows // found.shape[2]
    return (found[..., None] * outputs + np.arange(outputs)).reshape(*found.shape[:2], rows)
