"""Everything the theory says of a problem, as one labelled table (`theory.nc`).

What a predictor says has an axis `predictor`: both orders in 1/N, and infinite width at the
temperature of the problem and at its own.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from sampler.analysis.example_tables import (
    kernel_coordinates,
    kernel_of,
    path_kernel_columns,
)
from sampler.analysis.infinite_tuned import TunedInfiniteWidth
from sampler.analysis.leave_one_out import left_out_by_example
from sampler.analysis.names import (
    head_names,
    label,
    order_parameter_dimensions,
    predictor_dimensions,
    squeeze_output,
    with_long_names,
)
from sampler.analysis.predictors import (
    AXIS,
    INFINITE,
    LEADING,
    NEXT,
    TUNED,
    Variable,
    along_predictors,
)
from sampler.analysis.validation import moments_at, validation_columns, validation_of_subnetworks
from sampler.errors import with_keys
from sampler.problem import Problem, square_roots
from theory import (
    AttentionPaths,
    LearningProblem,
    NextOrder,
    OrderParameters,
    Predictor,
    SaddlePoint,
    diagonal_only,
    equal_diagonal,
    head_scores,
    kernel_alignment,
    off_diagonal_share,
    participation_ratio,
    predict,
    sub_network,
)
from theory.evidence import log_evidence_at_saddle
from theory.observables import accuracy
from theory.path_kernels import assemble_kernel

Columns = dict[str, Variable]


def theory_table(
    problem: Problem,
    saddle_point: SaddlePoint,
    subnetworks: tuple[tuple[tuple[int, ...], ...], ...],
    next_order: NextOrder | None = None,
    cut: bool = False,
) -> xr.Dataset:
    """Order parameters, predictors, kernels, scores and accuracies of every predictor.

    With `cut` there are accuracies with U_1 cut to its diagonal, and with an equal diagonal. A
    saddle point that did not converge gives a table whose `status` says so and whose predictions to
    leading order are all NaN: an unconverged point is never shown as the theory's.
    """
    learning, converged = problem.learning, saddle_point.converged
    tuned = TunedInfiniteWidth.of(problem)
    overlap = np.asarray(saddle_point.order_parameters.matrices[0])
    predictions = {LEADING: leading_order(problem, saddle_point)}
    if next_order is not None and next_order.defined:
        predictions[NEXT] = next_order_of(problem, next_order, shown=converged)
    predictions[INFINITE] = infinite_width(problem, learning)
    predictions[TUNED] = infinite_width(problem, tuned.learning, tuned.log_evidence)
    left_out, labels = left_out_by_example(problem, saddle_point, tuned.learning)
    for predictor, columns in left_out.items():
        predictions[predictor] |= columns
    table = along_predictors(predictions)
    if "elpd_by_example" in table:
        table["elpd_by_example"].attrs["labels"] = labels
    columns = saddle_point_columns(problem, saddle_point)
    if cut:
        columns |= cut_columns(problem, saddle_point)
    if converged:
        columns |= path_kernel_columns(problem, overlap)
    columns |= subnetwork_columns(problem, subnetworks)
    columns |= trained_columns(problem)
    columns |= redundancy_of_heads(problem)
    columns |= validation_of_subnetworks(problem, subnetworks)
    predictors = table[AXIS].values
    table = label(table.assign(columns), problem).assign_coords({AXIS: predictors})
    axes = ("layer", "head")
    names = head_names(problem, tuple(table.sizes[axis] for axis in axes))
    table = table.assign_coords(head_name=(axes, names))
    if converged:
        table = table.assign_coords(kernel_coordinates(problem, overlap))
    if subnetworks:
        names = [name_subnetwork(problem, kept) for kept in subnetworks]
        table = table.assign_coords(sub_network=names)
    table = with_long_names(table).assign_attrs(
        next_order_attributes(table, next_order) | tuned.attributes
    )
    return table.assign_attrs(
        status=saddle_point.status.value,
        converged=int(converged),
        explanation=with_keys(saddle_point.explain(), "theory"),
        tolerance=saddle_point.tolerance,
        newton_steps=saddle_point.steps,
        temperature=learning.temperature,
        widths=list(problem.architecture.widths),
    )


# --- predictors


def leading_order(problem: Problem, saddle_point: SaddlePoint) -> Columns:
    """Everything predicted from the saddle point; NaN throughout if it did not converge."""
    learning = problem.learning
    factors = saddle_point.order_parameters.factors
    matrices = [np.asarray(matrix) for matrix in saddle_point.order_parameters.matrices]
    columns = order_parameter_columns(problem, matrices)
    columns |= moment_columns(problem, *moments_at(learning, factors[0])(problem.attended_test))
    columns |= alignment_column(problem, factors[0])
    columns |= validation_columns(problem, moments_at(learning, factors[0]))
    columns["log_evidence"] = ((), laplace_evidence(problem, saddle_point))
    columns |= kernel_of(problem, matrices[0])
    if not saddle_point.converged:
        columns = {
            name: (axes, np.full(np.shape(values), np.nan))
            for name, (axes, values) in columns.items()
        }
    return columns | {"temperature": ((), learning.temperature)}


def next_order_of(problem: Problem, expansion: NextOrder, shown: bool) -> Columns:
    """Predictions to next order; NaN for a variance that would not be positive."""

    def moments(attended) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = expansion.predict(attended)
        return mean, np.where(variance > 0.0, variance, np.nan)

    overlap = expansion.order_parameters[0]
    columns = order_parameter_columns(problem, expansion.order_parameters)
    columns |= moment_columns(problem, *moments(problem.attended_test))
    columns |= alignment_column(problem, jnp.asarray(square_roots(overlap)))
    columns |= validation_columns(problem, expansion.predict)
    if shown:
        columns |= kernel_of(problem, overlap)
    columns["log_evidence"] = ((), expansion.log_evidence)
    return columns | {"temperature": ((), problem.temperature)}


def infinite_width(
    problem: Problem, learning: LearningProblem, log_evidence: float | None = None
) -> Columns:
    """Predictions of the network of infinite width with this training data.

    log_evidence: where it is known that the temperature is not that of the problem; alignment and
    kernel, which know no temperature, are then left to the entry that has it.
    """
    limit = OrderParameters.gp_limit(problem.architecture)
    moments = moments_at(learning, limit.factors[0])
    columns = moment_columns(problem, *moments(problem.attended_test))
    columns |= validation_columns(problem, moments, learning.temperature)
    if log_evidence is None:
        log_evidence = evidence_at(problem, limit.factors[0])
        columns |= alignment_column(problem, limit.factors[0])
        columns |= kernel_of(problem, np.asarray(limit.matrices[0]))
    columns["log_evidence"] = ((), log_evidence)
    return columns | {"temperature": ((), learning.temperature)}


def order_parameter_columns(problem: Problem, matrices) -> Columns:
    """U_1 … U_L, U_a, and the head scores that follow from U_1."""
    named = order_parameter_dimensions(problem.architecture.layers)
    columns: Columns = {
        name: (axes, matrix) for (name, axes), matrix in zip(named, matrices, strict=True)
    }
    scores = head_scores(matrices[0], AttentionPaths(problem.learning.architecture.heads))
    return columns | {"head_score": (("layer", "head"), scores)}


def moment_columns(problem: Problem, mean: np.ndarray, variance: np.ndarray) -> Columns:
    """Mean and variance of f on the test set, and the accuracy of the mean."""
    axes = predictor_dimensions(mean.shape[1])
    return {
        "predictor_mean": (axes, squeeze_output(mean)),
        "predictor_variance": (axes, squeeze_output(variance)),
        "accuracy": ((), accuracy(mean, problem.labels_test)),
    }


def alignment_column(problem: Problem, factor: Float[Array, "row _rank"]) -> Columns:
    """Kernel–task alignment of every component at U_1 = F Fᵀ, largest eigenvalue first."""
    energy = problem.learning.energy
    kernel = assemble_kernel(energy.kernels, factor)
    labels = jnp.asarray(np.asarray(energy.labels).reshape(-1))
    found = kernel_alignment(kernel, labels, problem.learning.residual_squares)
    return {"kernel_alignment": (("component",), np.asarray(found))}


_energy = jax.jit(lambda energy, factor: energy(factor))


def laplace_evidence(problem: Problem, saddle_point: SaddlePoint) -> float:
    """ln p(y) by Laplace's approximation.

    NaN where it does not exist: without a minimum of the action, in layers narrower than their
    order parameter, and for a Hessian too large to be factorised.
    """
    learning = problem.learning
    architecture = learning.architecture
    exists = saddle_point.converged and architecture.is_regular and architecture.is_dense
    return log_evidence_at_saddle(learning, saddle_point) if exists else math.nan


def evidence_at(problem: Problem, factor: Float[Array, "row _rank"]) -> float:
    """ln p(y) at a fixed U_1."""
    learning = problem.learning
    evidence = -0.5 * float(_energy(learning.energy, factor))
    evidence -= 0.5 * learning.labels.size * math.log(2.0 * math.pi)
    return evidence + learning.residual_log_likelihood


# --- columns without predictors


def saddle_point_columns(problem: Problem, saddle_point: SaddlePoint) -> Columns:
    """How the saddle point was reached, and what its U_1 says of the heads."""
    overlap = np.asarray(saddle_point.order_parameters.matrices[0])
    known = 1.0 if saddle_point.converged else math.nan
    return {
        "action": ((), saddle_point.action),
        "gradient_norm": ((), saddle_point.gradient_norm),
        "smallest_hessian_eigenvalue": ((), saddle_point.smallest_hessian_eigenvalue),
        "start_disagreement": ((), saddle_point.start_disagreement),
        "participation_ratio": ((), known * participation_ratio(overlap)),
        "off_diagonal_share": ((), known * off_diagonal_share(overlap)),
    }


def cut_columns(problem: Problem, saddle_point: SaddlePoint) -> Columns:
    """Accuracies without cross terms of U_1, and without differences on its diagonal.

    NaN where the matrix is not positive definite, or the saddle point did not converge.
    """
    predictor = Predictor.for_examples(problem.learning, problem.attended_test)
    factor, columns = saddle_point.order_parameters.factors[0], {}
    for name, cut in {"diagonal_only": diagonal_only, "equal_diagonal": equal_diagonal}.items():
        left, share = cut(factor) if saddle_point.converged else None, math.nan
        if left is not None:
            share = accuracy(np.asarray(predict(predictor, left)[0]), problem.labels_test)
        columns[f"accuracy_{name}"] = ((), share)
    return columns


def trained_columns(problem: Problem) -> Columns:
    """U_GD, its head scores, and accuracies on the test set of trained network and pixels."""
    columns: Columns = {}
    if problem.nearest_neighbour is not None and problem.labels_test is not None:
        right = 0.5 + 0.5 * problem.nearest_neighbour * problem.labels_test[:, 0]
        columns["accuracy_nearest_neighbour"] = ((), right.mean())
    if problem.trained is not None:
        overlap = problem.trained.overlap()
        predictions = problem.trained.predictor(problem.attended_test)
        columns["order_parameter_trained"] = (("path", "path_"), overlap)
        columns["head_score_trained"] = (
            ("layer", "head"),
            head_scores(overlap, AttentionPaths(problem.trained.architecture.heads)),
        )
        columns["accuracy_trained"] = ((), accuracy(predictions, problem.labels_test))
    return columns


def redundancy_of_heads(problem: Problem) -> Columns:
    """How much heads are alike before any weight is learned."""
    columns: Columns = {}
    if problem.head_distances is not None:
        for what in ("matrices", "outputs"):
            mean, deviation = getattr(problem.head_distances, what)
            columns[f"head_distance_{what}"] = ((), mean)
            columns[f"head_distance_{what}_deviation"] = ((), deviation)
    return columns


def subnetwork_columns(problem: Problem, subnetworks) -> Columns:
    """Accuracy at infinite width of each sub-network."""
    if not subnetworks:
        return {}
    accuracies = []
    for kept in subnetworks:
        smaller, attended = sub_network(problem.learning, kept, problem.attended_test)
        predictor = Predictor.for_examples(smaller, attended)
        factor = OrderParameters.gp_limit(smaller.architecture).factors[0]
        mean, _ = predict(predictor, factor)
        accuracies.append(accuracy(np.asarray(mean), problem.labels_test))
    return {"accuracy_of_sub_network": (("sub_network",), accuracies)}


def name_subnetwork(problem: Problem, kept) -> str:
    """The paths of a sub-network, joined by +."""
    chosen = AttentionPaths(problem.architecture.heads).subset(kept)
    return " + ".join(problem.path_names[path] for path in chosen)


def next_order_attributes(table: xr.Dataset, expansion: NextOrder | None) -> dict:
    """Status of the expansion, the size of its correction, and one line about both."""
    if expansion is None:
        return {}
    explanation = expansion.explain()
    if expansion.defined:
        undefined = int(table["predictor_variance"].sel({AXIS: NEXT}).isnull().sum())
        if undefined:
            explanation += f"; predictive variance not positive at {undefined} test examples"
    return {
        "next_order_status": expansion.status.name.lower(),
        "next_order_correction": expansion.correction,
        "next_order_spread": expansion.spread,
        "next_order_explanation": explanation,
    }
