"""The network of infinite width at every temperature, from one eigendecomposition of its kernel.

At infinite width U_1 = σ_a² ··· σ_1² 1 and K = σ_a² ··· σ_1² Σ_π C_ππ ⊗ 1_O: outputs decouple.
With K = Σ_i λ_i e_i e_iᵀ of one output and ỹ_io = e_i·y_o every temperature costs as
much as a product with a vector,

    ln p(y) = −½ Σ_io ( ln 2π(λ_i + 𝒯) + ỹ_io²/(λ_i + 𝒯) ) + ln 𝒩(y_⊥; 0, 𝒯)
    m(x) = Σ_i k̃_i ỹ_i/(λ_i + 𝒯),   v(x) = K(x, x) − Σ_i k̃_i²/(λ_i + 𝒯),   k̃_i = e_i·k(x)

so that this network can be compared with others at the temperature that is best for itself.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float

from theory.learning_problem import LearningProblem, ResidualLabels

# Powers of ten times the mean square of the labels between which a temperature is looked for.
LOWEST_DECADE, HIGHEST_DECADE = -6, 3
# Of ln 𝒯.
TOLERANCE = 1e-6

Moments = tuple[Float[np.ndarray, "input output"], Float[np.ndarray, "input output"]]


@dataclass(frozen=True)
class InfiniteWidth:
    """The network of infinite width on its training data, at every temperature.

    scale         of features: K = scale² Σ_π ξ^π·ξ^π
    features      scale · ξ [row, feature], of the examples or the rows that represent them
    eigenvalues   λ of the kernel of one output, none below 0
    eigenvectors  e_i [row, row], one a column
    labels        ỹ [row, output]
    residual      labels that no row represents
    """

    scale: float
    features: Float[np.ndarray, "row feature"]
    eigenvalues: Float[np.ndarray, " row"]
    eigenvectors: Float[np.ndarray, "row row"]
    labels: Float[np.ndarray, "row output"]
    residual: ResidualLabels

    @classmethod
    def of(cls, problem: LearningProblem) -> "InfiniteWidth":
        """Decompose the kernel of the training data, once for all temperatures."""
        arch = problem.architecture
        scale = math.sqrt(math.prod(arch.variances) / (arch.channels * arch.path_count))
        features = scale * _flat(problem.attended)
        eigenvalues, vectors = np.linalg.eigh(features @ features.T)
        labels = vectors.T @ np.asarray(problem.labels, np.float64)
        return cls(scale, features, np.maximum(eigenvalues, 0.0), vectors, labels, problem.residual)

    def log_evidence(self, temperature: float) -> float:
        """Log evidence ln p(y) of all training labels."""
        noisy = self.eigenvalues + temperature
        logs = self.labels.shape[1] * np.sum(np.log(2.0 * math.pi * noisy))
        total = -0.5 * float(logs + np.sum(self.labels**2 / noisy[:, None]))
        return total + self.residual.log_likelihood(temperature)

    def predictor(
        self, attended: Float[Array | np.ndarray, "input path channel"]
    ) -> Callable[[float], Moments]:
        """Mean m and variance v of f on inputs [input, output], as a function of the temperature.

        The variance is the same for all outputs; one that rounding leaves below 0 is 0.
        """
        features = self.scale * _flat(attended)
        cross = features @ (self.features.T @ self.eigenvectors)
        squares, prior = cross**2, np.sum(features**2, axis=1)

        def moments(temperature: float) -> Moments:
            noisy = self.eigenvalues + temperature
            mean = cross @ (self.labels / noisy[:, None])
            variance = np.maximum(prior - squares @ (1.0 / noisy), 0.0)
            return mean, np.repeat(variance[:, None], mean.shape[1], axis=1)

        return moments

    @property
    def mean_square_label(self) -> float:
        """Mean of y² over examples and outputs; the scale on which temperatures are looked for."""
        total = float(np.sum(self.labels**2)) + self.residual.squares
        return total / (self.labels.size + self.residual.count)


def _flat(attended) -> Float[np.ndarray, "example path_channel"]:
    return np.asarray(attended, np.float64).reshape(len(attended), -1)


@dataclass(frozen=True)
class BestTemperature:
    """The temperature with the best score, and that score.

    bound  "lowest" or "highest" if it is an end of the range searched; else empty
    """

    temperature: float
    score: float
    bound: str = ""


def best_temperature(
    score: Callable[[float], float],
    mean_square_label: float,
    temperature: float,
    lowest: float = 0.0,
) -> BestTemperature:
    """Return the temperature with the largest score.

    Looked for among the powers of ten from 10⁻⁶ to 10³ times the mean square label and the
    temperature of the problem, none below `lowest`, then between the neighbours of the best of
    them, in ln 𝒯.
    """
    from scipy.optimize import minimize_scalar

    decades = np.arange(LOWEST_DECADE, HIGHEST_DECADE + 1)
    scale = mean_square_label or temperature  # without any label above 0
    grid = np.unique(np.log(np.maximum([*scale * 10.0**decades, temperature], lowest)))
    # One that is another's but for rounding has no neighbours to look between.
    grid = grid[np.diff(grid, prepend=-np.inf) > TOLERANCE]
    scores = np.array([score(math.exp(log)) for log in grid])
    place = int(np.nanargmax(scores)) if np.isfinite(scores).any() else 0
    between = minimize_scalar(
        lambda log: -score(math.exp(log)),
        bounds=(grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]),
        method="bounded",
        options={"xatol": TOLERANCE},
    )
    if -between.fun > scores[place]:
        return BestTemperature(math.exp(between.x), float(-between.fun))
    bound = {0: "lowest", len(grid) - 1: "highest"}.get(place, "")
    return BestTemperature(math.exp(grid[place]), float(scores[place]), bound)
