"""Theories of networks with nonlinear values, as one table: infinite width and two approximations.

Each is a column beside the exact posterior, as a theory of the user's own is.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import xarray as xr

from sampler.analysis.labels import (
    BY_HEADS,
    LIMIT,
    ONE_SCALE,
    label,
    order_parameter_dimensions,
    squeeze_output,
    with_long_names,
)
from sampler.errors import with_keys
from sampler.recipes.sections import TheorySection
from sampler.storage.own_theories import axes_of_network, stacked
from sampler.token_network import TokenSplit
from sampler.token_problem import TokenProblem
from theory.by_heads import kernel_parts, kernels_by_heads, solve_by_heads
from theory.nonlinear_kernels import Kernels, NonlinearProblem, TokenExamples, kernels_at
from theory.one_scale import solve_one_scale

VALUE_THEORIES = (LIMIT, ONE_SCALE, BY_HEADS)


def value_theories(problem: TokenProblem, settings: TheorySection) -> xr.Dataset:
    """Predictions of all three, stacked along `own_theory`, NaN for what one does not predict.

    What did not converge predicts nothing. The attributes say how each was found.
    """
    solver = NonlinearTheories.of(problem)
    limit, evidence = solver.limit()
    scaled, of_scales = solver.one_scale(settings)
    by_heads, of_heads = solver.by_heads(settings)
    architecture = problem.architecture
    found = dict(zip(VALUE_THEORIES, (limit, scaled, by_heads), strict=True))
    table = stacked(found, axes_of_network(architecture, len(problem.test.inputs)))
    names = table["own_theory"].values
    table = label(table, problem).assign_coords(own_theory=names)
    said = (
        f"ln p(y) = {evidence:.4g} at {LIMIT}",
        of_scales.explain(),
        f"{BY_HEADS}: {of_heads.explain()}",
    )
    table = with_long_names(table)
    table["log_evidence"].attrs["long_name"] = f"ln p(y) at {LIMIT}"
    return table.assign_attrs(
        converged=int(of_scales.converged and of_heads.converged),
        explanation=with_keys("; ".join(said), "theory"),
        scales=of_scales.scales,
        temperature=problem.temperature,
        widths=list(architecture.widths),
    )


@dataclass(frozen=True)
class NonlinearTheories:
    """The learning problem of the three theories, and the test examples."""

    learning: NonlinearProblem
    test: TokenExamples

    @classmethod
    def of(cls, problem: TokenProblem) -> "NonlinearTheories":
        network = problem.network

        def read(split: TokenSplit) -> TokenExamples:
            return TokenExamples.read(split.inputs, split.attention, network.readout)

        learning = NonlinearProblem(
            network.architecture,
            network.values,
            read(problem.train),
            problem.labels,
            float(problem.temperature),
        )
        return cls(learning, read(problem.test))

    def limit(self):
        """Predictions at infinite width, and ln p(y)."""
        predicted, evidence = self.regression(kernels_at(self.learning, self.test))
        return predicted | {"log_evidence": np.asarray(evidence)}, float(evidence)

    def one_scale(self, settings: TheorySection):
        """Predictions with one scale a layer, and these."""
        found = solve_one_scale(self.learning, max_steps=settings.max_steps)
        if not found.converged:
            return {}, found
        scales = found.scales * np.array(self.learning.architecture.order_parameter_variances)
        kernels = kernels_at(self.learning, self.test, jnp.asarray(scales))
        return self.regression(kernels)[0], found

    def by_heads(self, settings: TheorySection):
        """Predictions and order parameters of all heads, and how they were found."""
        parts = kernel_parts(self.learning, self.learning.train)
        found = solve_by_heads(
            self.learning,
            parts,
            tolerance=settings.tolerance,
            max_steps=settings.max_steps,
            starts=settings.starts,
            seed=settings.seed,
        )
        if not found.converged:
            return {}, found
        kernels = kernels_by_heads(self.learning, found.order_parameters, self.test, parts)
        named = order_parameter_dimensions(self.learning.architecture.layers)
        matrices = map(np.asarray, found.order_parameters.matrices)
        overlaps = {name: matrix for (name, _), matrix in zip(named, matrices, strict=True)}
        return self.regression(kernels)[0] | overlaps, found

    def regression(self, kernels: Kernels):
        """Mean and variance of the predictor, and ln p(y)."""
        labels, tests = self.learning.labels, len(self.test)
        # Rows are examples, or examples and outputs.
        sets = labels.reshape(len(kernels.train), -1)
        *moments, evidence = kernels.regression(sets, self.learning.temperature)
        mean, variance = (squeeze_output(np.asarray(m).reshape(tests, -1)) for m in moments)
        return {"predictor_mean": mean, "predictor_variance": variance}, evidence
