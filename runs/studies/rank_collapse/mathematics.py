"""Rank collapse of tokens with depth.

    μ(X) = ‖X − 1 x̄ᵀ‖_F,    x̄ the mean over tokens,

measures how far the tokens X are from being equal (Wu et al., arXiv 2405.18781). Without LayerNorm
the deviation Y = X − 1 x̄ᵀ is carried from layer to layer by itself, as rows of A sum to 1 and
A (Y + 1 x̄ᵀ) = A Y + 1 x̄ᵀ: each μ is then known to the rounding of the μ before it. LayerNorm mixes
the two, and μ is known to the rounding of X only.

Under a mask μ ends up losing a factor per layer: nearly equal tokens have nearly equal weights,
and the factor is the second eigenvalue of the uniform average over visible keys. The complete mask
loses ever larger factors, for equal queries give equal rows of A and leave no deviation at all.

With LayerNorm and a value matrix W, X_l = LayerNorm(A X_{l−1} W), there are tokens of every rank
that a layer leaves as they are (`equilibrium`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import brentq
from scipy.special import softmax

from runs.studies.numbers import mean_over


def distance_from_collapse(tokens: Float[np.ndarray, "token channel"]) -> float:
    """Distance of the tokens from their mean, μ(X) = ‖X − 1 x̄ᵀ‖_F."""
    return float(np.linalg.norm(tokens - tokens.mean(axis=0)))


def layer_norm(
    tokens: Float[np.ndarray, "*start token channel"],
) -> Float[np.ndarray, "*start token channel"]:
    """Every token less its mean over channels, divided by its standard deviation over channels."""
    centred = tokens - tokens.mean(axis=-1, keepdims=True)
    return centred / centred.std(axis=-1, keepdims=True)


def distances_of_layers(
    attentions: Iterable[Callable[[np.ndarray], np.ndarray]],
    tokens: Float[np.ndarray, "token channel"],
    normalise: bool = False,
    values: Iterator[np.ndarray] | None = None,
) -> Float[np.ndarray, " depth"]:
    """Distances μ(X_0) … μ(X_L), with A_l [query, key] of the tokens X_{l−1} from `attentions`.

    X_l = A_l X_{l−1} W_l, of which LayerNorm is taken if asked for; values W_l, if any, in turn.
    """
    mean = tokens.mean(axis=0)
    deviation = tokens - mean
    distances = [np.linalg.norm(deviation)]
    for attention in attentions:
        deviation = attention(deviation + mean) @ deviation
        if values is not None:
            one = next(values)
            deviation, mean = deviation @ one, mean @ one
        if normalise:
            deviation, mean = layer_norm(deviation + mean), np.zeros_like(mean)
        shift = deviation.mean(axis=0)
        deviation, mean = deviation - shift, mean + shift
        distances.append(np.linalg.norm(deviation))
    return np.array(distances)


def collapse_of_random_attention(
    mask: Bool[np.ndarray, "token token"],
    tokens: Float[np.ndarray, "token channel"],
    layers: int,
    key_channels: int,
    rng: np.random.Generator,
    normalise: bool = False,
    orthogonal_values: bool = False,
) -> Float[np.ndarray, " depth"]:
    """Distances μ(X_0) … μ(X_L) with A_l = softmax(Q Kᵀ/√G, masked), by random weights.

    Q = X_{l−1} W_Q and K = X_{l−1} W_K with independent Gaussian entries of variance 1/D, new in
    every layer. Values are the tokens themselves, or X W_l with a random orthogonal matrix W_l, new
    in every layer. `mask` is True where query i sees key j.
    """
    channels = tokens.shape[1]

    def attend(current: np.ndarray) -> np.ndarray:
        shape = (2, channels, key_channels)
        query_weights, key_weights = rng.standard_normal(shape) / np.sqrt(channels)
        logits = (current @ query_weights) @ (current @ key_weights).T / np.sqrt(key_channels)
        return softmax(np.where(mask, logits, -np.inf), axis=1)

    orthogonal = (random_orthogonal_matrix(channels, rng) for _ in range(layers))
    values = orthogonal if orthogonal_values else None
    return distances_of_layers((attend for _ in range(layers)), tokens, normalise, values)


def random_orthogonal_matrix(
    channels: int, rng: np.random.Generator
) -> Float[np.ndarray, "channel channel"]:
    orthogonal, triangular = np.linalg.qr(rng.standard_normal((channels, channels)))
    return orthogonal * np.sign(np.diagonal(triangular))


def rate_of_uniform_averages(mask: Bool[np.ndarray, "token token"]) -> float:
    """Loss of ln μ per layer, −ln |λ₂|, where every query averages its visible keys uniformly.

    λ₂ is the second largest eigenvalue of that average. Infinite where it is 0 to rounding: one
    layer then makes all tokens equal.
    """
    sizes = np.sort(np.abs(np.linalg.eigvals(mask / mask.sum(axis=1, keepdims=True))))
    return float(-np.log(sizes[-2])) if sizes[-2] > 1e-12 else np.inf


@dataclass(frozen=True)
class Equilibrium:
    """Tokens that a layer leaves as they are, X = LayerNorm(A X W).

    tokens   X
    matrix   A, lower triangular: no token sees a later one
    values   W
    """

    tokens: Float[np.ndarray, "token channel"]
    matrix: Float[np.ndarray, "token token"]
    values: Float[np.ndarray, "channel channel"]

    @property
    def rank(self) -> int:
        """The number of singular values of X above 10⁻¹⁰ of the largest."""
        return rank_of(self.tokens)

    @property
    def error(self) -> float:
        """The largest element of LayerNorm(A X W) − X."""
        return float(np.abs(self.after(self.tokens, 1) - self.tokens).max())

    def after(
        self, tokens: Float[np.ndarray, "*start token channel"], layers: int
    ) -> Float[np.ndarray, "*start token channel"]:
        """Any tokens after so many of these layers, from several starts if they are stacked."""
        for _ in range(layers):
            tokens = layer_norm(self.matrix @ tokens @ self.values)
        return tokens

    @property
    def growth(self) -> float:
        """Spectral radius of the derivative of a layer at X: below 1 all small changes die out.

        No token sees a later one, so the derivative is block triangular with the blocks
        (a_ii/σ_i) W (1 − 11ᵀ/D − x_i x_iᵀ/D), σ_i the standard deviation of token i of A X W.
        """
        channels = self.tokens.shape[1]
        deviations = (self.matrix @ self.tokens @ self.values).std(axis=1)
        centre = np.eye(channels) - 1.0 / channels
        radii = [
            own / deviation * np.abs(np.linalg.eigvals(block)).max()
            for own, deviation, block in zip(
                np.diagonal(self.matrix),
                deviations,
                (self.values @ (centre - np.outer(x, x) / channels) for x in self.tokens),
                strict=True,
            )
        ]
        return float(max(radii))


def rank_of(tokens: Float[np.ndarray, "token channel"]) -> int:
    """The number of singular values above 10⁻¹⁰ of the largest."""
    sizes = np.linalg.svd(tokens, compute_uv=False)
    return int(np.sum(sizes > 1e-10 * sizes[0]))


def equilibrium(
    matrix: Float[np.ndarray, "token token"],
    steps: Sequence[int],
    directions: int,
    shear: float = 2.5,
    ratio: float = 0.85,
) -> Equilibrium:
    """Tokens X = LayerNorm(A X W) of rank 1 + (number of steps that are not 0), for one W.

    matrix      A, row-stochastic and lower triangular with a positive diagonal
    steps       of tokens 2 … T: 0, or the sign +1 or −1 of the root that a new direction takes
    directions  n ≥ rank; there are n + 1 channels, as LayerNorm takes one away

    W is, in an orthonormal basis e_0, e_1 … e_{n−1} of the channels with mean zero,
    e_c W = ρ^c e_c + γ e_{c−1}: a shear γ with eigenvalues ρ^c. It depends on n, γ and ρ alone, so
    one network has equilibria of all ranks. With unit tokens the condition on token i is

        x_i (d_i − a_ii W) = s_i W,    s_i = Σ_{j<i} a_ij x_j,    d_i > 0.

    Let the tokens before it lie in the span of e_0 … e_{c−1}, which W maps to itself. With
    d_i = a_ii ρ^c the equation leaves a line of solutions that reaches into e_c, of which |x_i| = 1
    picks two (step ±1). Or d_i > a_ii, and x_i lies in that span: |x_i| falls from ∞ to 0 as d_i
    grows, and is 1 at one d_i (step 0).

    Raises ValueError where a token sees a later one, or has no solution.
    """
    if np.any(np.triu(matrix, 1)) or not np.all(np.diagonal(matrix) > 0):
        raise ValueError("matrix: a token sees a later one, or not itself")
    powers = ratio ** np.arange(directions)
    values = np.diag(powers) + shear * np.eye(directions, k=-1)
    found, rank = [np.eye(directions)[0]], 1
    for token, step in enumerate(steps, start=1):
        own = matrix[token, token]
        pulled = (matrix[token, :token] / own) @ np.stack(found) @ values
        if step:
            one = _in_a_new_direction(pulled, powers, shear, rank, step)
            rank += 1
        else:
            one = _in_the_span(pulled, values, rank)
        if one is None:
            raise ValueError(f"steps: token {token} has no solution with step {step}")
        found.append(one)
    basis = _mean_zero_basis(directions + 1)
    scaled = np.sqrt(directions + 1) * np.stack(found) @ basis
    return Equilibrium(scaled, matrix, basis.T @ values @ basis)


def _in_a_new_direction(
    pulled: np.ndarray, powers: np.ndarray, shear: float, rank: int, sign: int
) -> np.ndarray | None:
    """x (ρ^c − W) = y with |x| = 1 and c the rank so far, from e_0 upwards: x = p + h q."""
    here = powers[rank]
    fixed, line = np.zeros((2, len(powers)))
    line[0] = 1.0
    for c in range(rank):
        gap = here - powers[c]
        fixed[c + 1] = (fixed[c] * gap - pulled[c]) / shear
        line[c + 1] = line[c] * gap / shear
    square, half, rest = line @ line, fixed @ line, fixed @ fixed - 1.0
    inside = half**2 - square * rest
    if inside < 0:
        return None
    return fixed + (-half + sign * np.sqrt(inside)) / square * line


def _in_the_span(pulled: np.ndarray, values: np.ndarray, rank: int) -> np.ndarray | None:
    """x (d − W) = y with |x| = 1 and d above the largest eigenvalue 1 of W."""
    inner, one = values[:rank, :rank], np.zeros(len(values))

    def solution(d: float) -> np.ndarray:
        return np.linalg.solve((d * np.eye(rank) - inner).T, pulled[:rank])

    low = 1.0 + 1e-12
    high = 1.0 + float(np.linalg.norm(values, 2) + np.linalg.norm(pulled))
    if np.linalg.norm(solution(low)) <= 1.0:
        return None
    d = brentq(lambda d: np.linalg.norm(solution(d)) - 1.0, low, high, xtol=1e-15)
    one[:rank] = solution(d)
    return one / np.linalg.norm(one)


def _mean_zero_basis(channels: int) -> np.ndarray:
    """Orthonormal rows of mean zero (Helmert), [channel − 1, channel]."""
    rows = np.tril(np.ones((channels - 1, channels)))
    np.fill_diagonal(rows[:, 1:], -np.arange(1, channels))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


# --- what is measured

TOKENS, CHANNELS, KEY_CHANNELS, LAYERS, WINDOW = 48, 16, 16, 400, 4
BACK = np.subtract.outer(np.arange(TOKENS), np.arange(TOKENS))  # from each query to each key
MASKS = {
    "complete": np.ones((TOKENS, TOKENS), bool),
    "causal": BACK >= 0,
    "window": np.abs(BACK) <= WINDOW,
    "one-sided window": (BACK >= 0) & (BACK <= WINDOW),
}
# Whether there is LayerNorm, with random orthogonal values, and down to which μ/μ₀ it is known:
# with LayerNorm tokens are known to rounding only, else to the smallest number there is.
KINDS = {"attention only": (False, 1e-290), "with LayerNorm": (True, 1e-12)}
SHALLOWEST, FEWEST = 30, 5  # the layer from which a rate is fitted, and how many it takes
DEPTHS = (12, 50, 200, LAYERS)
# Signs of the directions that tokens after the first add, by rank; 0 adds none.
STEPS = {1: (), 4: (-1, 0, 1, 0, -1), 5: (-1, 1, -1, 1), 8: (-1, 1, -1, 1, -1, 1, -1)}
NOISES, STARTS = (1e-8, 1e-6, 1e-4, 1e-3), 100


def distances(name: str, seed: int, normalised: bool) -> dict:
    """μ(X_l)/μ(X_0) by depth; every mask sees the same tokens and the same random weights."""
    rng = np.random.default_rng(seed)
    tokens = rng.standard_normal((TOKENS, CHANNELS))
    weights = LAYERS, KEY_CHANNELS, rng
    found = collapse_of_random_attention(MASKS[name], tokens, *weights, normalised, normalised)
    return {"shares": found / found[0]}


def fall(shares: np.ndarray, name: str, floor: float) -> dict:
    """−log₁₀ of μ/μ₀, means over seeds, and what ln μ loses per layer where it can be fitted."""
    with np.errstate(divide="ignore"):
        powers = np.where(shares > floor, -np.log10(shares), np.inf).mean(axis=0)
    numbers = {str(depth): powers[depth] for depth in DEPTHS}
    numbers["uniform"] = rate_of_uniform_averages(MASKS[name])
    used = np.flatnonzero((shares > floor).all(axis=0))
    used = used[used >= SHALLOWEST]
    if used.size < FEWEST:
        return numbers | {"rate": None, "last": None}
    slopes = [-np.polyfit(used, np.log(one[used]), 1)[0] for one in shares]
    return numbers | {"rate": mean_over(slopes, "seeds"), "last": int(used[-1])}


def of_equilibrium(rank: int, channels: int) -> dict:
    """How exact and how stable an equilibrium is, and how many starts beside it come back."""
    averages = MASKS["causal"] / MASKS["causal"].sum(axis=1, keepdims=True)
    steps = STEPS[rank] + (0,) * (TOKENS - 1 - len(STEPS[rank]))
    found = equilibrium(averages, steps, channels - 1)
    noise = np.random.default_rng(0).standard_normal((STARTS, *found.tokens.shape))
    ends = [found.after(found.tokens + scale * noise, LAYERS) for scale in NOISES]
    back = [int(sum(np.abs(one - found.tokens).max() < 1e-9 for one in end)) for end in ends]
    numbers = {"rank": found.rank, "error": found.error, "radius": found.growth}
    return numbers | {"back": dict(zip(map(str, NOISES), back, strict=True))}
