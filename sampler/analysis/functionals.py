"""Functionals of a draw that have reference values; single weights have none.

Hidden units can be exchanged and rotated, so that a weight has no meaningful mean. Given
the order parameters, or hidden weights, everything here follows from the kernel K of all examples:

    m(x), v(x)   mean and variance of f(x) given K
    K(x, x')     of pairs of test inputs
    energy       ln det(K + 𝒯 1) + yᵀ (K + 𝒯 1)⁻¹ y
    accuracy     share of test inputs whose class m(x) gets right

Of the order parameters themselves: elements, traces, and of each matrix the linear function that
relaxes most slowly (`slowest_directions`).

This is NumPy, one example after the other, and shares nothing with the density of any sampler.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh
from scipy.stats import beta

from sampler.mcmc.convergence import mean_ess

# The probabilities of the quantiles, and the powers of the moments, that are stored.
PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
POWERS = (1, 2, 3, 4)
# More elements of order parameters than these are not stored: then diagonals and traces alone.
MOST_ELEMENTS = 100
MOST_PAIRS = 20
# Draws whose kernels are held at a time.
TOGETHER = 200
# Without quantiles: f(x), whose mean and variance given a draw are known, and one of few values.
PREDICTOR, ACCURACY = "predictor", "accuracy"

Values = dict[str, Float[np.ndarray, "chain draw element"]]


@dataclass(frozen=True)
class FunctionalsOfData:
    """Functionals of draws, given training and test examples of a problem.

    labels       [example, output]
    temperature  𝒯, where no draw has one of its own
    attended     [example, path, channel] of training examples, then test examples; None for a
                 network that is no sum over paths
    labels_test  [example, output]
    scale        σ_0²/(D Π)
    directions   coefficients of the stored elements of order parameters, by their names: one
                 linear function of each
    """

    labels: Float[np.ndarray, "example output"]
    labels_test: Float[np.ndarray, "test output"]
    temperature: float
    attended: Float[np.ndarray, "both path channel"] | None = None
    scale: float = 1.0
    directions: Mapping[str, list[float]] = field(default_factory=dict)

    @property
    def outputs(self) -> int:
        return self.labels.shape[1]

    @property
    def classes(self) -> bool:
        """Whether labels are those of classes, whose accuracy means something."""
        labels = self.labels_test
        return self.outputs > 1 or set(np.unique(labels)) <= {-1.0, 1.0}

    def kernels(
        self, order_parameter: Float[np.ndarray, "draw row row"]
    ) -> Float[np.ndarray, "draw label label"]:
        """K = Σ U_1 C of all examples, an output of an example after the other."""
        size, paths, _ = self.attended.shape
        products = self.scale * np.einsum("xpi,yqi->pqxy", self.attended, self.attended)
        U = order_parameter.reshape(-1, paths, self.outputs, paths, self.outputs)
        kernels = np.einsum("dpaqb,pqxy->dxayb", U, products, optimize=True)
        return kernels.reshape(len(U), size * self.outputs, size * self.outputs)

    def given_kernels(
        self,
        kernels: Float[np.ndarray, "draw label label"],
        temperature: Float[np.ndarray, " draw"],
    ) -> dict[str, Float[np.ndarray, "draw element"]]:
        """All functionals that follow from K and 𝒯, by name."""
        known, tests = self.labels.size, len(self.labels_test)
        noisy = kernels[:, :known, :known] + temperature[:, None, None] * np.eye(known)
        root = np.linalg.cholesky(noisy)
        whitened = np.linalg.solve(
            root, np.broadcast_to(self.labels.ravel(), noisy.shape[:2])[..., None]
        )
        cross = np.linalg.solve(root, kernels[:, :known, known:])
        mean = np.einsum("dkt,dk->dt", cross, whitened[..., 0])
        among = kernels[:, known:, known:]
        variance = np.einsum("dtt->dt", among) - np.einsum("dkt,dkt->dt", cross, cross)
        energy = 2.0 * np.log(np.einsum("dkk->dk", root)).sum(axis=1) + (whitened**2).sum((1, 2))
        first = np.arange(min(tests, MOST_PAIRS))
        second = (first + 1) % tests
        found = {
            "predictor_mean": mean,
            "predictor_variance": variance,
            "kernel": among[:, first * self.outputs, second * self.outputs],
            "energy": energy[:, None],
        }
        if self.classes:
            found[ACCURACY] = self.accuracy(mean)[:, None]
        return found

    def accuracy(self, mean: Float[np.ndarray, "draw label"]) -> Float[np.ndarray, " draw"]:
        """The share of test inputs whose class a predictor gets right."""
        mean = mean.reshape(len(mean), *self.labels_test.shape)
        if self.outputs == 1:
            return (np.sign(mean[..., 0]) == np.sign(self.labels_test[:, 0])).mean(axis=1)
        return (mean.argmax(axis=-1) == self.labels_test.argmax(axis=-1)).mean(axis=1)

    def of_order_parameters(self, draws: Mapping[str, np.ndarray]) -> Values:
        """Functionals of draws of U_1 … U_a, by their names in `draws.nc`, [chain, draw, …].

        `temperature` as well, where it is sampled, and `predictor`, f(x) of each draw, as given.
        """
        U = np.asarray(draws["order_parameter"], float)
        leading = U.shape[:2]
        flat, temperature = U.reshape(-1, *U.shape[2:]), self.temperatures(draws, leading)
        parts = [
            self.given_kernels(self.kernels(flat[part]), temperature[part])
            for part in slices(len(flat))
        ]
        matrices = {n: np.asarray(draws[n], float) for n in draws if "order_parameter" in n}
        found = elements_of(matrices)
        if self.directions:
            found["slowest"] = along(self.directions, found)
        return found | self.joined(parts, leading) | self.others(draws, leading)

    def of_kernels(
        self, kernels: Iterator[np.ndarray], draws: Mapping[str, Any], leading
    ) -> Values:
        """Functionals of draws whose kernels of all labels are known, a few draws at a time."""
        temperature, parts, start = self.temperatures(draws, leading), [], 0
        for some in kernels:
            parts.append(self.given_kernels(some, temperature[start : start + len(some)]))
            start += len(some)
        return self.joined(parts, leading) | self.others(draws, leading)

    def temperatures(self, draws: Mapping[str, Any], leading) -> Float[np.ndarray, " draw"]:
        return np.broadcast_to(draws.get("temperature", self.temperature), leading).ravel()

    @staticmethod
    def joined(parts: list[dict], leading: tuple[int, int]) -> Values:
        return {
            name: np.concatenate([part[name] for part in parts]).reshape(*leading, -1)
            for name in parts[0]
        }

    @staticmethod
    def others(draws: Mapping[str, Any], leading: tuple[int, int]) -> Values:
        """Quantities stored as drawn: a sampled temperature, f(x)."""
        return {
            name: np.asarray(draws[name], float).reshape(*leading, -1)
            for name in ("temperature", PREDICTOR)
            if name in draws
        }


def slices(count: int) -> Iterator[slice]:
    """Few draws at a time."""
    for start in range(0, count, TOGETHER):
        yield slice(start, start + TOGETHER)


def stored_elements(sizes: Mapping[str, int]) -> dict[str, list[tuple[int, int]]]:
    """The elements of order parameters of these sizes that are stored: all, or the diagonals."""
    every = sum(size * (size + 1) // 2 for size in sizes.values()) <= MOST_ELEMENTS
    return {
        name: [(i, j) for i in range(size) for j in (range(i, size) if every else [i])]
        for name, size in sizes.items()
    }


def elements_of(matrices: Mapping[str, np.ndarray]) -> Values:
    """The stored elements of order parameters [chain, draw, row, row], and traces of matrices."""
    chosen = stored_elements({name: matrix.shape[-1] for name, matrix in matrices.items()})
    found = {name: matrices[name][..., *np.transpose(places)] for name, places in chosen.items()}
    larger = [matrix for matrix in matrices.values() if matrix.shape[-1] > 1]
    if larger:
        traces = [np.trace(matrix, axis1=-2, axis2=-1) for matrix in larger]
        found["trace"] = np.stack(traces, axis=-1)
    return found


def along(
    directions: Mapping[str, list[float]], elements: Mapping[str, np.ndarray]
) -> Float[np.ndarray, "*leading direction"]:
    """Linear functions of the stored elements of order parameters, one for each of these."""
    return np.stack([elements[name] @ np.array(own) for name, own in directions.items()], axis=-1)


def slowest_directions(matrices: Mapping[str, np.ndarray]) -> dict[str, list[float]]:
    """Of each order parameter the linear function Tr A U_l that samplers of weights find slow.

    Given U_{l+1}, U_l = (1/N) Σ v_j v_jᵀ with columns v_j of the covariance S = σ² 1 ⊗ U_{l+1}.
    Where the weights of this layer diffuse in the metric of their prior, Tr A U_l relaxes at a
    rate of at most E|∇ Tr A U_l|²/Var Tr A U_l, and |∇ Tr A U_l|² = (4/N) Tr A U_l A S. A is
    where this is smallest, among matrices of the stored elements.

    matrices  draws [chain, draw, row, row] of U_1, U_2 … U_a, in this order, by name
    Returns coefficients of the stored elements, by name, the largest being 1: none of a number,
    or of what does not vary.
    """
    draws = {name: one.reshape(-1, *one.shape[2:]) for name, one in matrices.items()}
    chosen = stored_elements({name: one.shape[-1] for name, one in draws.items()})
    names, found = list(draws), {}
    for name, above in zip(names, [*names[1:], None], strict=True):
        U = draws[name]
        rows, places = U.shape[-1], np.transpose(chosen[name])
        spread = np.atleast_2d(np.cov(U[:, *places], rowvar=False))
        if rows == 1 or not np.any(spread):
            continue
        of_layer = np.ones((len(U), 1, 1)) if above is None else draws[above]
        S = np.kron(np.eye(rows // of_layer.shape[-1]), of_layer)
        slopes = sum(sum_of_slopes(U[part], S[part], places) for part in slices(len(U)))
        slowest = eigh(spread, slopes)[1][:, -1]
        found[name] = np.round(slowest / slowest[np.abs(slowest).argmax()], 4).tolist()
    return found


def sum_of_slopes(
    U: Float[np.ndarray, "draw row row"], S: Float[np.ndarray, "draw row row"], places: np.ndarray
) -> Float[np.ndarray, "element element"]:
    """Sums over draws of Tr B_e U B_f S, where Tr B_e U is the element e of the symmetric U."""
    (i, j), (k, m) = places[:, :, None], places[:, None, :]
    return sum((U[:, b, c] * S[:, d, a]).sum(axis=0)
               for a, b in ((i, j), (j, i)) for c, d in ((k, m), (m, k))) / 4  # fmt: skip


# --- expectations, with their errors


class Expectations(NamedTuple):
    """Means of (g − c)^k, k = 1 … 4, and of the events g ≤ q, with their errors.

    All that is compared are these means: of chains, of weighted draws, or on a grid.
    """

    means: Float[np.ndarray, "statistic element"]
    errors: Float[np.ndarray, "statistic element"]


def statistics(
    values: np.ndarray, centre: np.ndarray, quantiles: Iterable[np.ndarray]
) -> list[np.ndarray]:
    """The functions of g whose means are compared."""
    away = values - centre
    return [*(away**k for k in POWERS), *((values <= q).astype(float) for q in quantiles)]


def expectations_of_chains(
    values: Float[np.ndarray, "chain draw element"], centre, quantiles
) -> Expectations:
    """Means over chains of the functions of g that are compared."""
    return means_over_chains(statistics(values, centre, quantiles))


def means_over_chains(
    functions: Iterable[Float[np.ndarray, "chain draw element"]],
) -> Expectations:
    """Means over chains, their errors by effective sample sizes."""
    means, errors = [], []
    for one in functions:
        means.append(one.mean(axis=(0, 1)))
        errors.append(one.std(axis=(0, 1), ddof=1) / np.sqrt(mean_ess(one)))
    return Expectations(np.array(means), np.array(errors))


def expectations_of_weighted(
    values: Float[np.ndarray, "draw element"],
    weights: Float[np.ndarray, " draw"],
    centre,
    quantiles,
    exact: bool = False,
) -> Expectations:
    """Means of independent weighted draws, or of a grid that is exact."""
    means, errors = [], []
    for one in statistics(values, centre, quantiles):
        mean = weights @ one
        means.append(mean)
        errors.append(np.sqrt(weights**2 @ (one - mean) ** 2))
    errors = np.zeros_like(errors) if exact else np.array(errors)
    return Expectations(np.array(means), errors)


def weighted_quantiles(
    values: np.ndarray, weights: np.ndarray
) -> Float[np.ndarray, "probability element"]:
    """Quantiles of weighted draws [draw, element]."""
    found = []
    for column in values.T:
        order = np.argsort(column)
        reached = np.cumsum(weights[order]) - weights[order] / 2
        found.append(np.interp(PROBABILITIES, reached, column[order]))
    return np.transpose(found)


def quantile_errors(
    values: Float[np.ndarray, "chain draw element"],
    errors: Float[np.ndarray, "probability element"],
) -> Float[np.ndarray, "probability element"]:
    """Monte Carlo errors of quantiles, from those of the probabilities g ≤ q.

    Half the distance of the quantiles at the ends of the central 68 % of the Beta law of p.
    """
    ordered = np.sort(values.reshape(-1, values.shape[-1]), axis=0)
    found = np.zeros_like(errors)
    for place, p in enumerate(PROBABILITIES):
        with np.errstate(divide="ignore"):
            worth = p * (1 - p) / errors[place] ** 2
        for element, size in enumerate(np.minimum(worth, 1e12)):
            low, high = beta.ppf([0.158655, 0.841345], size * p + 1, size * (1 - p) + 1)
            ends = np.clip(np.array([low, high]) * len(ordered), 0, len(ordered) - 1).astype(int)
            found[place, element] = np.diff(ordered[ends, element])[0] / 2
    return found


def given_moments(mean: np.ndarray, variance: np.ndarray, centre: np.ndarray) -> list[np.ndarray]:
    """Moments about a centre of a normal number of this mean and variance, of the first four."""
    away = mean - centre
    return [
        away,
        away**2 + variance,
        away**3 + 3 * away * variance,
        away**4 + 6 * away**2 * variance + 3 * variance**2,
    ]


def expectations_of_predictor(
    mean: Float[np.ndarray, "chain draw element"],
    variance: Float[np.ndarray, "chain draw element"],
    centre: Float[np.ndarray, " element"],
) -> Expectations:
    """Moments of f(x) from m(x) and v(x), the only stored numbers of f: it has no quantiles."""
    return means_over_chains(given_moments(mean, variance, centre))


def deviations(values: Expectations, reference: Expectations) -> Float[np.ndarray, "stat element"]:
    """z of every statistic: differences in combined errors; NaN where nothing varies."""
    error = np.hypot(values.errors, reference.errors)
    rows = len(values.means)
    difference = values.means - reference.means[:rows]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error[:rows] > 0, difference / error[:rows], math.nan)
