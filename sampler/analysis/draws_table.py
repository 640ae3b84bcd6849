"""Draws as a labelled tree in the layout of ArviZ (`draws.nc`)."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from sampler.analysis.cross_validation import GROUP
from sampler.analysis.draws import BARTLETT, FIXED, VALIDATION, group_of
from sampler.analysis.estimates import Averages
from sampler.analysis.kernels import learned_kernels, sampled_alignment
from sampler.analysis.learned_heads import attention_table
from sampler.analysis.names import (
    PURE_NUMBER,
    label,
    label_dimensions,
    order_parameter_dimensions,
    predictor_dimensions,
    squeeze_output,
    with_long_names,
)
from sampler.analysis.validation import validation_draws, validation_predictors
from sampler.attention.learned import LOGITS
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.mcmc.collected_draws import (
    EVERY,
    LEFT_OUT,
    LOG_LIKELIHOOD,
    LOG_PRIOR,
    POINTWISE,
    PREDICTOR_VALIDATION,
    PREDICTORS,
    REPLICATED,
    DrawCollector,
    ThinnedDraws,
)
from sampler.posterior.data import SPECTRUM
from sampler.posterior.weights_from_order_parameters import WeightDraws
from sampler.problem import AnyProblem, Problem
from sampler.token_problem import LearnedProblem, TokenProblem

# Variable that labels of training examples have in every group.
LABELS = "y"
# Draws whose last axis is that of the outputs.
WITH_OUTPUTS = (*PREDICTORS, REPLICATED, LEFT_OUT)


def draws_tree(
    problem: AnyProblem,
    collected: DrawCollector,
    attributes: Mapping,
    weights: WeightDraws | None = None,
    prior: Mapping[str, np.ndarray] | None = None,
    left_out: xr.Dataset | None = None,
    fixed: Mapping[str, np.ndarray] | None = None,
) -> xr.DataTree:
    """Groups of ArviZ's schema: posterior, sample_stats, log_likelihood, predictions, prior, ….

    Quantities of training examples are one variable `y` in log_likelihood, posterior_predictive,
    prior_predictive and observed_data. The weights of some draws of each chain are in the group
    `posterior_weights`, with the draws in its `draw` coordinate, predictors of a validation split
    in `validation`, the kernel of the posterior with its alignment in `kernel`, leave-one-out
    cross-validation in `leave_one_out`, attention that was sampled in `attention`, and its logit
    weights in `posterior_logits_l` where they are too large for `posterior`. Groups that would be
    too large have every k-th draw, with k as their attribute `thinned`.

    prior     draws without data [draw, …] by name
    left_out  the group `leave_one_out`, with the training labels `y`
    fixed     which elements of a draw the problem fixes, by name: the group `fixed`
    """
    drawn, thinned = collected.draws, collected.thinned
    chains, draws = collected.statistics["lp"].shape
    # A posterior whose draws were not kept still states their number.
    groups = {"posterior": xr.Dataset(coords={"chain": range(chains), "draw": range(draws)})}
    groups |= drawn_groups(problem, drawn) | thinned_groups(problem, thinned)
    for name in {"posterior", *POINTWISE} & groups.keys():
        groups[name] = groups[name].assign_attrs(attributes)
    if prior is not None:
        without_data = {name: values[None] for name, values in prior.items()}
        for name, table in drawn_groups(problem, without_data).items():
            groups["prior_predictive" if name == REPLICATED else "prior"] = table
    groups["sample_stats"] = statistics_table(collected.statistics, attributes)
    groups["warmup_sample_stats"] = statistics_table(collected.warmup_statistics, attributes)
    constants = {
        "temperature": ((), problem.temperature),
        "prior_variances": (("weights",), np.asarray(problem.architecture.variances)),
    }
    groups["constant_data"] = label(xr.Dataset(constants), problem)
    if left_out is not None:
        axes = axes_of(REPLICATED, problem)
        labels = xr.Dataset({LABELS: (axes, squeeze_output(left_out[LABELS].values))})
        groups["observed_data"] = label(labels, problem)
        groups[GROUP] = label(left_out.drop_vars(LABELS), problem)
        if LOG_LIKELIHOOD in groups:
            definition = left_out.attrs[LOG_LIKELIHOOD]
            groups[LOG_LIKELIHOOD] = groups[LOG_LIKELIHOOD].assign_attrs(definition=definition)
    if problem.labels_test is not None:
        labels = xr.Dataset({"labels_test": (("test_example", "output"), problem.labels_test)})
        groups["predictions_constant_data"] = label(labels, problem)
    if weights is not None:
        table = drawn_groups(problem, weights.weights)["posterior"].assign_coords(
            draw=weights.draws
        )
        groups["posterior_weights"] = table.assign_attrs(attributes)
    if PREDICTOR_VALIDATION in thinned:
        validation = validation_predictors(problem, thinned[PREDICTOR_VALIDATION], drawn)
    else:
        validation = validation_draws(problem, drawn)
    if validation is not None:
        groups[VALIDATION] = validation.assign_attrs(attributes)
    groups[FIXED] = xr.Dataset(
        {n: (f"{n}_element", np.asarray(m, np.int8)) for n, m in (fixed or {}).items() if m.any()}
    )
    averages = Averages.of(collected.statistics)
    if isinstance(problem, Problem):
        groups["kernel"] = sampled_alignment(problem, drawn, averages)
    if isinstance(problem, LearnedProblem):
        groups["kernel"] = learned_kernels(problem, collected, averages)
        groups["attention"] = attention_table(problem, collected)
    return xr.DataTree.from_dict(
        {
            name: with_long_names(laid_out(table))
            for name, table in groups.items()
            if table or name == "posterior"
        }
    )


def drawn_groups(problem: AnyProblem, drawn: Mapping[str, np.ndarray]) -> dict[str, xr.Dataset]:
    """Group → draws [chain, draw, …] of that group, under the names that they have there."""
    columns: dict[str, dict] = {}
    for name, values in drawn.items():
        axes = ("chain", "draw", *axes_of(name, problem, values.ndim - 2))
        stored = squeeze_output(values) if name in WITH_OUTPUTS else values
        variable = LABELS if name in POINTWISE else name
        columns.setdefault(group_of(name), {})[variable] = (axes, stored)
    return {group: label(xr.Dataset(of_group), problem) for group, of_group in columns.items()}


def thinned_groups(
    problem: AnyProblem, thinned: Mapping[str, ThinnedDraws]
) -> dict[str, xr.Dataset]:
    """Groups of quantities of which every k-th draw was kept; one of each layer's logit weights."""
    groups: dict[str, xr.Dataset] = {}
    for names in (PREDICTORS, *((name,) for name in POINTWISE)):
        some = {name: thinned[name] for name in names if name in thinned}
        if some:
            first = next(iter(some.values()))
            numbers, about = first.draws, {"judged": int(first.judged)}
            about["thinned"] = int(numbers[1]) if len(numbers) > 1 else EVERY
            tables = drawn_groups(problem, {name: kept.values for name, kept in some.items()})
            for group, table in tables.items():
                groups[group] = table.assign_coords(draw=numbers).assign_attrs(about)
    for name, kept in thinned.items():
        if name.startswith(LOGITS):
            table = drawn_groups(problem, {name: kept.values})["posterior"]
            groups[f"posterior_{name}"] = table.assign_coords(draw=kept.draws)
    return groups


def laid_out(table: xr.Dataset) -> xr.Dataset:
    """The table in the memory layout that a file gives back.

    Sums over draws then end in the same bits, whether the draws were stored in between or not.
    """
    return table.assign(
        {name: v.copy(data=np.asarray(v.values, order="C")) for name, v in table.data_vars.items()}
    )


def axes_of(name: str, problem: AnyProblem, count: int = 0) -> tuple[str, ...]:
    """Axes of one draw of a quantity, or of a weight array.

    Hidden units of layer l are `unit_l`, readout units `unit_a`; those of MLPs, outside the theory,
    are `unit_mlp`.

    count  of axes, of which logit weights of each form have another number
    """
    architecture = problem.architecture
    layers, outputs = architecture.layers, architecture.outputs
    if name in PREDICTORS:
        return predictor_dimensions(outputs)
    if name in (REPLICATED, LEFT_OUT):
        return label_dimensions(outputs)
    if name.startswith(BARTLETT):
        return (f"{name}_entry",)
    if name.startswith(SPECTRUM):
        return (f"eigenvalue_{name.removeprefix(SPECTRUM)}",)
    if name.startswith(LOGITS):
        layer = name.removeprefix(LOGITS)
        # Rows are keys and columns queries, which meet channels or hidden units.
        stream = isinstance(problem, TokenProblem) and problem.network.stream
        read = f"unit_below_{layer}" if stream else "channel"
        of_head = {2: ("token",), 3: (read, f"{read}_"), 4: ("query_or_key", "row", read)}
        return f"learned_head_{layer}", *of_head[count]
    units = [*(f"unit_{layer}" for layer in range(1, layers + 1)), "unit_a"]
    axes = dict(order_parameter_dimensions(layers))
    axes |= {"temperature": (), LOG_PRIOR: (), LOG_LIKELIHOOD: ("example",)}
    axes |= {"V_0": (units[0], "channel"), "a": ("output", units[-1])}
    for layer in range(1, layers + 1):
        axes[f"V_{layer}"] = (f"head_{layer}", units[layer], units[layer - 1])
        axes[f"mlp_in_{layer}"] = ("unit_mlp", units[layer])
        axes[f"mlp_out_{layer}"] = (units[layer], "unit_mlp")
    return axes[name]


def statistics_table(statistics: Mapping[str, np.ndarray], attributes: Mapping) -> xr.Dataset:
    """Sampler statistics [chain, draw] under ArviZ names."""
    if not statistics:
        return xr.Dataset()
    algorithm, columns = ALGORITHMS[attributes["algorithm"]], {}
    for name, values in algorithm.stored(statistics).items():
        words = algorithm.statistics.get(name)
        about = {} if words is None else {"long_name": words, "units": PURE_NUMBER}
        columns[name] = (("chain", "draw"), values, about)
    chains, draws = statistics["lp"].shape
    return xr.Dataset(columns, {"chain": range(chains), "draw": range(draws)}, attributes)
