"""Attention that was sampled: numbers of its heads with their errors, from `draws.nc`.

Heads are in matched order (`sampler.analysis.matched_heads`): what exchanges of heads mix up,
matrices and U_1, then has a mean over draws. Of several modes that mean is no attention: single
draws stand beside it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from sampler.analysis.draws import Draws
from sampler.analysis.estimates import Averages, Estimate, PredictorEstimates
from sampler.analysis.matched_heads import NUMBERS
from sampler.analysis.scores import with_output
from sampler.attention.layers import paired
from sampler.errors import InputError
from sampler.mcmc.convergence import rank_diagnostics, repetition_diagnostics

if TYPE_CHECKING:
    import pandas

GROUP, KERNEL = "attention", "kernel"
OF_REPETITIONS, OF_CHAINS = "spread of repetitions", "MCSE"


@dataclass(frozen=True)
class SampledHeads:
    """Sampled attention, of one run: numbers, mean matrices, single draws, U₁ and the predictor.

    draws  as `sample` returns them
    """

    draws: xr.DataTree

    @classmethod
    def of(cls, draws: Any) -> "SampledHeads":
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
        matches = (re.fullmatch(r"head_of_place_(\d+)", str(name)) for name in self.table)
        return tuple(sorted(int(match[1]) for match in matches if match))

    @cached_property
    def averages(self) -> Averages:
        """How draws are averaged: chains alike, or repetitions by their weights."""
        return Draws(self.draws).averages

    @property
    def weights(self) -> Float[np.ndarray, " repetition"] | None:
        """Weights of the chains where they are repetitions; None where they are Markov chains."""
        return self.averages.weights

    @property
    def chain_weights(self) -> Float[np.ndarray, " chain"]:
        """Weights of the chains, up to a common factor."""
        return np.ones(self.table.sizes["chain"]) if self.weights is None else self.weights

    @property
    def kind_of_errors(self) -> str:
        """Origin of all errors: the spread of repetitions, or the effective draws of chains."""
        return OF_CHAINS if self.weights is None else OF_REPETITIONS

    @cached_property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """Layer, from 1, and place in matched order, from 0, of every learned head."""
        learned = ((n, np.flatnonzero(self.table[f"learned_{n}"].values)) for n in self.layers)
        return tuple((layer, int(head)) for layer, heads in learned for head in heads)

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each number of a learned head: entropy, and distance from the prior mean.

        layer, head       as in `heads`, with the name of the head
        value, error      mean over draws; error by the spread of repetitions or as an MCSE
        r_hat             of the number
        prior             mean over draws of the prior
        prior_deviation   standard deviation of a draw of the prior
        """
        import pandas

        diagnostics = rank_diagnostics if self.weights is None else repetition_diagnostics
        rows = []
        for (layer, head), (key, quantity) in product(self.heads, NUMBERS.items()):
            drawn = self.table[f"{key}_{layer}"].values[..., head]
            prior = self.table[f"{key}_{layer}_prior"].values[..., head]
            mean = self.averages.mean(drawn)
            rows.append(
                {
                    "layer": layer,
                    "head": head,
                    "name": str(self.table[f"head_{layer}"].values[head]),
                    "quantity": quantity,
                    "value": float(mean.value),
                    "error": float(mean.mcse),
                    "r_hat": float(diagnostics(drawn)[0]),
                    "prior": prior.mean(),
                    "prior_deviation": prior.std(ddof=1),
                }
            )
        return pandas.DataFrame(rows)

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
        ordered = np.take_along_axis(overlaps, rows[..., :, None], axis=2)
        return self.averages.mean(np.take_along_axis(ordered, rows[..., None, :], axis=3))

    @property
    def path_names(self) -> tuple[str, ...]:
        """Names of the rows of U₁, whose heads are places in matched order."""
        posterior = self.draws["posterior"].to_dataset()
        return tuple(map(str, posterior["path"].values)) if "path" in posterior.coords else ()

    @cached_property
    def predictor(self) -> PredictorEstimates:
        """Mean and variance of f on the test set, with their errors."""
        draws = Draws(self.draws).predictors
        return self.averages.predictor(draws.map(with_output))

    @property
    def kernel_alignment(self) -> Estimate | None:
        """|e_i·y|/|y| of eigenvectors e_i of the mean kernel, largest first; None where unknown."""
        if KERNEL not in self.draws.children or "kernel_alignment" not in self.draws[KERNEL]:
            return None
        table = self.draws[KERNEL]
        return Estimate(table["kernel_alignment"].values, table["kernel_alignment_mcse"].values)


def matched_rows(
    orders: Sequence[Int[np.ndarray, "chain draw _place"]], rows: int
) -> Int[np.ndarray, "chain draw row"]:
    """The row of U_1 of each draw that stands at each row in matched order.

    orders  for each layer of weights the head that stands at each place
    rows    of U_1, paths with the head of layer 1 slowest, times outputs
    """
    shape = orders[0].shape[:2]
    paths = np.zeros((*shape, 1), int)
    for order in orders:
        paths = (paths[..., :, None] * order.shape[2] + order[..., None, :]).reshape(*shape, -1)
    outputs = rows // paths.shape[2]
    return (paths[..., None] * outputs + np.arange(outputs)).reshape(*shape, rows)
