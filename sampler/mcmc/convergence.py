"""R-hat, effective sample sizes and Monte Carlo errors of many quantities at once.

Draws are arrays [chain, draw, …]; every function returns one number for each of the elements `…`.
The definitions are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner, "Rank-normalization,
folding, and localization: an improved R-hat" (2021), and so are those of ArviZ, which judges one
element after the other: a thousand of them take it several seconds.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps

import numpy as np
from jaxtyping import Float, Shaped
from scipy import fft
from scipy.special import ndtri

FEWEST_DRAWS = 4  # of a chain, which is cut into halves
TAILS = (0.05, 0.95)
# Numbers worked on together, to bound memory: draws of all elements of a block.
TOGETHER = 2**18
SIDE_BY_SIDE = 2

Draws = Shaped[np.ndarray, "chain draw *element"]
Numbers = Float[np.ndarray, "*element"]


def of_every_element(function: Callable[[np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    """Apply a function of [chain, draw, element] to draws with any further axes, in blocks.

    Sorting and Fourier transforms of two blocks run side by side. Fewer than four draws of a
    chain and draws that are not finite have NaN.
    """

    @wraps(function)
    def applied(draws: Draws) -> np.ndarray:
        flat = draws.reshape(*draws.shape[:2], -1)
        size = max(1, TOGETHER // (flat.shape[0] * flat.shape[1]))

        def of_block(first: int) -> np.ndarray:
            block = flat[..., first : first + size].astype(np.float64)
            if draws.shape[1] < FEWEST_DRAWS:
                block = np.full((len(block), FEWEST_DRAWS, block.shape[2]), np.nan)
            usable = np.isfinite(block).all(axis=(0, 1))
            return np.where(usable, function(np.where(usable, block, 0.0)), np.nan)

        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            values = list(pool.map(of_block, range(0, max(1, flat.shape[2]), size)))
        joined = np.concatenate(values, axis=-1)
        return joined.reshape((*joined.shape[:-1], *draws.shape[2:]))

    return applied


@of_every_element
def rank_diagnostics(draws: Draws) -> Float[np.ndarray, " kind *element"]:
    """R-hat, bulk ESS and tail ESS, for which ranks are found once.

    R-hat is that of split chains after rank normalisation, the larger of bulk and tail: 1 where all
    chains have one distribution, NaN for a single chain.
    """
    halves = _halves(draws)
    scores = _normal_scores(halves)
    r_hat = np.full(draws.shape[2], np.nan)
    if draws.shape[0] > 1:
        folded = np.abs(halves - np.median(halves, axis=(0, 1)))
        r_hat = np.maximum(*map(_scale_reduction, (scores, _normal_scores(folded))))
    return np.stack([r_hat, _effective_draws(scores), tail_ess.__wrapped__(draws)])


@of_every_element
def repetition_diagnostics(draws: Draws) -> Float[np.ndarray, " kind *element"]:
    """R-hat, and shares of the variance that lies between repetitions: bulk, then both tails.

    For chains that are repetitions, whose draws share ancestors: the mean of one counts as one
    number. One repetition is worth the inverse of this share in independent draws. The bulk is that
    of the normal scores of ranks, the tails those of the 5 % and the 95 % quantile.
    """
    scores = _normal_scores(draws)
    folded = np.abs(draws - np.median(draws, axis=(0, 1)))
    r_hat = np.maximum(*map(_scale_reduction, (scores, _normal_scores(folded))))
    quantiles = np.quantile(draws, TAILS, axis=(0, 1))
    below = [(draws <= quantile).astype(np.float64) for quantile in quantiles]
    return np.stack([r_hat, *map(_share_between, (scores, *below))])


def _share_between(draws: np.ndarray) -> np.ndarray:
    """Variance of the means of chains, relative to that of all draws; 0 where nothing varies."""
    total = draws.var(axis=(0, 1), ddof=1)
    between = draws.mean(axis=1).var(axis=0, ddof=1)
    return np.divide(between, total, out=np.zeros_like(total), where=total > 0)


@of_every_element
def bulk_ess(draws: Draws) -> Numbers:
    """Effective draws of the normal scores of ranks, in all chains together."""
    return _effective_draws(_normal_scores(_halves(draws)))


@of_every_element
def tail_ess(draws: Draws) -> Numbers:
    """Effective draws of the 5 % or the 95 % quantile, whichever has fewer."""
    quantiles = np.quantile(draws, TAILS, axis=(0, 1))
    below = [_halves((draws <= quantile).astype(np.float64)) for quantile in quantiles]
    return np.minimum(*map(_effective_draws, below))


@of_every_element
def mean_ess(draws: Draws) -> Numbers:
    """Effective draws of the mean, in all chains together."""
    return _effective_draws(_halves(draws))


@of_every_element
def mean_mcse(draws: Draws) -> Numbers:
    """Monte Carlo standard error of the mean: σ / √ESS."""
    return draws.std(axis=(0, 1), ddof=1) / np.sqrt(_effective_draws(_halves(draws)))


def _halves(draws: np.ndarray) -> np.ndarray:
    """First and last half of every chain, as chains; of an odd number the middle is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _normal_scores(draws: np.ndarray) -> np.ndarray:
    """Normal quantiles of (rank − 3/8)/(count + 1/4), ranks among the draws of all chains."""
    import pandas  # only here, as `status` needs none of it; scipy.stats takes half a second

    flat = draws.reshape(draws.shape[0] * draws.shape[1], draws.shape[2])
    ranks = pandas.DataFrame(flat).rank().to_numpy()
    return ndtri((ranks - 3 / 8) / (len(flat) + 1 / 4)).reshape(draws.shape)


def _scale_reduction(draws: np.ndarray) -> np.ndarray:
    """√((between/within + draws − 1)/draws), of the variances between and within chains."""
    count = draws.shape[1]
    between = count * draws.mean(axis=1).var(axis=0, ddof=1)
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((between / within + count - 1) / count)


def autocovariance(draws: np.ndarray) -> np.ndarray:
    """Autocovariance [chain, lag, …] about the mean of each chain, sums divided by draws."""
    count = draws.shape[1]
    centred = draws - draws.mean(axis=1, keepdims=True)
    length = fft.next_fast_len(2 * count, real=True)
    power = np.abs(fft.rfft(centred, length, axis=1)) ** 2
    return fft.irfft(power, length, axis=1)[:, :count] / count


def _effective_draws(chains: np.ndarray) -> np.ndarray:
    """Draws over −1 + 2 Σ autocorrelation by lag, cut off by Geyer's monotone sequence.

    Draws that are all equal count in full.
    """
    chain_count, count, elements = chains.shape
    covariance = autocovariance(chains).mean(axis=0)
    within = covariance[0] * count / (count - 1)
    total = covariance[0] + (chains.mean(axis=1).var(axis=0, ddof=1) if chain_count > 1 else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1.0 - (within - covariance) / total
    correlation[0] = 1.0
    # Sums of neighbours [pair, element] are positive and fall where there is no noise. The sequence
    # ends with the first pair that is not positive, or with the last that is looked at.
    looked_at = max(1, (count - 1) // 2)
    pairs = correlation[: 2 * looked_at].reshape(looked_at, 2, elements).sum(axis=1)
    ended = pairs <= 0.0
    ended[-1] = True
    end = ended.argmax(axis=0)
    falling = np.minimum.accumulate(pairs, axis=0)
    kept = np.where(np.arange(looked_at)[:, None] < end, falling, 0.0).sum(axis=0)
    every = np.arange(elements)
    last = correlation[2 * end, every]
    last = np.where(pairs[end, every] >= 0.0, last, np.maximum(last, 0.0))
    size = chain_count * count
    # Where draws alternate, more effective draws than draws are believed in only so far.
    time = np.maximum(-1.0 + 2.0 * kept + last, 1.0 / np.log10(size))
    largest = np.abs(chains).max(axis=(0, 1))
    constant = np.ptp(chains, axis=(0, 1)) <= np.finfo(np.float64).resolution * largest
    return np.where(constant, size, size / time)
