"""What the theory predicts for a problem, as one labelled table (`theory.nc`)."""

import jax.numpy as jnp
import numpy as np
import xarray as xr

from sampler.analysis.evidence import evidence_columns
from sampler.analysis.labels import (
    label,
    order_parameter_dimensions,
    predictor_dimensions,
    squeeze_output,
)
from sampler.analysis.long_names import with_long_names
from sampler.analysis.trained_columns import trained_columns
from sampler.analysis.validation import validation_columns, validation_of_subnetworks
from sampler.problem import Problem
from theory import (
    AttentionPaths,
    OrderParameters,
    Predictor,
    SaddlePoint,
    diagonal_only,
    equal_diagonal,
    head_scores,
    kernel_alignment,
    off_diagonal_share,
    participation_ratio,
    path_alignment,
    predict,
    sub_network,
)
from theory.accuracy import accuracy
from theory.redundancy import mean_alignment_of_others


def theory_table(
    problem: Problem,
    saddle_point: SaddlePoint,
    subnetworks: tuple[tuple[tuple[int, ...], ...], ...],
) -> xr.Dataset:
    """Order parameters, predictors, GP limit, alignments, head scores and accuracies.

    A saddle point that did not converge gives a table whose `status` says so and whose predictions
    are all NaN: an unconverged point is never shown as the theory's.
    """
    learning, architecture = problem.learning, problem.architecture
    predictor = Predictor.for_examples(learning, problem.attended_test)
    limit = OrderParameters.gp_limit(architecture)
    gp_mean, gp_variance = map(np.asarray, predict(predictor, limit.factors[0]))
    columns = {
        "gp_mean": per_test_example(gp_mean),
        "gp_variance": per_test_example(gp_variance),
        "gp_kernel_alignment": (("component",), alignment(problem, limit)),
        "accuracy_gp": ((), accuracy(gp_mean, problem.labels_test)),
        "action": ((), saddle_point.action),
        "gradient_norm": ((), saddle_point.gradient_norm),
        "smallest_hessian_eigenvalue": ((), saddle_point.smallest_hessian_eigenvalue),
        "start_disagreement": ((), saddle_point.start_disagreement),
    }
    columns |= validation_columns(problem, limit.factors[0], "gp")
    columns |= saddle_point_columns(problem, saddle_point, predictor)
    columns |= evidence_columns(problem, saddle_point)
    columns |= subnetwork_columns(problem, subnetworks)
    columns |= trained_columns(problem)
    columns |= redundancy_of_heads(problem)
    columns |= validation_of_subnetworks(problem, subnetworks)
    table = label(xr.Dataset(columns), problem)
    if subnetworks:
        table = table.assign_coords(subnetwork=[name_subnetwork(problem, s) for s in subnetworks])
    return with_long_names(table).assign_attrs(
        status=saddle_point.status.value,
        converged=int(saddle_point.converged),
        explanation=saddle_point.explain(),
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
    equal = equal_diagonal(factors[0])
    variants = {"diagonal_only": diagonal_only(factors[0]), "equal_diagonal": equal}
    columns = {
        f"accuracy_{name}": (
            (),
            float("nan")
            if factor is None
            else accuracy(np.asarray(predict(predictor, factor)[0]), problem.labels_test),
        )
        for name, factor in variants.items()
    }
    columns |= {
        name: (dims, matrix)
        for (name, dims), matrix in zip(
            order_parameter_dimensions(problem.architecture.layers), matrices, strict=True
        )
    }
    columns |= {
        "predictor_mean": per_test_example(mean),
        "predictor_variance": per_test_example(variance),
        "kernel_alignment": (("component",), alignment(problem, saddle_point.order_parameters)),
        "head_score": (
            ("layer", "head"),
            head_scores(matrices[0], AttentionPaths(learning.architecture.heads)),
        ),
        "accuracy_theory": ((), accuracy(mean, problem.labels_test)),
        "participation_ratio": ((), participation_ratio(matrices[0])),
        "off_diagonal_share": ((), off_diagonal_share(matrices[0])),
    }
    columns |= validation_columns(problem, factors[0], "theory")
    if not saddle_point.converged:
        columns = {
            name: (dims, np.full(np.shape(values), np.nan))
            for name, (dims, values) in columns.items()
        }
    return columns


def redundancy_of_heads(problem: Problem) -> dict:
    """How alike heads and paths are before any weight is learned."""
    columns: dict = {}
    if problem.head_distances is not None:
        for what in ("matrices", "outputs"):
            mean, deviation = getattr(problem.head_distances, what)
            columns[f"head_distance_{what}"] = ((), mean)
            columns[f"head_distance_{what}_deviation"] = ((), deviation)
    alignment = path_alignment(np.asarray(problem.learning.features))
    columns["path_alignment"] = ((), mean_alignment_of_others(alignment))
    return columns


def per_test_example(values: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Axes and values of a number per test example and output."""
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


def alignment(problem: Problem, order_parameters: OrderParameters) -> np.ndarray:
    """Kernel–task alignment of every component, largest eigenvalue first."""
    energy = problem.learning.energy
    kernel = energy.kernels.kernel(order_parameters.factors[0])
    return np.asarray(kernel_alignment(kernel, jnp.asarray(energy.flat_labels)))
