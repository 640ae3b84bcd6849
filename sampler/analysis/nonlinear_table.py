"""Networks with nonlinear values at infinite width, as a table of the theory with one predictor."""

import numpy as np
import xarray as xr

from sampler.analysis.names import label, predictor_dimensions, squeeze_output, with_long_names
from sampler.analysis.predictors import AXIS, INFINITE, along_predictors, predictor_name
from sampler.errors import InputError
from sampler.token_network import TokenSplit
from sampler.token_problem import TokenProblem
from theory import TemperatureTooSmall
from theory.nonlinear_kernels import NonlinearProblem, TokenExamples, kernels_at
from theory.observables import accuracy


def nonlinear_table(problem: TokenProblem) -> xr.Dataset:
    """Predictions and ln p(y) at infinite width, the one entry of the axis `predictor`.

    Raises InputError for a temperature that is lost in the rounding of the kernel.
    """
    learning, test = learning_problem(problem)
    try:
        kernels = kernels_at(learning, test)
    except TemperatureTooSmall as error:
        raise InputError("temperature", error.temperature, error.remedy) from None
    mean, variance, evidence = kernels.regression(learning.labels, learning.temperature)
    mean, variance = np.asarray(mean), np.asarray(variance)
    axes = predictor_dimensions(mean.shape[1])
    columns = {
        "predictor_mean": (axes, squeeze_output(mean)),
        "predictor_variance": (axes, squeeze_output(variance)),
        "accuracy": ((), accuracy(mean, problem.labels_test)),
        "log_evidence": ((), np.asarray(evidence)),
        "temperature": ((), float(problem.temperature)),
    }
    table = along_predictors({INFINITE: columns})
    table = with_long_names(label(table, problem).assign_coords({AXIS: [INFINITE]}))
    return table.assign_attrs(
        converged=1,
        explanation=f"ln p(y) = {float(evidence):.4g} at {predictor_name(INFINITE)}",
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
