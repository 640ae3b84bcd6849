"""Draws as a labelled tree in the layout of ArviZ (`draws.nc`), and back."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from sampler.analysis.example_tables import sampled_kernels
from sampler.analysis.labels import (
    PURE_NUMBER,
    label,
    order_parameter_dimensions,
    predictor_dimensions,
    squeeze_output,
    with_long_names,
)
from sampler.analysis.validation import validation_draws, validation_predictors
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.mcmc.draws import DrawCollector
from sampler.mcmc.kept import PREDICTOR_VALIDATION, PREDICTORS, BatchMoments, SelectedDraws
from sampler.posterior.density import OBSERVED
from sampler.posterior.weight_draws import WeightDraws
from sampler.problem import AnyProblem, Problem
from theory import Architecture


def draws_tree(
    problem: AnyProblem,
    collected: DrawCollector,
    attributes: Mapping,
    weights: WeightDraws | None = None,
) -> xr.DataTree:
    """Groups posterior, sample_stats, warmup_sample_stats, observed_data, constant_data.

    Weights drawn back for some draws of each chain are in the group `posterior_weights`, whose
    `draw` coordinate says which, predictors of a validation split in `validation`, and the kernel
    of the posterior with its alignment in `kernel`. Quantities too large to keep appear in a group
    `…_moments`, and the draws of some of their elements in the group `selected`.
    """
    arch = problem.architecture
    drawn, thinned = collected.draws, collected.thinned.get(PREDICTOR_VALIDATION)
    posterior = {
        name: (
            ("chain", "draw", *quantity_dimensions(name, arch)),
            squeeze_output(values) if name in PREDICTORS else values,
        )
        for name, values in drawn.items()
    }
    groups = {
        "posterior": label(xr.Dataset(posterior), problem).assign_attrs(attributes),
        "sample_stats": statistics_table(collected.statistics, attributes),
        "warmup_sample_stats": statistics_table(collected.warmup_statistics, attributes),
        "observed_data": label(
            xr.Dataset({"y": ((rows_of(problem), "output"), np.asarray(problem.labels))}), problem
        ),
        "constant_data": constant_table(problem),
    }
    if weights is not None:
        groups["posterior_weights"] = weights_table(problem, weights).assign_attrs(attributes)
    if thinned is None:
        validation = validation_draws(problem, drawn)
    else:
        validation = validation_predictors(problem, thinned, drawn)
    if validation is not None:
        groups["validation"] = validation.assign_attrs(attributes)
    for name, moments in collected.moments.items():
        groups[f"{name}_moments"] = moments_table(name, moments, problem)
    groups["selected"] = selected_table(collected.selected)
    groups["kernel"] = sampled_kernels(problem, drawn)
    return xr.DataTree.from_dict(
        {name: with_long_names(laid_out(table)) for name, table in groups.items() if table}
    )


def rows_of(problem: AnyProblem) -> str:
    """Return the name of the first axis of the labels: examples, or rows that stand for them."""
    folded = isinstance(problem, Problem) and problem.learning.compressed is not None
    return "row" if folded else "example"


def laid_out(table: xr.Dataset) -> xr.Dataset:
    """The table in the memory layout that a file gives back.

    Sums over draws then end in the same bits, whether the draws were stored in between or not.
    """
    return table.assign(
        {name: v.copy(data=np.asarray(v.values, order="C")) for name, v in table.data_vars.items()}
    )


def quantity_dimensions(name: str, architecture: Architecture) -> tuple[str, ...]:
    """Axes of one draw of a named quantity."""
    if name in PREDICTORS:
        return predictor_dimensions(architecture.outputs)
    if name.startswith("bartlett_"):
        return (f"{name}_entry",)
    known = dict(order_parameter_dimensions(architecture.layers)) | weight_dimensions(architecture)
    known |= {"temperature": (), "prior_variances": ("weights",)}
    return known[name]


def weight_dimensions(architecture: Architecture) -> dict[str, tuple[str, ...]]:
    """Axes of every weight array; hidden units of layer l are `unit_l`, readout units `unit_a`."""
    layers = architecture.layers
    units = [f"unit_{layer}" for layer in range(1, layers + 1)] + ["unit_a"]
    axes = {"V_0": (units[0], "channel")}
    for layer in range(1, layers + 1):
        axes[f"V_{layer}"] = (f"head_{layer}", units[layer], units[layer - 1])
    return axes | {"a": ("output", units[-1])}


def weights_table(problem: AnyProblem, drawn: WeightDraws) -> xr.Dataset:
    """Weights [chain, draw, …] of the draws they belong to."""
    axes = weight_dimensions(problem.architecture)
    columns = {
        name: (("chain", "draw", *axes[name]), values) for name, values in drawn.weights.items()
    }
    return label(xr.Dataset(columns), problem).assign_coords(draw=drawn.draws)


def statistics_table(statistics: Mapping[str, np.ndarray], attributes: Mapping) -> xr.Dataset:
    """Sampler statistics [chain, draw] under ArviZ names."""
    if not statistics:
        return xr.Dataset()
    algorithm = ALGORITHMS[attributes["algorithm"]]
    columns = {
        name: (("chain", "draw"), values, long_name(algorithm.statistics.get(name)))
        for name, values in algorithm.stored(statistics).items()
    }
    chains, draws = statistics["lp"].shape
    coordinates = {"chain": range(chains), "draw": range(draws)}
    return xr.Dataset(columns, coords=coordinates).assign_attrs(attributes)


def long_name(words: str | None) -> dict[str, str]:
    """Attributes of a statistic that an algorithm has words for."""
    return {} if words is None else {"long_name": words, "units": PURE_NUMBER}


def constant_table(problem: AnyProblem) -> xr.Dataset:
    """Temperature, prior variances and test labels; what is sampled is known by these values."""
    columns = {
        "temperature": ((), problem.temperature),
        "prior_variances": (("weights",), np.asarray(problem.architecture.variances)),
    }
    if problem.labels_test is not None:
        columns["labels_test"] = (("test_example", "output"), problem.labels_test)
    return label(xr.Dataset(columns), problem)


def moments_table(name: str, moments: BatchMoments, problem: AnyProblem) -> xr.Dataset:
    axes = ("chain", "batch", *quantity_dimensions(name, problem.architecture))
    columns = {
        "mean": (axes, squeeze_output(moments.mean)),
        "mean_square": (axes, squeeze_output(moments.mean_square)),
    }
    return label(xr.Dataset(columns), problem).assign_attrs(batch_size=moments.batch_size)


def selected_table(selected: Mapping[str, SelectedDraws]) -> xr.Dataset:
    """Draws [chain, draw, element] of each quantity; the coordinate has the places in one draw."""
    columns = {
        name: (
            ("chain", "draw", f"{name}_element"),
            one.values,
            {"shape_of_draw": one.shape[:-1] if one.shape[-1] == 1 else one.shape},
        )
        for name, one in selected.items()
    }
    table = xr.Dataset(columns)
    places = {f"{name}_element": one.places for name, one in selected.items()}
    numbered = {axis: range(size) for axis, size in table.sizes.items()}
    return table.assign_coords(numbered | places)


def stored_draws(tree: xr.DataTree) -> dict[str, np.ndarray]:
    """Draws by name, [chain, draw, …], of all but weights and statistics; in double precision."""
    posterior = tree["posterior"].to_dataset()
    return {
        str(name): np.asarray(values.values, dtype=np.float64)
        for name, values in posterior.items()
        if is_judged(str(name))
    }


def collected_draws(tree: xr.DataTree) -> dict[str, np.ndarray]:
    """Draws by name, [chain, draw, …], as a collector has them: whole or of some elements."""
    found = {
        str(name): v.values[..., None] if v.dims[-1] == "test_example" else v.values
        for name, v in tree["posterior"].to_dataset().items()
    }
    return found | {name: one.values for name, one in stored_selected(tree).items()}


def is_judged(name: str) -> bool:
    """Whether draws of this name are neither weights nor coordinates of the sampler."""
    return "order_parameter" in name or name in (*PREDICTORS, *OBSERVED)


def stored_selected(tree: xr.DataTree) -> dict[str, SelectedDraws]:
    """Name → draws of some elements of the quantities whose draws were not kept."""
    table = tree["selected"].to_dataset() if "selected" in tree.children else xr.Dataset()
    return {
        str(name): SelectedDraws(
            one.values,
            table[f"{name}_element"].values,
            tuple(map(int, np.atleast_1d(one.attrs["shape_of_draw"]))),
        )
        for name, one in table.items()
    }


def stored_moments(tree: xr.DataTree) -> dict[str, BatchMoments]:
    """Name → batch moments of the quantities whose draws were not kept."""
    found = {}
    for group in tree.children:
        if group.endswith("_moments"):
            table = tree[group].to_dataset()
            found[group.removesuffix("_moments")] = BatchMoments(
                table["mean"].values, table["mean_square"].values, int(table.attrs["batch_size"])
            )
    return found


def stored_statistics(tree: xr.DataTree, group: str = "sample_stats") -> dict[str, np.ndarray]:
    """Sampler statistics of the draws, or those of warm-up in `warmup_sample_stats`."""
    if group not in tree.children:
        return {}
    return {str(n): v.values for n, v in tree[group].to_dataset().items()}


def stored_labels(tree: xr.DataTree) -> np.ndarray | None:
    """Test labels [test_example, output], or None."""
    constants = tree["constant_data"].to_dataset()
    return constants["labels_test"].values if "labels_test" in constants else None
