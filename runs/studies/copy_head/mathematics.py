"""One head that may learn to copy: the free energy of its attention, with many examples.

T tokens, each one of V symbols, independent and uniform; inputs x_s are one-hot, centred and of
covariance 1 − J/V; the label is x of one of the tokens, V outputs. One layer, one head, whose
logits of positions have the prior N(0, s²), all prior variances of the values 1. A head that gives
the copied token the weight m, and all tokens weights whose squares sum to q, sees of P examples

    κ = P q/V,   c = P m/√V
    ln p(y | m, q) = const − ½ min { (V−1)² ln(1 + uκ/𝒯) + (V−1) ln(1 + u₀κ/𝒯)
                                     − (V−1) u c²/(𝒯 (uκ + 𝒯)) + (V−1) S(u) + S(u₀) }

at leading order. u is the eigenvalue of U_1 on differences of outputs, u₀ that of equal outputs,
and S(u) = N (2√u − ln u − 2) for two layers of width N; at infinite width u = u₀ = 1. The constant
is the log likelihood without attention. Let a be what the copied logit stands above the others,

    F(a) = a² (T−1)/(2 s² T) − ln p(y | m(a), q(a))

with the other logits at their prior: E e^{ka_s} = e^{k²s²/2} in the sums over them. Where F has two
minima, attention that copies nothing and a copy head exist together: a first-order transition.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import softmax

from sampler.mcmc.tempered import log_mean, repetition_weights

FORMS = ("softmax", "linear")
# Points of the grid on which minima are looked for before they are polished.
GRID = 1500
# A grid of numbers of examples: the first, the last, and how many.
FEWEST, MOST, SIZES = 0.5, 5000.0, 120
NEWTON_STEPS = 4
# Errors between evidences of both starts, above which that of the prior misses something.
MOST_APART = 4.0

Numbers = Float[np.ndarray, " *point"] | float


@dataclass(frozen=True)
class Seen:
    """Attention as its sums over tokens show it, with derivatives along a.

    copied   m, the weight of the copied token
    squares  q, the sum of the squares of all weights
    """

    copied: Numbers
    squares: Numbers
    copied_slope: Numbers
    squares_slope: Numbers


@dataclass(frozen=True)
class HeadMinimum:
    """A minimum of the free energy.

    logit        a
    copied       m, the weight of the copied token
    free_energy  F
    """

    logit: float
    copied: float
    free_energy: float


@dataclass(frozen=True)
class Coexistence:
    """Numbers of examples between which two minima exist, and at which they are equally deep.

    first, last  where the copy head first exists, and where its absence last does
    equal        where both have the same free energy: the transition
    """

    first: float
    equal: float
    last: float


@dataclass(frozen=True)
class CopyHead:
    """The posterior of one head of position logits when the label is one of the tokens.

    tokens       T
    symbols      V
    temperature  𝒯
    logit_scale  s, the prior standard deviation of every logit
    form         weights: softmax(a) or (1 + a_s)/T ("linear")
    width        N of both layers of values; infinite by default
    """

    tokens: int
    symbols: int
    temperature: float
    logit_scale: float
    form: str = "softmax"
    width: float = math.inf

    @cached_property
    def stiffness(self) -> float:
        """Inverse of the prior variance of a, which counts above the mean of all for softmax."""
        share = (self.tokens - 1) / self.tokens if self.form == "softmax" else 1.0
        return share / self.logit_scale**2

    def attention(self, logit: Numbers) -> Seen:
        """Weights as sums over tokens, the other logits being spread as they are a priori."""
        spread = self.logit_scale**2
        return self._attention(logit, math.exp(spread / 2.0), math.exp(2.0 * spread), spread)

    def _attention(self, logit: Numbers, mean: float, square: float, spread: float) -> Seen:
        """Weights for given means of e^{a_s}, e^{2a_s} and a_s² over the other tokens."""
        others, tokens = self.tokens - 1, self.tokens
        logit = np.asarray(logit, float)
        if self.form == "softmax":
            # Divided by e^a, so that nothing overflows where it is large.
            small = np.exp(-np.abs(logit))
            own, other = np.where(logit > 0, 1.0, small), np.where(logit > 0, small, 1.0)
            total = own + others * mean * other
            copied = own / total
            squares = (own**2 + others * square * other**2) / total**2
            slope = copied * (1.0 - copied)
            return Seen(copied, squares, slope, 2.0 * copied * (copied - squares))
        copied = (1.0 + logit) / tokens
        squares = copied**2 + others * (1.0 + spread) / tokens**2
        return Seen(copied, squares, np.full_like(logit, 1.0 / tokens), 2.0 * copied / tokens)

    def order_parameters(
        self, copied: Numbers, squares: Numbers, examples: float
    ) -> tuple[Numbers, Numbers]:
        """Eigenvalues u and u₀ of U_1 that minimise the action at given attention."""
        seen, learned = self._signal(copied, squares, examples)
        if math.isinf(self.width):
            return np.ones_like(seen), np.ones_like(seen)
        other = self.symbols - 1.0
        return (
            lowest_eigenvalue(seen, learned, other, self.width),
            lowest_eigenvalue(seen, np.zeros_like(seen), other, self.width),
        )

    def _signal(self, copied, squares, examples: float) -> tuple[Numbers, Numbers]:
        """κ/𝒯 and (c/𝒯)²."""
        seen = np.asarray(examples * squares / (self.symbols * self.temperature), float)
        learned = np.asarray(examples * copied / self.temperature, float) ** 2 / self.symbols
        return seen, learned

    def log_likelihood(self, copied: Numbers, squares: Numbers, examples: float) -> Numbers:
        """Log evidence ln p(y | m, q) less that of a head without any attention."""
        return self._log_likelihood(copied, squares, examples)[0]

    def _log_likelihood(self, copied, squares, examples: float) -> tuple[Numbers, Numbers, Numbers]:
        """Value and derivatives in m and q, which are partial ones: u and u₀ are at the minimum."""
        differing, equal = self.order_parameters(copied, squares, examples)
        seen, learned = self._signal(copied, squares, examples)
        other = self.symbols - 1.0
        fitted = differing / (1.0 + differing * seen)
        value = other**2 * np.log1p(differing * seen) + other * np.log1p(equal * seen)
        value = value - other * fitted * learned
        if not math.isinf(self.width):
            value = (
                value + other * width_cost(differing, self.width) + width_cost(equal, self.width)
            )
        by_seen = other**2 * fitted + other * equal / (1.0 + equal * seen)
        by_seen = by_seen + other * fitted**2 * learned
        by_squares = by_seen * examples / (self.symbols * self.temperature)
        by_copied = -other * fitted * 2.0 * copied * (examples / self.temperature) ** 2
        return -0.5 * value, -0.5 * by_copied / self.symbols, -0.5 * by_squares

    def free_energy(self, logit: Numbers, examples: float) -> Numbers:
        """F(a), the other logits being spread as they are a priori."""
        seen = self.attention(logit)
        prior = 0.5 * self.stiffness * np.asarray(logit, float) ** 2
        return prior - self.log_likelihood(seen.copied, seen.squares, examples)

    def slope(self, logit: Numbers, examples: float) -> Numbers:
        """Derivative F'(a)."""
        seen = self.attention(logit)
        _, by_copied, by_squares = self._log_likelihood(seen.copied, seen.squares, examples)
        moved = by_copied * seen.copied_slope + by_squares * seen.squares_slope
        return self.stiffness * np.asarray(logit, float) - moved

    def logits(self, examples: float) -> Float[np.ndarray, " point"]:
        """Points a within which all minima lie, with those of the other sign.

        The log likelihood varies by less than P (V−1)/(2𝒯); a minimum that the prior makes more
        expensive than twice that is not the posterior's.
        """
        cost = examples * (self.symbols - 1.0) / self.temperature
        largest = math.sqrt(2.0 * cost / self.stiffness) + 6.0 * self.logit_scale
        return np.linspace(-largest / 8.0, largest, GRID)

    def minima(self, examples: float) -> tuple[HeadMinimum, ...]:
        """All minima of F, from the smallest logit to the largest."""
        return tuple(self._minimum(at, examples) for at in self._minimal_logits(examples))

    def _minimal_logits(self, examples: float) -> list[float]:
        grid = self.logits(examples)
        slopes = self.slope(grid, examples)
        found = []
        for place in np.flatnonzero((slopes[:-1] < 0) & (slopes[1:] >= 0)):
            ends = float(grid[place]), float(grid[place + 1])
            at = brentq(lambda a: float(self.slope(np.array(a), examples)), *ends, xtol=1e-13)
            found.append(float(at))
        return found

    def _minimum(self, logit: float, examples: float) -> HeadMinimum:
        at = np.array(logit)
        copied = float(self.attention(at).copied)
        return HeadMinimum(logit, copied, float(self.free_energy(at, examples)))

    def barrier(self, examples: float) -> float | None:
        """The logit at the maximum of F between both minima; None where there is one alone."""
        minima = self._minimal_logits(examples)
        if len(minima) < 2:
            return None
        grid = np.linspace(minima[0], minima[-1], 2001)
        return float(grid[np.argmax(self.free_energy(grid, examples))])

    def coexistence(self) -> Coexistence | None:
        """Numbers of examples between which two minima exist; None where they never do.

        Looked for among 0.5 to 5,000 examples, of which there may be a fraction.
        """
        sizes = np.geomspace(FEWEST, MOST, SIZES)
        counts = np.array([len(self._minimal_logits(size)) for size in sizes])
        both = np.flatnonzero(counts > 1)
        if not both.size:
            return None
        before, after = max(both[0] - 1, 0), min(both[-1] + 1, SIZES - 1)
        first = self._end_of_two(sizes[both[0]], sizes[before])
        last = self._end_of_two(sizes[both[-1]], sizes[after])

        def difference(examples: float) -> float:
            small, *_, large = self.minima(examples)
            return large.free_energy - small.free_energy

        return Coexistence(first, float(brentq(difference, first, last, rtol=1e-12)), last)

    def _end_of_two(self, two: float, one: float) -> float:
        """Number of examples at which the second of two minima appears, on the side of two."""
        while abs(one - two) > 1e-7 * two:
            middle = 0.5 * (one + two)
            if len(self._minimal_logits(middle)) > 1:
                two = middle
            else:
                one = middle
        return float(two)

    def fluctuating_free_energy(self, logit: Numbers, examples: float) -> Numbers:
        """F(a) of softmax with the volume that the likelihood leaves the other logits.

        Differences of the T−1 other logits have the precision 1/s² + λ(a) about equal ones, λ the
        second derivative of −ln p, so that exp(−F) is the posterior density of a at second order:
            a² (T−1)/(2 s² T) − ln p(y | m, q) + ½ (T−2) ln(1 + s²λ)
        with m and q of equal logits. NaN where equal logits are no maximum.
        """
        seen = self._attention(logit, 1.0, 1.0, 0.0)
        value, by_copied, by_squares = self._log_likelihood(seen.copied, seen.squares, examples)
        # One of the equal weights is e^0/Z.
        each = (1.0 - seen.copied) / (self.tokens - 1)
        scaled = seen.copied * by_copied + 2.0 * seen.squares * by_squares
        bending = each * scaled - 4.0 * each**2 * by_squares
        with np.errstate(invalid="ignore"):
            volume = 0.5 * (self.tokens - 2) * np.log1p(self.logit_scale**2 * bending)
        return 0.5 * self.stiffness * np.asarray(logit, float) ** 2 - value + volume

    def copying_share(self, examples: float) -> float:
        """Posterior probability of the copy head: of the logits a beyond the barrier.

        The integral of exp(−F) of `fluctuating_free_energy`, so that curvature along a counts as
        much as volume across. NaN where there is no barrier between two minima.
        """
        grid = self.logits(examples)
        energy = self.fluctuating_free_energy(grid, examples)
        energy = np.where(np.isnan(energy), np.inf, energy)
        inner = energy[1:-1]
        minima = 1 + np.flatnonzero((inner < energy[:-2]) & (inner <= energy[2:]))
        if len(minima) < 2:
            return float("nan")
        between = slice(minima[0], minima[-1])
        barrier = minima[0] + int(np.argmax(energy[between]))
        weights = np.exp(np.min(energy) - energy)
        return float(np.sum(weights[barrier:]) / np.sum(weights))


def width_cost(eigenvalue: Numbers, width: float) -> Numbers:
    """S(u) = N (2√u − ln u − 2), what two layers of width N cost that leave u = 1."""
    return width * (2.0 * np.sqrt(eigenvalue) - np.log(eigenvalue) - 2.0)


def lowest_eigenvalue(seen: Numbers, learned: Numbers, count: float, width: float) -> Numbers:
    """The u > 0 that minimises n ln(1 + xu) − b u/(1 + xu) + S(u).

    seen, learned  x = κ/𝒯 and b = (c/𝒯)²
    count          n

    With t = 1/√u it is stationary at the zeros of a polynomial of degree 5, of which the one of the
    lowest value is polished by Newton steps in ln u.
    """
    shape = np.broadcast_shapes(np.shape(seen), np.shape(learned))
    x, b = (np.broadcast_to(one, shape).reshape(-1) for one in (seen, learned))
    companion = np.zeros((x.size, 5, 5))
    companion[:, np.arange(1, 5), np.arange(4)] = 1.0
    companion[:, 0, 0] = 1.0
    companion[:, 0, 1] = (count * x - b) / width - 2.0 * x
    companion[:, 0, 2] = 2.0 * x
    companion[:, 0, 3] = (count / width - 1.0) * x**2
    companion[:, 0, 4] = x**2
    roots = np.linalg.eigvals(companion)
    real = (np.abs(roots.imag) <= 1e-6 * np.abs(roots)) & (roots.real > 0)
    log_u = -2.0 * np.log(np.where(real, roots.real, 1.0))
    x, b = x[:, None], b[:, None]
    u = np.exp(log_u)
    value = count * np.log1p(x * u) - b * u / (1.0 + x * u) + width_cost(u, width)
    best = np.argmin(np.where(real, value, np.inf), axis=1)[:, None]
    log_u = np.take_along_axis(log_u, best, axis=1)
    for _ in range(NEWTON_STEPS):
        u = np.exp(log_u)
        share = x * u / (1.0 + x * u)
        gain = b * u / (1.0 + x * u) ** 2
        slope = count * share - gain + width * (np.sqrt(u) - 1.0)
        bend = count * share * (1.0 - share) - gain * (1.0 - 2.0 * share)
        log_u = log_u - slope / (bend + 0.5 * width * np.sqrt(u))
    return np.exp(log_u).reshape(shape)


def sampled_weight(head: CopyHead, draws, examples: int) -> dict:
    """What draws of the posterior say: the weight on the copied token, and the evidence.

    draws  of tempered particles that began at the modes, and from the prior alone

    share is the posterior weight of logits beyond the barrier, None where there is none; missed
    says whether the evidence of particles from the prior is too small.
    """
    statistics = {key: np.asarray(one) for key, one in draws["sample_stats"].items()}
    weights = repetition_weights(statistics)
    logits = head.logit_scale * np.asarray(draws["posterior"]["logits_1"])[:, :, 0, :]
    if head.form == "softmax":
        copied = softmax(logits, axis=-1)[..., -2]
    else:
        copied = (1.0 + logits[..., -2]) / head.tokens
    barrier, share = head.barrier(examples), None
    if barrier is not None:
        others = np.delete(logits, head.tokens - 2, axis=-1).mean(axis=-1)
        share = float(weights @ (logits[..., -2] - others > barrier).mean(axis=1))
    (evidence, error), (of_prior, of_prior_error) = (
        log_mean(statistics[key][:, 0]) for key in ("log_evidence", "log_evidence_prior")
    )
    apart = of_prior - evidence
    return {
        "copied": float(weights @ copied.mean(axis=1)),
        "share": share,
        "prior minus modes": float(apart),
        "missed": bool(-apart > MOST_APART * np.hypot(error, of_prior_error)),
    }
