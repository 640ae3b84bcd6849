"""The regression behind attention, solved, and what follows: features, maximiser, complementarity.

**Solution.** The regression of `theory.attention_regression` is solved by scikit-learn, and its
coefficients β are put right to rounding, so that every key lies inside the tube, on its edge or
beyond it.

**Features.** The exponential is a power series, and each power of an inner product is one of
monomials, so that to order n

    e_n(q·k/√D) = Σ_{m≤n} (q·k/√D)^m/m! = φ_n(q)·φ_n(k),
    φ_n(x) = ( Π_c x_c^{m_c} / √(Π_c m_c! · D^{m/2}) )  for all m_1 + … + m_D = m ≤ n,

(n + D choose n) features. This is the primal form of the regression, in which the weights have one
row per feature: with g = Σ_j φ(k_j) and W = Σ_j φ(k_j) v_jᵀ

    f(x) = φ(x)·W/(φ(x)·g),

and no pair of tokens is ever compared. Taylor's remainder bounds what is cut off of w_j = exp l_j,
together at most a share ρ of all weights,

    |e_n(l) − exp l| ≤ |l|^{n+1}/(n+1)! · max(1, exp l),
    ρ = Σ_j |l_j|^{n+1}/(n+1)! · max(1, exp l_j) / Σ_j exp l_j.

With W = Σ w_j, the sum W̃ of the truncated weights is at least (1 − ρ)W, and that of their sizes at
most (1 + ρ)W; a row changes by

    Σ_j |w̃_j/W̃ − w_j/W| ≤ Σ_j |w̃_j − w_j|/W + Σ_j |w̃_j| |1/W̃ − 1/W| ≤ 2ρ/(1 − ρ).

The error falls as a factorial of the order. For even n e_n is positive, and so are the weights.

**Maximiser.** A row of softmax is what similarity and entropy together choose:

    softmax(l) = argmax_p Σ_j p_j l_j − Σ_j p_j ln p_j   over p_j ≥ 0, Σ_j p_j = 1,

with the maximum ln Σ_j exp l_j; any other p stays below it by Σ_j p_j ln(p_j/softmax(l)_j). With
l/τ for l, τ → 0 leaves the similarity alone: the hard maximum.

**Complementarity.** The regression of labels y with a tube of half-width ε and a bound C has the
solution f = Gβ. With multipliers α_i of the upper edge of the tube and α̃_i of
the lower one, errors ξ_i and ξ̃_i beyond them, and f = G(α − α̃):

    0 ≤ α_i  ⊥  ε + ξ_i − (y_i − f_i) ≥ 0        0 ≤ ξ_i  ⊥  C − α_i ≥ 0
    0 ≤ α̃_i  ⊥  ε + ξ̃_i + (y_i − f_i) ≥ 0        0 ≤ ξ̃_i  ⊥  C − α̃_i ≥ 0

where a ⊥ b says a·b = 0. Together: find z = (α, α̃, ξ, ξ̃) ≥ 0 with w = M z + q ≥ 0 and z·w = 0,

        ⎛  G  −G   1   0 ⎞        ⎛ ε − y ⎞
    M = ⎜ −G   G   0   1 ⎟    q = ⎜ ε + y ⎟
        ⎜ −1   0   0   0 ⎟        ⎜   C   ⎟
        ⎝  0  −1   0   0 ⎠        ⎝   C   ⎠

a linear complementarity problem. M + Mᵀ is positive semi-definite: its solutions are a convex set,
with a single f, and for ε > 0 no key has both multipliers.

In terms of attention f is A V, what attention gives to the keys themselves, and the multipliers are
α − α̃ = h V. The conditions then read: a token whose output misses its label by less than ε has
value 0; one with a value 0 < |v_i| < C/h(k_i) misses it by exactly ε, on the side of the sign of
v_i; one that misses it by more has the largest value there is, |v_i| = C/h(k_i). A key with many
others near it has a large h, and so may have a small value only.

Source: arXiv 2406.13781 for the features as primal form; the bound is this project's own. The
maximiser is Gibbs' variational principle.
"""

import math
import warnings
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from jaxtyping import Float
from scipy.special import entr

from theory import HeadPoints, attention_kernel, attention_matrix, regression_of_attention

# How near the edge of the tube, in units of the labels, a key counts as on it: tried in this order.
MARGINS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5)


def normalisers(keys: Float[np.ndarray, "key channel"]) -> Float[np.ndarray, " key"]:
    """Sums of similarities h(k_i) = Σ_j s(k_i, k_j): A_ii = s(k_i, k_i)/h(k_i) = h(k_i) G_ii."""
    of_attention, of_kernel = (
        f(keys, keys).diagonal() for f in (attention_matrix, attention_kernel)
    )
    return of_attention / of_kernel


@dataclass(frozen=True)
class SupportVectorAttention:
    """Attention whose values solve a regression.

    coefficients  β
    tube          ε
    residual      the largest violation of the optimality conditions, in units of the labels
    """

    keys: Float[np.ndarray, "key channel"]
    labels: Float[np.ndarray, "key value_channel"]
    coefficients: Float[np.ndarray, "key value_channel"]
    tube: float
    residual: float

    @property
    def values(self) -> Float[np.ndarray, "key value_channel"]:
        """Values v_j = β_j/h(k_j)."""
        return self.coefficients / normalisers(self.keys)[:, None]

    @property
    def support_vectors(self) -> tuple[int, ...]:
        """The keys with β_j ≠ 0 in any channel."""
        return tuple(int(key) for key in np.flatnonzero(self.coefficients.any(axis=1)))

    def regressor(
        self, queries: Float[np.ndarray, "query channel"]
    ) -> Float[np.ndarray, "query value_channel"]:
        """Regressor f(x) = Σ_j β_j s(x, k_j)/(h(x) h(k_j))."""
        return attention_kernel(queries, self.keys) @ self.coefficients

    def attend(
        self, queries: Float[np.ndarray, "query channel"]
    ) -> Float[np.ndarray, "query value_channel"]:
        """Attention Σ_j A(x, k_j) v_j, which equals the regressor."""
        return attention_matrix(queries, self.keys) @ self.values


def support_vector_attention(
    keys: Float[np.ndarray, "key channel"],
    labels: Float[np.ndarray, "key value_channel"],
    tube: float,
    bound: float,
) -> SupportVectorAttention:
    """The attention that regresses labels at the keys with a tube ε and a bound C on |β|.

    Raises ValueError for keys too large for float64, and RuntimeError where the optimality
    conditions are not met to rounding.
    """
    kernel = attention_kernel(keys, keys)
    channels, residuals = zip(
        *(_solve(kernel, column, tube, bound) for column in labels.T), strict=True
    )
    return SupportVectorAttention(keys, labels, np.stack(channels, axis=1), tube, max(residuals))


def _solve(
    kernel: np.ndarray, labels: np.ndarray, tube: float, bound: float
) -> tuple[Float[np.ndarray, " key"], float]:
    """β and its violation, by scikit-learn's linear regressor on features F with F Fᵀ = G.

    The regressor has w = Fᵀβ to nine digits or so, which shows where every key lies. Of the keys on
    the edge of the tube β then solves linear equations; of the others it is 0 or ±C.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVR

    eigenvalues, vectors = np.linalg.eigh(kernel)
    features = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    regressor = LinearSVR(
        epsilon=tube, C=bound, fit_intercept=False, tol=1e-10, max_iter=100_000, random_state=0
    )
    with warnings.catch_warnings():
        # What is not converged violates the conditions, which are looked at below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        errors = labels - features @ regressor.fit(features, labels).coef_
    beyond = (np.abs(errors) - tube) / max(np.abs(labels).max(), tube)
    smallest = np.inf
    for margin in MARGINS:
        coefficients = np.where(beyond > margin, bound * np.sign(errors), 0.0)
        edge = np.abs(beyond) <= margin
        target = (labels - kernel @ coefficients - tube * np.sign(errors))[edge]
        # Least squares: equal keys make the matrix singular and leave the sum of their β only.
        coefficients[edge] = np.linalg.lstsq(kernel[np.ix_(edge, edge)], target, rcond=None)[0]
        residual = violation(kernel, labels, tube, bound, coefficients)
        if residual <= rounding_of_fit(kernel, labels, tube, coefficients):
            return coefficients, residual
        smallest = min(smallest, residual)
    raise RuntimeError(
        f"residual = {smallest:.3g}: the optimality conditions are not met to rounding; lower the "
        "bound, widen the tube, or move keys apart that are nearly equal"
    )


def violation(
    kernel: Float[np.ndarray, "key key"],
    labels: Float[np.ndarray, " key"],
    tube: float,
    bound: float,
    coefficients: Float[np.ndarray, " key"],
) -> float:
    """Return the largest violation of the optimality conditions by β, in units of y.

    Infinite where some |β_i| exceeds C.
    """
    if np.any(np.abs(coefficients) > bound):
        return float("inf")
    errors = labels - kernel @ coefficients
    outwards = errors * np.sign(coefficients) - tube
    inside, at_bound = coefficients == 0.0, np.abs(coefficients) == bound
    too_far, too_near = np.maximum(np.abs(errors) - tube, 0.0), np.maximum(-outwards, 0.0)
    violations = np.select([inside, at_bound], [too_far, too_near], np.abs(outwards))
    return float(violations.max())


def rounding_of_fit(
    kernel: Float[np.ndarray, "key key"],
    labels: Float[np.ndarray, " key"],
    tube: float,
    coefficients: Float[np.ndarray, " key"],
) -> float:
    """The largest rounding error of y − Gβ − ε, a sum of one term per key."""
    terms = np.abs(kernel) @ np.abs(coefficients) + np.abs(labels) + tube
    return float((len(labels) + 2) * np.finfo(float).eps * terms.max())


def taylor_features(
    points: Float[np.ndarray, "point channel"], order: int
) -> Float[np.ndarray, "point feature"]:
    """Features φ_n(x) with φ_n(q)·φ_n(k) = Σ_{m≤n} (q·k/√D)^m/m!, lowest degrees first."""
    channels = points.shape[1]
    features = []
    for degree in range(order + 1):
        for chosen in combinations_with_replacement(range(channels), degree):
            repeats = math.prod(math.factorial(chosen.count(one)) for one in set(chosen))
            size = math.sqrt(repeats * channels ** (degree / 2))
            features.append(np.prod(points[:, list(chosen)], axis=1) / size)
    return np.stack(features, axis=1)


def truncated_attention(
    queries: Float[np.ndarray, "query channel"],
    keys: Float[np.ndarray, "key channel"],
    values: Float[np.ndarray, "key value_channel"],
    order: int,
) -> Float[np.ndarray, "query value_channel"]:
    """Attention with e_n in the place of exp, φ(q)·W/(φ(q)·g), in time linear in tokens."""
    of_queries, of_keys = taylor_features(queries, order), taylor_features(keys, order)
    return of_queries @ (of_keys.T @ values) / (of_queries @ of_keys.sum(axis=0))[:, None]


def truncation_bound(
    queries: Float[np.ndarray, "query channel"], keys: Float[np.ndarray, "key channel"], order: int
) -> Float[np.ndarray, " query"]:
    """Bound 2ρ/(1 − ρ), per query, on the distance Σ_j |Ã_ij − A_ij| of its weights from softmax.

    Infinite where ρ ≥ 1.
    """
    logits = queries @ keys.T / math.sqrt(keys.shape[1])
    remainder = np.abs(logits) ** (order + 1) / math.factorial(order + 1)
    lost = np.sum(remainder * np.exp(np.maximum(logits, 0.0)), axis=1)
    share = lost / np.exp(logits).sum(axis=1)
    return np.divide(2.0 * share, 1.0 - share, out=np.full(len(share), np.inf), where=share < 1.0)


def similarity_and_entropy(
    weights: Float[np.ndarray, "query key"], logits: Float[np.ndarray, "query key"]
) -> Float[np.ndarray, " query"]:
    """Similarity and entropy Σ_j p_j l_j − Σ_j p_j ln p_j of every row p of weights.

    Its maximum over the simplex is ln Σ_j exp l_j.
    """
    return np.sum(weights * logits + entr(weights), axis=1)


@dataclass(frozen=True)
class ComplementarityProblem:
    """Linear complementarity problem: find z ≥ 0 with w = M z + q ≥ 0 and z·w = 0."""

    matrix: Float[np.ndarray, "unknown unknown"]
    offset: Float[np.ndarray, " unknown"]

    def slack(self, unknowns: Float[np.ndarray, " unknown"]) -> Float[np.ndarray, " unknown"]:
        """The second factor, w = M z + q."""
        return self.matrix @ unknowns + self.offset


def complementarity_problem(
    kernel: Float[np.ndarray, "key key"],
    labels: Float[np.ndarray, " key"],
    tube: float,
    bound: float,
) -> ComplementarityProblem:
    """M and q of the regression with kernel G, labels y, tube ε and bound C."""
    one, nothing = np.eye(len(labels)), np.zeros_like(kernel)
    matrix = np.block(
        [
            [kernel, -kernel, one, nothing],
            [-kernel, kernel, nothing, one],
            [-one, nothing, nothing, nothing],
            [nothing, -one, nothing, nothing],
        ]
    )
    offset = np.concatenate([tube - labels, tube + labels, np.full(2 * len(labels), bound)])
    return ComplementarityProblem(matrix, offset)


def unknowns_of(
    kernel: Float[np.ndarray, "key key"],
    labels: Float[np.ndarray, " key"],
    tube: float,
    coefficients: Float[np.ndarray, " key"],
) -> Float[np.ndarray, " unknown"]:
    """The z = (α, α̃, ξ, ξ̃) of β = α − α̃: positive and negative part, errors beyond the tube."""
    errors = labels - kernel @ coefficients
    parts = (coefficients, -coefficients, errors - tube, -errors - tube)
    return np.maximum(np.concatenate(parts), 0.0)


# --- what is asked of one regression


def identity(
    attention: SupportVectorAttention,
    queries: Float[np.ndarray, "query channel"],
    rng: np.random.Generator,
) -> dict:
    """Attention with the values of the regression beside the regressor, and the converse.

    The converse: any values solve some regression.
    """
    keys, tube = attention.keys, attention.tube
    coefficients, labels = regression_of_attention(keys, rng.standard_normal(keys.shape), tube)
    bound = 2.0 * np.abs(coefficients).max()
    kernel = attention_kernel(keys, keys)
    violated = violation(kernel, labels[:, 0], tube, bound, coefficients[:, 0])
    return {
        "difference": np.abs(attention.attend(queries) - attention.regressor(queries)).max(),
        "support vectors": len(attention.support_vectors),
        "conditions": attention.residual,
        "converse": violated / np.abs(labels).max(),
    }


def complementarity(attention: SupportVectorAttention, bound: float) -> dict:
    """The optimality conditions: of two numbers whose product is 0, neither is negative."""
    keys, labels, tube = attention.keys, attention.labels[:, 0], attention.tube
    kernel = attention_kernel(keys, keys)
    unknowns = unknowns_of(kernel, labels, tube, attention.coefficients[:, 0])
    slack = complementarity_problem(kernel, labels, tube, bound).slack(unknowns)
    return {"slack": slack.min(), "pair": np.minimum(unknowns, slack).max()}


def cut_off(
    keys: Float[np.ndarray, "key channel"], queries: Float[np.ndarray, "query channel"], order: int
) -> float:
    """How far rows are off in the primal form of an order, which compares no pair of tokens."""
    received = truncated_attention(queries, keys, np.eye(len(keys)), order)
    return float(np.abs(received - attention_matrix(queries, keys)).sum(axis=1).max())


def of_variants(
    keys: Float[np.ndarray, "key channel"],
    labels: Float[np.ndarray, "key value_channel"],
    queries: Float[np.ndarray, "query channel"],
    tube: float,
    bound: float,
) -> dict[str, dict]:
    """Attention-SH as the regression over averages of two keys, Attention-BN of standard keys."""
    averages = np.kron(np.eye(len(keys) // 2), [[0.5, 0.5]])
    found = {}
    for name, points in (
        ("Attention-SH", HeadPoints.of(keys, averages)),
        ("Attention-BN", HeadPoints.of(keys, None, 1.0, True, 1e-5)),
    ):
        solved = support_vector_attention(points.keys, points.pooling @ labels, tube, bound)
        there = points.queries(queries)
        outputs = attention_matrix(there, points.keys) @ points.pooling
        difference = np.abs(outputs @ points.spread(solved.values) - solved.regressor(there)).max()
        found[name] = {"difference": difference, "support vectors": len(solved.support_vectors)}
    return found
