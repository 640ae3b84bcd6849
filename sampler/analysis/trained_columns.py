"""What gradient descent made of the same network, beside the theory: columns of `theory.nc`."""

import jax.numpy as jnp
import numpy as np

from sampler.network import overlaps, predict
from sampler.problem import Problem
from sampler.transformer.frozen import FrozenNetwork
from theory import Architecture, AttentionPaths, head_scores
from theory.accuracy import accuracy


def architecture_of(network: FrozenNetwork) -> Architecture:
    """The trained network's own widths; its weights have no prior."""
    return Architecture(
        heads=network.heads,
        widths=network.widths,
        variances=(1.0,) * (len(network.heads) + 2),
        channels=network.channels,
        outputs=network.weights["a"].shape[0],
    )


def as_arrays(network: FrozenNetwork) -> dict:
    return {name: jnp.asarray(values) for name, values in network.weights.items()}


def trained_overlap(network: FrozenNetwork) -> np.ndarray:
    """U_GD = w_1 w_1ᵀ/N_1 [path, path]: the overlap that the posterior of U_1 is about."""
    return np.asarray(overlaps(as_arrays(network), architecture_of(network))[0])


def trained_predictor(network: FrozenNetwork, attended) -> np.ndarray:
    """f of the trained network on attended inputs, [example, output]."""
    return np.asarray(predict(as_arrays(network), attended, architecture_of(network)))


def trained_columns(problem: Problem) -> dict:
    """U_GD, its head scores, and accuracies on the test set of trained network and pixels."""
    columns: dict = {}
    if problem.nearest_neighbour is not None and problem.labels_test is not None:
        right = 0.5 + 0.5 * problem.nearest_neighbour * problem.labels_test[:, 0]
        columns["accuracy_nearest_neighbour"] = ((), right.mean())
    if problem.trained is not None:
        overlap = trained_overlap(problem.trained)
        predictions = trained_predictor(problem.trained, problem.attended_test)
        columns["order_parameter_trained"] = (("path", "path_"), overlap)
        columns["head_score_trained"] = (
            ("layer", "head"),
            head_scores(overlap, AttentionPaths(problem.trained.heads)),
        )
        columns["accuracy_trained"] = ((), accuracy(predictions, problem.labels_test))
    return columns
