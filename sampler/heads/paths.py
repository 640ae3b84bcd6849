"""Compression beyond heads: paths removed one after another, and path weights of low rank.

A network that is a sum over paths, f(x) = Σ_π z_π(x), loses a path with its term, exactly; so does
the theory's predictor after learning. With path weights w_π, [path, channel] for each output, it is
f = Σ_π w_π·ξ^π, and r directions in the space of paths leave r (Π + D) of Π D numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.analysis.estimate import Estimate
from sampler.heads.measures import Numbers, paired_costs
from sampler.problem import square_roots
from theory import LearningProblem, path_contributions

# Who is compressed: the trained network; the theory's predictor.
NETWORK, THEORY = "model", "theory"
OVERLAP, RANDOM, BEST, AGAIN = "overlap", "random", "best", "learned_again"
RANDOM_ONES = 20
POINT = 0.01  # of accuracy, or of squared loss where labels are no classes

Outputs = Float[np.ndarray, "example output"]
Terms = Float[np.ndarray, "example term output"]
# Attended inputs [example, path, channel], and labels [example, output]
Examples = tuple[
    Float[Array | np.ndarray, "_example path channel"], Float[np.ndarray, "_example output"]
]
# Numbers of all terms that are left, of which the least is removed next, from f − y and these terms
Rule = Callable[[Outputs, Terms], Float[np.ndarray, " term"]]

# loss   mean |f − y − z_π|² − |f − y|², what the loss gains without the path
# slope  mean |∂|f − y|²/∂g_π| at the gate of the path, g = 1
# size   mean |z_π|²
RULES: Mapping[str, Rule] = {
    "loss": lambda error, terms: np.mean(
        (terms**2).sum(axis=2) - 2.0 * np.einsum("xo,xpo->xp", error, terms), axis=0
    ),
    "slope": lambda error, terms: np.abs(2.0 * np.einsum("xo,xpo->xp", error, terms)).mean(axis=0),
    "size": lambda error, terms: (terms**2).sum(axis=2).mean(axis=0),
}


@dataclass(frozen=True)
class Curve:
    """Costs of keeping fewer and fewer paths, or directions.

    kept     how many, all of them first
    cost     "loss" gained, and "accuracy" lost where labels are classes, paired over test examples
    removed  paths in the order of their removal; empty where there is no such order
    """

    kept: tuple[int, ...]
    cost: Mapping[str, Numbers]
    removed: tuple[int, ...] = ()

    def fewest(self, allowed: float = POINT, errors: float = 0.0) -> int:
        """The fewest that cost no more than allowed, as do all larger numbers kept.

        errors  how many of its errors are added to each cost
        """
        cost = self.cost.get("accuracy", self.cost["loss"])
        bound = np.asarray(cost.values) + errors * np.asarray(cost.errors)
        beyond = np.flatnonzero(bound[1:] > allowed)  # all of them cost nothing
        return self.kept[beyond[0] if len(beyond) else -1]


@dataclass(frozen=True)
class CompressedPaths:
    """Costs of fewer paths and of fewer directions, on test examples.

    paths, outputs, channels  Π, O and D: the network has Π O D path weights
    examples_chosen  on which orders of removal were chosen
    removed  "model" or "theory" → "loss", "slope", "size", "overlap" (diagonal of the theory's
             U_1), "theory" (the order in which the theory loses its own paths by loss), "random",
             or "learned_again": by loss, with the theory's readout learned again each time
    ranks    "model" → its path weights in the "best" directions, in the leading eigenvectors of the
             theory's U_1 ("overlap"), or in "random" ones; "theory" → "learned_again" at U_1 of
             that rank
    """

    paths: int
    outputs: int
    channels: int
    examples_chosen: int
    examples_test: int
    removed: Mapping[str, Mapping[str, Curve]] = field(default_factory=dict)
    ranks: Mapping[str, Mapping[str, Curve]] = field(default_factory=dict)

    def numbers(self, kept: int, directions: bool) -> int:
        """Count the numbers of so many paths, k O D, or directions, r (Π O + D)."""
        rows = self.paths * self.outputs
        if directions:
            return min(kept * (rows + self.channels), rows * self.channels)
        return kept * self.outputs * self.channels


def removal_order(terms: Terms, labels: Outputs, rule: Rule) -> list[int]:
    """Paths in the order of their removal, each the least by the rule when it goes."""
    left, order, error = list(range(terms.shape[1])), [], terms.sum(axis=1) - labels
    while left:
        least = left.pop(int(np.argmin(rule(error, terms[:, left]))))
        error = error - terms[:, least]
        order.append(least)
    return order


def outputs_in_order(terms: Terms, order: Sequence[int]) -> Float[np.ndarray, "step example out"]:
    """f with all terms, without the first of an order, … and with the last one alone."""
    return np.moveaxis(np.cumsum(terms[:, list(order)[::-1]], axis=1), 1, 0)[::-1]


def curve_of(
    outputs: Float[np.ndarray, "step example out"], labels: Outputs, removed: Sequence[int] = ()
) -> Curve:
    """Costs of outputs with fewer and fewer kept, one by one, against the first."""
    cost = paired_costs("squared", list(outputs), labels)
    return Curve(tuple(range(len(outputs), 0, -1)), cost, tuple(removed))


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean over random curves; errors are those over examples and over curves together."""

    def mean(key: str) -> Numbers:
        values, errors = (
            np.array([getattr(one.cost[key], of) for one in curves]) for of in ("values", "errors")
        )
        between = values.var(axis=0, ddof=1) / len(curves)
        spread = np.sqrt((errors**2).mean(axis=0) + between)
        return Numbers.of(Estimate(values.mean(axis=0), spread))

    return Curve(curves[0].kept, {key: mean(key) for key in curves[0].cost})


def removed_paths(
    chosen: Float[np.ndarray, "chosen term output"],
    terms: Terms,
    labels_chosen: Float[np.ndarray, "chosen output"],
    labels: Outputs,
    orders: Mapping[str, Sequence[int]],
    seed: int,
) -> dict[str, Curve]:
    """Paths removed by every rule, in further orders and in random ones.

    chosen, labels_chosen  of the examples on which rules are evaluated
    """
    generator = np.random.default_rng(seed)
    found = {key: removal_order(chosen, labels_chosen, rule) for key, rule in RULES.items()}
    curves = {
        key: curve_of(outputs_in_order(terms, order), labels, order)
        for key, order in (found | dict(orders)).items()
    }
    some = (generator.permutation(terms.shape[1]).tolist() for _ in range(RANDOM_ONES))
    drawn = [curve_of(outputs_in_order(terms, order), labels) for order in some]
    return curves | {RANDOM: mean_curve(drawn)}


# --- low rank

# Left [row, direction] and right [direction, channel] factors, the most important direction first
Directions = tuple[Float[np.ndarray, "row direction"], Float[np.ndarray, "direction channel"]]
Weights = Float[np.ndarray, "row channel"]


def best_directions(
    weights: Weights, attended: Float[np.ndarray, "example path channel"]
) -> Directions:
    """Directions whose first r make the best weights of rank r, in the metric of attended inputs.

        min ‖S^{1/2} (W − W_r) T^{1/2}‖_F,   S = Σ_x ξ ξᵀ [path, path],   T = Σ_x ξᵀ ξ / tr S

    is solved by the singular vectors of S^{1/2} W T^{1/2}. It is the squared difference of outputs
    where paths and channels vary independently of each other.
    """
    by_path = np.einsum("xpi,xqi->pq", attended, attended)
    by_channel = np.einsum("xpi,xpj->ij", attended, attended) / np.trace(by_path)
    outputs = len(weights) // len(by_path)
    left, undo_left = roots(np.kron(by_path, np.eye(outputs)))
    right, undo_right = roots(by_channel)
    vectors, values, others = np.linalg.svd(left @ weights @ right.T, full_matrices=False)
    return undo_left @ (vectors * values), others @ undo_right.T


def roots(
    metric: Float[np.ndarray, "axis axis"],
) -> tuple[Float[np.ndarray, "axis axis"], Float[np.ndarray, "axis axis"]]:
    """R with Rᵀ R = S, and its inverse."""
    values, vectors = np.linalg.eigh(metric)
    # Directions that no example has any of weigh next to nothing, but all of the weights stay.
    sizes = np.sqrt(np.maximum(values, len(values) * np.finfo(float).eps * values[-1]))
    return sizes[:, None] * vectors.T, vectors / sizes


def projected(weights: Weights, basis: Float[np.ndarray, "row direction"]) -> Directions:
    """Directions of weights projected on the first vectors of an orthonormal basis."""
    return basis, basis.T @ weights


def terms_of_directions(
    directions: Directions, attended: Float[np.ndarray, "example path channel"]
) -> Terms:
    """Contributions of every direction to f(x), as paths have them."""
    left, right = directions
    by_path = left.reshape(attended.shape[1], -1, left.shape[1])
    pieces = np.einsum("pok,ki->kpoi", by_path, right)
    return np.tensordot(attended, pieces, axes=((1, 2), (1, 3)))


def reduced_ranks(
    weights: Weights,
    overlap: Float[np.ndarray, "row row"],
    attended_train: Float[np.ndarray, "_train path channel"],
    test: Examples,
    seed: int,
) -> dict[str, Curve]:
    """Path weights in fewer and fewer directions: the best, U_1's eigenvectors, random ones."""
    attended, labels = np.asarray(test[0]), test[1]

    def curve(directions: Directions) -> Curve:
        terms = terms_of_directions(directions, attended)
        return curve_of(outputs_in_order(terms, range(terms.shape[1])[::-1]), labels)

    generator = np.random.default_rng(seed)
    bases = (np.linalg.qr(generator.standard_normal(overlap.shape))[0] for _ in range(RANDOM_ONES))
    leading = np.linalg.eigh(overlap)[1][:, ::-1]
    return {
        BEST: curve(best_directions(weights, attended_train)),
        OVERLAP: curve(projected(weights, leading)),
        RANDOM: mean_curve([curve(projected(weights, basis)) for basis in bases]),
    }


def learned_again(
    learning: LearningProblem,
    factor: Float[np.ndarray, "row rank"],
    attended: Float[Array, "example path channel"],
    order: Sequence[int],
    axis: int,
) -> Float[np.ndarray, "step example out"]:
    """Predictor means with rows (axis 0) or columns (1) of a factor of U_1 zeroed one by one.

    order  of all of them; for rows, of paths

    The readout learns again each time. In ascending order of eigenvalues, columns that go leave U_1
    at lower rank.
    """
    place = np.argsort(order)  # when each of them goes
    place = np.repeat(place, factor.shape[axis] // len(order))
    place = place[:, None] if axis == 0 else place
    left = (jnp.asarray(np.where(place < gone, 0.0, factor)) for gone in range(len(order)))
    # Means alone, as sums over paths: no kernel between test and training examples is needed.
    terms = (path_contributions(learning, one, attended) for one in left)
    return np.stack([np.asarray(one.sum(axis=1)) for one in terms])


# --- all of it


def compressed_paths(
    learning: LearningProblem,
    overlap: Float[np.ndarray, "row row"],
    chosen: Examples,
    test: Examples,
    weights: Weights | None = None,
    seed: int = 0,
) -> CompressedPaths:
    """Compress the theory's predictor at U_1, and a network with these path weights.

    chosen  examples on which orders of removal are chosen, `test` others on which is measured
    """
    factor, labels = square_roots(overlap), np.asarray(test[1])
    paths, channels = learning.attended.shape[1:]
    outputs = labels.shape[1]
    theory = [
        np.asarray(path_contributions(learning, jnp.asarray(factor), jnp.asarray(attended)))
        for attended, _ in (chosen, test)
    ]
    diagonal = np.diag(overlap).reshape(paths, outputs).sum(axis=1)
    orders = {OVERLAP: np.argsort(diagonal, kind="stable").tolist()}
    both = np.asarray(chosen[1]), labels
    removed = {THEORY: removed_paths(*theory, *both, orders, seed)}
    again = partial(learned_again, learning, factor, jnp.asarray(test[0]))
    own = removed[THEORY]["loss"].removed
    removed[THEORY][AGAIN] = curve_of(again(own, axis=0), labels, own)
    ranks = {THEORY: {AGAIN: curve_of(again(range(factor.shape[1]), axis=1), labels)}}
    if weights is not None:
        by_path = weights.reshape(paths, outputs, channels)
        terms = [np.einsum("xpi,poi->xpo", one, by_path) for one, _ in (chosen, test)]
        orders = orders | {THEORY: list(removed[THEORY]["loss"].removed)}
        removed[NETWORK] = removed_paths(*terms, *both, orders, seed)
        seen = np.asarray(learning.attended)
        ranks[NETWORK] = reduced_ranks(weights, overlap, seen, test, seed)
    return CompressedPaths(
        paths, outputs, channels, len(both[0]), len(labels), removed=removed, ranks=ranks
    )
