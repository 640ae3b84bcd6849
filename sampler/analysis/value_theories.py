"""Networks with nonlinear values at infinite width, as a column beside the exact posterior.

It stands there as a theory of the user's own does.
"""

import numpy as np
import xarray as xr

from sampler.analysis.labels import LIMIT, label, squeeze_output, with_long_names
from sampler.analysis.user_theories import axes_of_network, stacked
from sampler.errors import InputError
from sampler.token_network import TokenSplit
from sampler.token_problem import TokenProblem
from theory import TemperatureTooSmall
from theory.nonlinear_kernels import NonlinearProblem, TokenExamples, kernels_at


def value_theories(problem: TokenProblem) -> xr.Dataset:
    """Predictions and ln p(y) at infinite width, along an axis `own_theory` of one entry.

    Raises InputError for a temperature that is lost in the rounding of the kernel.
    """
    learning, test = learning_problem(problem)
    try:
        kernels = kernels_at(learning, test)
    except TemperatureTooSmall as error:
        raise InputError("temperature", error.temperature, error.remedy) from None
    *moments, evidence = kernels.regression(learning.labels, learning.temperature)
    mean, variance = (squeeze_output(np.asarray(moment)) for moment in moments)
    found = {
        "predictor_mean": mean,
        "predictor_variance": variance,
        "log_evidence": np.asarray(evidence),
    }
    table = stacked({LIMIT: found}, axes_of_network(problem.architecture, len(test)))
    names = table["own_theory"].values
    table = with_long_names(label(table, problem).assign_coords(own_theory=names))
    return table.assign_attrs(
        converged=1,
        explanation=f"ln p(y) = {float(evidence):.4g} at {LIMIT}",
        temperature=problem.temperature,
        widths=list(problem.architecture.widths),
    )


def learning_problem(problem: TokenProblem) -> tuple[NonlinearProblem, TokenExamples]:
    """The training data as the kernels take them, and the test examples."""
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
    return learning, read(problem.test)
