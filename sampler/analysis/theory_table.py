"""Everything the theory predicts of a problem, as one labelled table (`theory.nc`).

Predictions have an axis `predictor`: both orders in 1/N, and infinite width at the
temperature of the problem and at its own. Nonlinear values have infinite width alone.
"""

import math
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from sampler.analysis.cross_validation import left_out_by_example
from sampler.analysis.kernels import SHOWN, kernel_of, shown_features
from sampler.analysis.names import (
    head_names,
    label,
    order_parameter_dimensions,
    with_long_names,
)
from sampler.analysis.predictors import (
    AXIS,
    BY_EVIDENCE,
    BY_VALIDATION,
    INFINITE,
    LEADING,
    NEXT,
    TUNED,
    TUNED_BY,
    Variable,
    along_predictors,
    predictor_name,
)
from sampler.analysis.scores import moment_columns
from sampler.analysis.validation import (
    SubNetworks,
    moments_at,
    scores_of,
    validation_columns,
    validation_of_subnetworks,
)
from sampler.errors import InputError
from sampler.problem import Problem, square_roots
from sampler.token_problem import TokenProblem
from theory import (
    AttentionPaths,
    InfiniteWidth,
    LearningProblem,
    NextOrder,
    OrderParameters,
    SaddlePoint,
    TemperatureTooSmall,
    best_temperature,
    head_scores,
    kernel_alignment,
    off_diagonal_share,
    participation_ratio,
    sub_network,
)
from theory.learning_problem import sum_of_squares
from theory.log_evidence import log_evidence_at_saddle
from theory.nonlinear_kernels import NonlinearProblem, TokenExamples, kernels_at
from theory.observables import accuracy
from theory.path_kernels import assemble_kernel, on_host
from theory.size_limits import hessian_fits

Columns = dict[str, Variable]
NUMBER: tuple[str, ...] = ()


def theory_table(
    problem: Problem,
    saddle_point: SaddlePoint,
    subnetworks: SubNetworks,
    next_order: NextOrder | None = None,
) -> xr.Dataset:
    """Order parameters, predictors, kernels, scores and accuracies of every predictor.

    A saddle point that did not converge gives a table with this `status` whose predictions
    to leading order are all NaN: an unconverged point is never shown as the theory's.
    """
    converged, tuned = saddle_point.converged, TunedInfiniteWidth.of(problem)
    predictions = {LEADING: leading_order(problem, saddle_point)}
    if next_order is not None and next_order.defined:
        predictions[NEXT] = next_order_of(problem, next_order, shown=converged)
    predictions |= infinite_width(problem, tuned)
    left_out, labels = left_out_by_example(problem, saddle_point, tuned.learning)
    for predictor, columns in left_out.items():
        predictions[predictor] |= columns
    table = along_predictors(predictions)
    predictors = table[AXIS].values
    if "elpd_by_example" in table:
        table["elpd_by_example"].attrs["labels"] = labels
    columns = saddle_point_columns(saddle_point) | trained_columns(problem)
    columns |= redundancy_of_heads(problem) | subnetwork_columns(problem, subnetworks)
    table = label(table.assign(columns), problem).assign_coords({AXIS: predictors})
    names = head_names(problem, (table.sizes["layer"], table.sizes["head"]))
    table = table.assign_coords(head_name=(("layer", "head"), names))
    # Examples that are shown have the numbers that they have in the training set.
    shown = shown_features(problem)
    if shown:
        numbers = dict.fromkeys(SHOWN, shown["shown_example"].values)
        table = table.assign_coords(numbers).merge(shown)
    if subnetworks:
        paths = AttentionPaths(problem.architecture.heads)
        chosen = [[problem.path_names[p] for p in paths.subset(kept)] for kept in subnetworks]
        table = table.assign_coords(sub_network=[" + ".join(names) for names in chosen])
    attributes = next_order_attributes(table, next_order) | tuned.attributes
    return with_long_names(table).assign_attrs(
        attributes,
        status=saddle_point.status.value,
        converged=int(converged),
        explanation=saddle_point.explain(),
        tolerance=saddle_point.tolerance,
        newton_steps=saddle_point.steps,
        temperature=problem.temperature,
        widths=list(problem.architecture.widths),
    )


def nonlinear_table(problem: TokenProblem) -> xr.Dataset:
    """The content of `theory.nc` for nonlinear values: infinite width is the only predictor.

    Raises InputError for a temperature that is lost in the rounding of the kernel.
    """
    network, temperature = problem.network, float(problem.temperature)

    train, test = (
        TokenExamples.read(inputs, attention, network.readout)
        for inputs, attention, *_ in (problem.data.tokens, problem.data.tokens_test)
    )
    learning = NonlinearProblem(
        network.architecture, network.values, train, problem.labels, temperature
    )
    try:
        kernels = kernels_at(learning, test)
    except TemperatureTooSmall as error:
        raise InputError("posterior.temperature", error.temperature, error.remedy) from None
    moments = kernels.regression(learning.labels, temperature)
    mean, variance, evidence = map(np.asarray, moments)
    columns = moment_columns(mean, variance, problem.labels_test)
    columns |= {"log_evidence": ((), evidence), "temperature": ((), temperature)}
    table = along_predictors({INFINITE: columns})
    table = with_long_names(label(table, problem).assign_coords({AXIS: [INFINITE]}))
    return table.assign_attrs(
        converged=1,
        explanation=f"ln p(y) = {float(evidence):.4g} at {predictor_name(INFINITE)}",
        temperature=problem.temperature,
        widths=list(problem.architecture.widths),
    )


# --- predictors


@dataclass(frozen=True)
class TunedInfiniteWidth:
    """Infinite width at the temperature that it chooses for itself.

    The temperature that is best for a network of finite width need not be so for the infinitely
    wide one: others are compared with it at its best.

    learning      the training data at this temperature
    chosen_by     BY_VALIDATION or BY_EVIDENCE
    bound         "lowest" or "highest" where it is an end of all that were tried; else empty
    log_evidence  ln p(y) there
    """

    learning: LearningProblem
    chosen_by: str
    bound: str
    log_evidence: float

    @classmethod
    def of(cls, problem: Problem) -> "TunedInfiniteWidth":
        """Choose by the validation split where there is one, else by the evidence."""
        limit = InfiniteWidth.of(problem.learning)
        chosen_by, score = BY_EVIDENCE, limit.log_evidence
        if problem.attended_validation is not None:
            moments = limit.predictor(problem.attended_validation)
            chosen_by = BY_VALIDATION

            def score(temperature: float) -> float:
                scores = scores_of(moments(temperature), problem, temperature)
                return float(scores[BY_VALIDATION].mean())

        lowest = problem.learning.lowest_temperature
        best = best_temperature(score, limit.mean_square_label, problem.temperature, lowest)
        evidence = limit.log_evidence(best.temperature)
        return cls(problem.learning.at(best.temperature), chosen_by, best.bound, evidence)

    @property
    def attributes(self) -> dict[str, str]:
        """How the temperature was chosen, as attributes of `theory.nc`."""
        return {TUNED_BY: self.chosen_by, f"{TUNED}_bound": self.bound}


def leading_order(problem: Problem, saddle_point: SaddlePoint) -> Columns:
    """Everything predicted from the saddle point; NaN throughout if it did not converge."""
    parameters = saddle_point.order_parameters
    matrices = [np.asarray(matrix) for matrix in parameters.matrices]
    columns = order_parameter_columns(problem, matrices)
    columns |= predictor_columns(problem, problem.learning, parameters.factors[0])
    columns |= alignment_column(problem, parameters.factors[0]) | kernel_of(problem, matrices[0])
    columns["log_evidence"] = (NUMBER, laplace_evidence(problem, saddle_point))
    if not saddle_point.converged:
        columns = {
            name: (axes, np.full(np.shape(values), np.nan))
            for name, (axes, values) in columns.items()
        }
    return columns | {"temperature": (NUMBER, problem.temperature)}


def next_order_of(problem: Problem, expansion: NextOrder, shown: bool) -> Columns:
    """Predictions to next order; NaN for a variance that would not be positive."""
    overlap = expansion.order_parameters[0]
    mean, variance = expansion.predict(problem.attended_test)
    variance = np.where(variance > 0.0, variance, np.nan)
    columns = order_parameter_columns(problem, expansion.order_parameters)
    columns |= moment_columns(mean, variance, problem.labels_test)
    columns |= validation_columns(problem, expansion.predict)
    columns |= alignment_column(problem, square_roots(overlap))
    columns |= kernel_of(problem, overlap) if shown else {}
    columns["log_evidence"] = (NUMBER, expansion.log_evidence)
    return columns | {"temperature": (NUMBER, problem.temperature)}


def infinite_width(problem: Problem, tuned: TunedInfiniteWidth) -> dict[str, Columns]:
    """Predictions of infinite width at the temperature of the problem and at its own.

    Alignment and kernel, which depend on no temperature, are columns of the first alone.
    """
    limit = OrderParameters.gp_limit(problem.architecture)
    factor, columns = limit.factors[0], {}
    for predictor, learning in {INFINITE: problem.learning, TUNED: tuned.learning}.items():
        columns[predictor] = predictor_columns(problem, learning, factor)
    columns[INFINITE] |= alignment_column(problem, factor)
    columns[INFINITE] |= kernel_of(problem, np.asarray(limit.matrices[0]))
    columns[INFINITE]["log_evidence"] = (NUMBER, evidence_at(problem, factor))
    columns[TUNED]["log_evidence"] = (NUMBER, tuned.log_evidence)
    return columns


def order_parameter_columns(problem: Problem, matrices) -> Columns:
    """U_1 … U_L, U_a, and the head scores that follow from U_1."""
    named = order_parameter_dimensions(problem.architecture.layers)
    columns: Columns = {
        name: (axes, matrix) for (name, axes), matrix in zip(named, matrices, strict=True)
    }
    scores = head_scores(matrices[0], AttentionPaths(problem.architecture.heads))
    return columns | {"head_score": (("layer", "head"), scores)}


def predictor_columns(
    problem: Problem, learning: LearningProblem, factor: Float[Array | np.ndarray, "row _rank"]
) -> Columns:
    """Moments on the test set, scores on the validation split and temperature, at U_1 = F Fᵀ."""
    moments = moments_at(learning, factor)
    columns = moment_columns(*moments(problem.attended_test), problem.labels_test)
    columns |= validation_columns(problem, moments, learning.temperature)
    return columns | {"temperature": (NUMBER, learning.temperature)}


def alignment_column(problem: Problem, factor: Float[Array | np.ndarray, "row _rank"]) -> Columns:
    """Kernel–task alignment of every component at U_1 = F Fᵀ, largest eigenvalue first."""
    energy = problem.learning.energy
    kernel = assemble_kernel(energy.kernels, factor)
    labels = np.asarray(energy.labels).reshape(-1)
    alignment = kernel_alignment(kernel, labels, problem.learning.residual_squares)
    return {"kernel_alignment": (("component",), alignment)}


def laplace_evidence(problem: Problem, saddle_point: SaddlePoint) -> float:
    """ln p(y) by Laplace's approximation.

    NaN where it does not exist: without a minimum of the action, in layers narrower than their
    order parameter, and for a Hessian too large to be factorised.
    """
    architecture = problem.architecture
    exists = saddle_point.converged and architecture.is_regular and hessian_fits(architecture)
    return log_evidence_at_saddle(problem.learning, saddle_point) if exists else math.nan


def evidence_at(problem: Problem, factor: Float[Array | np.ndarray, "row _rank"]) -> float:
    """ln p(y) at a fixed U_1."""
    learning = problem.learning
    energy, factor = on_host((learning.energy, factor))
    noisy = energy.noisy_kernel(factor)
    value = noisy.log_determinant + sum_of_squares(noisy.whiten(energy.flat_labels))
    evidence = -0.5 * float(value)
    evidence -= 0.5 * learning.labels.size * math.log(2.0 * math.pi)
    return evidence + learning.residual_log_likelihood


# --- columns without predictors


def saddle_point_columns(saddle_point: SaddlePoint) -> Columns:
    """How the saddle point was reached, and how many paths its U_1 uses."""
    overlap = np.asarray(saddle_point.order_parameters.matrices[0])
    defined = 1.0 if saddle_point.converged else math.nan
    numbers = {
        "action": saddle_point.action,
        "gradient_norm": saddle_point.gradient_norm,
        "smallest_hessian_eigenvalue": saddle_point.smallest_hessian_eigenvalue,
        "start_disagreement": saddle_point.start_disagreement,
        "participation_ratio": defined * participation_ratio(overlap),
        "off_diagonal_share": defined * off_diagonal_share(overlap),
    }
    return {name: (NUMBER, value) for name, value in numbers.items()}


def trained_columns(problem: Problem) -> Columns:
    """U_GD, its head scores, and accuracy on the test set, of the trained network."""
    columns: Columns = {}
    if problem.trained is not None:
        overlap = problem.trained.overlap()
        scores = head_scores(overlap, AttentionPaths(problem.trained.architecture.heads))
        outputs = problem.trained.predictor(problem.attended_test)
        columns["order_parameter_trained"] = (("path", "path_"), overlap)
        columns["head_score_trained"] = (("layer", "head"), scores)
        columns["accuracy_trained"] = (NUMBER, accuracy(outputs, problem.labels_test))
    return columns


def redundancy_of_heads(problem: Problem) -> Columns:
    """How much heads are alike before any weight is learned."""
    if problem.head_distances is None:
        return {}
    columns: Columns = {}
    for what in ("matrices", "outputs"):
        mean, deviation = getattr(problem.head_distances, what)
        columns[f"head_distance_{what}"] = (NUMBER, mean)
        columns[f"head_distance_{what}_deviation"] = (NUMBER, deviation)
    return columns


def subnetwork_columns(problem: Problem, subnetworks: SubNetworks) -> Columns:
    """Accuracy at infinite width of each sub-network, and its scores on the validation split."""
    if not subnetworks:
        return {}
    accuracies = []
    for kept in subnetworks:
        smaller, attended = sub_network(problem.learning, kept, problem.attended_test)
        factor = OrderParameters.gp_limit(smaller.architecture).factors[0]
        mean, _ = moments_at(smaller, factor)(attended)
        accuracies.append(accuracy(mean, problem.labels_test))
    columns: Columns = {"accuracy_of_sub_network": (("sub_network",), accuracies)}
    return columns | validation_of_subnetworks(problem, subnetworks)


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
