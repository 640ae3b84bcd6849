"""Dimensions, coordinates and long names of stored quantities, and how elements are named."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

import numpy as np
import xarray as xr

from sampler.problem import AnyProblem
from theory.architecture import order_parameter_names


def order_parameter_dimensions(layers: int) -> list[tuple[str, tuple[str, str]]]:
    """Name and axes of U_1, U_2 … U_L and U_a."""
    axes = "path", *(f"path_layer_{layer}" for layer in range(2, layers + 1)), "output"
    pairs = [(axis, f"{axis}_") for axis in axes]
    return list(zip(order_parameter_names(layers), pairs, strict=True))


def predictor_dimensions(outputs: int) -> tuple[str, ...]:
    """[test_example] for one output, [test_example, output] for several."""
    return ("test_example",) if outputs == 1 else ("test_example", "output")


def label_dimensions(outputs: int) -> tuple[str, ...]:
    """[example] for one output, [example, output] for several."""
    return ("example",) if outputs == 1 else ("example", "output")


def squeeze_output(values: np.ndarray) -> np.ndarray:
    """Drop the output axis, the last one, where there is only one output."""
    return values[..., 0] if values.shape[-1] == 1 else values


def label(table: xr.Dataset, problem: AnyProblem) -> xr.Dataset:
    """Give every axis of a table a coordinate: names of paths, numbers for the rest.

    A trailing underscore marks the second axis of a square matrix, which has the same names.
    """
    layers = problem.architecture.layers
    numbers = problem.layer_numbers or range(1, layers + 1)
    named = {"path": indexed(problem.path_names, problem), "layer": numbers}
    named["weights"] = list(problem.architecture.weight_shapes)
    for layer in range(2, layers + 1):
        names = ["·".join(p) for p in itertools.product(*problem.head_names[layer - 1 :])]
        named[f"path_layer_{layer}"] = indexed(names, problem)
    return table.assign_coords(
        {
            axis: list(named.get(str(axis).removesuffix("_"), range(size)))
            for axis, size in table.sizes.items()
        }
    )


def head_names(problem: AnyProblem, shape: tuple[int, ...]) -> np.ndarray:
    """Names of the heads [layer, head], as the task has them; empty where a layer has fewer."""
    names = np.full(shape, "", dtype=object)
    for layer, of_layer in enumerate(problem.head_names[: shape[0]]):
        for head, name in enumerate(of_layer[: shape[1]]):
            names[layer, head] = str(name)
    return names


def indexed(names: Iterable[str], problem: AnyProblem) -> list[str]:
    """Names of the rows of an order parameter: the output is added where there are several."""
    outputs = problem.architecture.outputs
    if outputs == 1:
        return list(names)
    return [f"{name}, output {c}" for name in names for c in range(outputs)]


# Everything is a pure number: labels are ±1 or 0 and 1, and f is on their scale.
ON_SCALE_OF_LABELS = "scale of the labels"
ON_SCALE_OF_LABELS_SQUARED = "scale of the labels, squared"
PURE_NUMBER = "1"

# Pattern of the name → long name, in which {0} is the match of the pattern's group; units.
KNOWN = {
    r"order_parameter": ("overlap U_1 of path weights, w_1 w_1ᵀ/N_1", PURE_NUMBER),
    r"order_parameter_layer_(\d+)": ("overlap U_{0} = w_{0} w_{0}ᵀ/N_{0}", PURE_NUMBER),
    r"order_parameter_trained": ("overlap U_1 of the trained network", PURE_NUMBER),
    r"readout_order_parameter": ("overlap U_a = a aᵀ/N_a of the readout", PURE_NUMBER),
    r"predictor": ("network output f(x) on the test set, one draw", ON_SCALE_OF_LABELS),
    r"predictor_mean": ("posterior mean of f(x)", ON_SCALE_OF_LABELS),
    r"predictor_variance": ("posterior variance of f(x)", ON_SCALE_OF_LABELS_SQUARED),
    r"kernel_alignment": ("alignment of kernel and labels, by component", PURE_NUMBER),
    r"kernel_alignment_mcse": ("Monte Carlo standard error of the alignment", PURE_NUMBER),
    r"kernel": ("kernel K between some training examples", PURE_NUMBER),
    r"kernel_mcse": ("Monte Carlo standard error of the kernel", PURE_NUMBER),
    r"kernel_features": ("features of the same examples by path: K = Σ U_1 φ·φ", PURE_NUMBER),
    r"head_score": (
        "share of |U_1| on paths through the head, relative to the largest",
        PURE_NUMBER,
    ),
    r"head_score_trained": ("head score of the trained network", PURE_NUMBER),
    r"accuracy": ("share of test examples classified correctly", PURE_NUMBER),
    r"accuracy_(\w+)": ("share of test examples classified correctly: {0}", PURE_NUMBER),
    r"action": ("action over the largest width, at the saddle point", PURE_NUMBER),
    r"log_evidence": ("ln p(y) of the training labels", PURE_NUMBER),
    r"gradient_norm": ("norm of the gradient of the action", PURE_NUMBER),
    r"smallest_hessian_eigenvalue": ("smallest eigenvalue of the action's Hessian", PURE_NUMBER),
    r"start_disagreement": ("largest coordinate difference between starting points", PURE_NUMBER),
    r"participation_ratio": ("number of paths that U_1 uses", PURE_NUMBER),
    r"off_diagonal_share": ("share of U_1 off its diagonal", PURE_NUMBER),
    r"temperature": ("temperature, the variance of the likelihood", ON_SCALE_OF_LABELS_SQUARED),
    r"prior_variances": ("prior variances of the weights", PURE_NUMBER),
    r"log_prior": ("ln p of the coordinates that were sampled", PURE_NUMBER),
    r"elpd(_by_example)?": ("ln p(y_i | all other labels), leave one out", PURE_NUMBER),
    r"pareto_k": ("Pareto's k of the weights that leave the example out", PURE_NUMBER),
    r"mcse": ("Monte Carlo standard error of elpd", PURE_NUMBER),
    r"bartlett_(\w+)": ("Bartlett coordinates {0} of the order parameters", PURE_NUMBER),
    r"labels_test|labels_shown|labels|y": ("labels", ON_SCALE_OF_LABELS),
    r"V_(\d+)|a|mlp_(in|out)_(\d+)": ("weights", PURE_NUMBER),
}
COORDINATES = {
    r"predictor": "what predicts: the theory to both orders in 1/N, infinite width",
    r"path_?|kernel_path": "attention path",
    r"path_layer_(\d+)_?": "attention path from layer {0} on",
    r"example": "training example",
    r"test_example": "test example",
    r"validation_example": "validation example",
    r"shown_example_?": "training example, sorted by label",
    r"chain": "Markov chain",
    r"draw": "draw within the chain",
    r"component": "eigenvector of the kernel, largest eigenvalue first",
    r"layer": "attention layer, from the inputs up",
    r"head": "head within its layer",
    r"output_?": "output of the network",
}


def with_long_names(table: xr.Dataset) -> xr.Dataset:
    """The table, its variables and coordinates with `long_name`, its variables with `units`."""
    table = table.copy()
    for name, variable in table.data_vars.items():
        for pattern, (words, units) in KNOWN.items():
            match = re.fullmatch(pattern, str(name))
            if match:
                long_name = words.format(*match.groups())
                variable.attrs |= {"long_name": long_name, "units": units}
    for name, coordinate in table.coords.items():
        for pattern, words in COORDINATES.items():
            match = re.fullmatch(pattern, str(name))
            if match:
                coordinate.attrs["long_name"] = words.format(*match.groups())
    return table


def is_overlap(key: str) -> bool:
    """Whether a stored quantity is an order parameter, a symmetric matrix."""
    return "order_parameter" in key


def quantity_name(key: str) -> str:
    """The displayed name of a stored quantity, U₂ for `order_parameter_layer_2`."""
    layer = re.fullmatch(r"order_parameter(?:_layer_(\d+))?", key)
    if layer:
        number = layer.group(1) or "1"
        return "U" + number.translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
    return {"readout_order_parameter": "Uₐ (readout)"}.get(key, key.replace("_", " "))


def pair_name(names: Sequence[str], index: SupportsIndex, other: SupportsIndex) -> str:
    """An element of a matrix over paths in words: one path, or two."""
    return names[index] if index == other else f"{names[index]} × {names[other]}"


def head_label(layer: int, head: int, name: str | None = None) -> str:
    """A head in words, `layer 1, head 0 (good)`: layers from 1, heads from 0, and its own name."""
    place = f"layer {layer}, head {head}"
    return place if name in (None, "", str(head)) else f"{place} ({name})"


def numbers_in_model(names: Sequence[str]) -> list[int | str]:
    """Heads of a layer as their model numbers them: 3 for the name "5.3", head 3 of layer 5.

    Among such heads one without a number has its name; without them all have their place.
    """
    numbers = [re.fullmatch(r"\d+\.(\d+)", name) for name in names]
    if not any(numbers):
        return list(range(len(names)))
    return [int(number[1]) if number else name for number, name in zip(numbers, names, strict=True)]


def element_name(
    key: str,
    at: Sequence[int],
    path_names: Sequence[str] = (),
    heads: np.ndarray | None = None,
    layers: Sequence[int] = (),
) -> str:
    """An element of U_1 or of head scores in words, by the names of paths and heads.

    layers  numbers of the layers in their model; 1, 2 … without them
    """
    if key == "order_parameter" and path_names:
        return pair_name(path_names, *at)
    if key.startswith("head_score"):
        layer = layers[at[0]] if len(layers) else at[0] + 1
        if heads is None:
            return head_label(layer, at[1])
        names = list(map(str, heads[at[0]]))
        number, name = numbers_in_model(names)[at[1]], names[at[1]]
        if isinstance(number, str):
            return f"layer {layer}, {number}"
        return head_label(layer, number, None if name == f"{layer}.{number}" else name)
    numbers = ", ".join(map(str, at))
    return f"[{numbers}]" if numbers else ""
