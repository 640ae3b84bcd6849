"""Everything the theory says of a problem, as one labelled table."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from sampler.analysis.example_tables import kernel_columns, kernel_coordinates
from sampler.analysis.labels import (
    NEXT_ORDER,
    label,
    order_parameter_dimensions,
    predictor_dimensions,
    squeeze_output,
    with_long_names,
)
from sampler.analysis.leave_one_out import left_out_columns
from sampler.analysis.own_temperature import OwnLimit
from sampler.analysis.validation import (
    moments_at,
    validation_columns,
    validation_of_subnetworks,
)
from sampler.errors import with_keys
from sampler.problem import Problem, square_roots
from theory import (
    AttentionPaths,
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


def trained_columns(problem: Problem) -> dict:
    """U_GD, its head scores, and accuracies on the test set of trained network and pixels."""
    columns: dict = {}
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


_energy = jax.jit(lambda energy, factor: energy(factor))


def evidence_columns(problem: Problem, saddle_point: SaddlePoint) -> dict:
    """Columns `log_evidence` and `log_evidence_gp` of the table of the theory.

    Laplace's approximation is NaN where it does not exist: without a minimum of the action, in
    layers narrower than their order parameter, and for a Hessian too large to be factorised.
    """
    learning = problem.learning
    exists = saddle_point.converged and learning.architecture.is_regular
    known = exists and learning.architecture.is_dense
    laplace = log_evidence_at_saddle(learning, saddle_point) if known else float("nan")
    limit = OrderParameters.gp_limit(learning.architecture)
    energy = float(_energy(learning.energy, limit.factors[0]))
    gp = -0.5 * (energy + learning.labels.size * math.log(2.0 * math.pi))
    gp += learning.residual_log_likelihood
    return {"log_evidence": ((), laplace), "log_evidence_gp": ((), gp)}


def known(theory: xr.Dataset | None, name: str) -> float | None:
    """A number of the table of the theory, None where there is none."""
    value = float(theory[name]) if theory is not None and name in theory else math.nan
    return value if np.isfinite(value) else None


def theory_table(
    problem: Problem,
    saddle_point: SaddlePoint,
    subnetworks: tuple[tuple[tuple[int, ...], ...], ...],
    next_order: NextOrder | None = None,
    cut: bool = False,
) -> xr.Dataset:
    """Order parameters, predictors, GP limit, kernels, alignments, head scores and accuracies.

    What is known to next order in 1/N has the same name with `_next_order`. With `cut` there are
    accuracies with U_1 cut to its diagonal, and with an equal diagonal. A saddle point that did
    not converge gives a table whose `status` says so and whose predictions are all NaN: an
    unconverged point is never shown as the theory's.
    """
    learning, architecture = problem.learning, problem.architecture
    predictor = Predictor.for_examples(learning, problem.attended_test)
    limit = OrderParameters.gp_limit(architecture)
    gp_mean, gp_variance = map(np.asarray, predict(predictor, limit.factors[0]))
    columns = {
        "gp_mean": per_test_example(gp_mean),
        "gp_variance": per_test_example(gp_variance),
        "gp_kernel_alignment": (("component",), alignment(problem, limit.factors[0])),
        "accuracy_gp": ((), accuracy(gp_mean, problem.labels_test)),
        "action": ((), saddle_point.action),
        "gradient_norm": ((), saddle_point.gradient_norm),
        "smallest_hessian_eigenvalue": ((), saddle_point.smallest_hessian_eigenvalue),
        "start_disagreement": ((), saddle_point.start_disagreement),
    }
    columns |= validation_columns(problem, moments_at(learning, limit.factors[0]), "gp")
    columns |= saddle_point_columns(problem, saddle_point, predictor)
    if cut:
        columns |= cut_columns(problem, saddle_point, predictor)
    columns |= evidence_columns(problem, saddle_point)
    own = OwnLimit.of(problem)
    columns |= own.columns(problem)
    columns |= left_out_columns(problem, saddle_point, own.learning)
    beyond = None
    if next_order is not None and next_order.defined:
        columns |= next_order_columns(problem, next_order)
        beyond = next_order.order_parameters[0]
    leading = columns["order_parameter"][1]
    if saddle_point.converged:
        columns |= kernel_columns(problem, leading, beyond)
    columns |= subnetwork_columns(problem, subnetworks)
    columns |= trained_columns(problem)
    columns |= redundancy_of_heads(problem)
    columns |= validation_of_subnetworks(problem, subnetworks)
    table = label(xr.Dataset(columns), problem)
    if saddle_point.converged:
        table = table.assign_coords(kernel_coordinates(problem, leading))
    if subnetworks:
        table = table.assign_coords(subnetwork=[name_subnetwork(problem, s) for s in subnetworks])
    table = table.assign_attrs(next_order_attributes(table, next_order) | own.attributes)
    return with_long_names(table).assign_attrs(
        status=saddle_point.status.value,
        converged=int(saddle_point.converged),
        explanation=with_keys(saddle_point.explain(), "theory"),
        tolerance=saddle_point.tolerance,
        newton_steps=saddle_point.steps,
        temperature=learning.temperature,
        widths=list(architecture.widths),
    )


def saddle_point_columns(problem: Problem, saddle_point: SaddlePoint, predictor) -> dict:
    """Everything predicted from the saddle point; NaN throughout if it did not converge."""
    learning = problem.learning
    factors = saddle_point.order_parameters.factors
    mean, variance = map(np.asarray, predict(predictor, factors[0]))
    matrices = [np.asarray(matrix) for matrix in saddle_point.order_parameters.matrices]
    columns: dict = {}
    named = order_parameter_dimensions(problem.architecture.layers)
    for (name, dims), matrix in zip(named, matrices, strict=True):
        columns[name] = (dims, matrix)
    columns |= {
        "predictor_mean": per_test_example(mean),
        "predictor_variance": per_test_example(variance),
        "kernel_alignment": (("component",), alignment(problem, factors[0])),
        "head_score": (
            ("layer", "head"),
            head_scores(matrices[0], AttentionPaths(learning.architecture.heads)),
        ),
        "accuracy_theory": ((), accuracy(mean, problem.labels_test)),
        "participation_ratio": ((), participation_ratio(matrices[0])),
        "off_diagonal_share": ((), off_diagonal_share(matrices[0])),
    }
    columns |= validation_columns(problem, moments_at(learning, factors[0]), "theory")
    if not saddle_point.converged:
        columns = {
            name: (dims, np.full(np.shape(values), np.nan))
            for name, (dims, values) in columns.items()
        }
    return columns


def cut_columns(problem: Problem, saddle_point: SaddlePoint, predictor) -> dict:
    """Accuracies without cross terms of U_1, and without differences on its diagonal.

    NaN where the matrix is not positive definite, or the saddle point did not converge.
    """
    factor, columns = saddle_point.order_parameters.factors[0], {}
    for name, cut in {"diagonal_only": diagonal_only, "equal_diagonal": equal_diagonal}.items():
        left, share = cut(factor) if saddle_point.converged else None, math.nan
        if left is not None:
            share = accuracy(np.asarray(predict(predictor, left)[0]), problem.labels_test)
        columns[f"accuracy_{name}"] = ((), share)
    return columns


def next_order_columns(problem: Problem, found: NextOrder) -> dict:
    """Predictions to next order; NaN for a variance that would not be positive."""
    mean, variance = found.predict(problem.attended_test)
    variance = np.where(variance > 0.0, variance, np.nan)
    named = order_parameter_dimensions(problem.architecture.layers)
    columns: dict = {
        f"{name}{NEXT_ORDER}": (dims, matrix)
        for (name, dims), matrix in zip(named, found.order_parameters, strict=True)
    }
    scores = head_scores(found.order_parameters[0], AttentionPaths(problem.architecture.heads))
    factor = jnp.asarray(square_roots(found.order_parameters[0]))
    columns |= {
        f"predictor_mean{NEXT_ORDER}": per_test_example(mean),
        f"predictor_variance{NEXT_ORDER}": per_test_example(variance),
        f"head_score{NEXT_ORDER}": (("layer", "head"), scores),
        f"kernel_alignment{NEXT_ORDER}": (("component",), alignment(problem, factor)),
        f"accuracy{NEXT_ORDER}": ((), accuracy(mean, problem.labels_test)),
        f"log_evidence{NEXT_ORDER}": ((), found.log_evidence),
    }
    return columns | validation_columns(problem, found.predict, NEXT_ORDER.removeprefix("_"))


def next_order_attributes(table: xr.Dataset, found: NextOrder | None) -> dict:
    """Status of the expansion, the size of its correction, and one line about both."""
    if found is None:
        return {}
    explanation = found.explain()
    if found.defined:
        undefined = int(table[f"predictor_variance{NEXT_ORDER}"].isnull().sum())
        if undefined:
            explanation += f"; predictive variance not positive at {undefined} test examples"
    return {
        "next_order_status": found.status.name.lower(),
        "next_order_correction": found.correction,
        "next_order_spread": found.spread,
        "next_order_explanation": explanation,
    }


def redundancy_of_heads(problem: Problem) -> dict:
    """Return the alikeness of heads before any weight is learned."""
    columns: dict = {}
    if problem.head_distances is not None:
        for what in ("matrices", "outputs"):
            mean, deviation = getattr(problem.head_distances, what)
            columns[f"head_distance_{what}"] = ((), mean)
            columns[f"head_distance_{what}_deviation"] = ((), deviation)
    return columns


def per_test_example(values: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    return predictor_dimensions(values.shape[1]), squeeze_output(values)


def subnetwork_columns(problem: Problem, subnetworks) -> dict:
    """GP accuracy of each sub-network."""
    if not subnetworks:
        return {}
    accuracies = []
    for kept in subnetworks:
        smaller, attended = sub_network(problem.learning, kept, problem.attended_test)
        predictor = Predictor.for_examples(smaller, attended)
        factor = OrderParameters.gp_limit(smaller.architecture).factors[0]
        mean, _ = predict(predictor, factor)
        accuracies.append(accuracy(np.asarray(mean), problem.labels_test))
    return {"accuracy_gp_subnetwork": (("subnetwork",), accuracies)}


def name_subnetwork(problem: Problem, kept) -> str:
    """The paths of a sub-network, joined by +."""
    chosen = AttentionPaths(problem.architecture.heads).subset(kept)
    return " + ".join(problem.path_names[path] for path in chosen)


def alignment(problem: Problem, factor: Float[Array, "row _rank"]) -> np.ndarray:
    """Kernel–task alignment of every component at U_1 = F Fᵀ, largest eigenvalue first."""
    energy = problem.learning.energy
    kernel = assemble_kernel(energy.kernels, factor)
    labels = jnp.asarray(np.asarray(energy.labels).reshape(-1))
    return np.asarray(kernel_alignment(kernel, labels, problem.learning.residual_squares))
