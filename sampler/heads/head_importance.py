"""Numbers that may tell which heads matter, and how well they order what removal costs.

Of a trained model: Taylor importance and magnitude. Of the theory: head score, and the loss gained
with a head removed after learning, with its rows of U₁ zeroed, and solved again without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit, logsumexp, softmax

from sampler.analysis.predictors import LEADING, predictor_name
from sampler.heads.path_sum import Head, Outputs, Replacement, TheoryOfHeads, all_heads
from sampler.streams import Stream, stream

Loss = Literal["squared", "likelihood"]
OfExamples = Float[np.ndarray, "head example"]

# Keys of the numbers, and their names in tables and figures.
TAYLOR, SCORE, REMOVED, ZEROED, SOLVED_AGAIN = (
    "taylor", "score", "removed", "zeroed", "solved_again",
)  # fmt: skip
PREDICTIONS = {
    TAYLOR: "Taylor |∂loss/∂gate|",
    "magnitude": "magnitude of the weights",
    SCORE: f"head score, {predictor_name(LEADING)}",
    REMOVED: f"loss of the theory, {predictor_name(LEADING)}",
    ZEROED: f"loss with U₁ zeroed, {predictor_name(LEADING)}",
    SOLVED_AGAIN: f"loss solved again, {predictor_name(LEADING)}",
}


@runtime_checkable
class ModelWithHeads(Protocol):
    """A trained model with its examples; heads (layer, head) count from 0.

    heads       H_1 … H_L
    outputs     their number
    magnitudes  norms of the weights by which heads act, lowest layer first
    """

    heads: tuple[int, ...]
    outputs: int
    magnitudes: Float[np.ndarray, " head"]

    def without(self, removed: Sequence[Head], replacement: Replacement = "zero") -> Outputs:
        """f(x) of every example without some heads."""
        ...

    def slopes(self, along: Outputs) -> Float[np.ndarray, "example head"]:
        """Σ_c a_c(x) ∂f_c(x)/∂g_h of the gate of every head."""
        ...


# --- losses


def losses(loss: Loss, outputs: Outputs, labels: Outputs) -> Float[np.ndarray, " example"]:
    """Σ_c (f_c − y_c)²; or −ln p(class), with p = 1/(1 + e^{−y f}) or the softmax of f."""
    if loss == "squared":
        return ((outputs - labels) ** 2).sum(axis=1)
    if labels.shape[1] == 1:
        return np.logaddexp(0.0, -labels[:, 0] * outputs[:, 0])
    return logsumexp(outputs, axis=1) - (outputs * labels).sum(axis=1)


def loss_slopes(loss: Loss, outputs: Outputs, labels: Outputs) -> Outputs:
    """The derivative of `losses` by every output."""
    if loss == "squared":
        return 2.0 * (outputs - labels)
    if labels.shape[1] == 1:
        return -labels * expit(-labels * outputs)
    return softmax(outputs, axis=1) - labels


# --- numbers with their errors


@dataclass(frozen=True)
class Numbers:
    """Some numbers and their errors, ±1σ; NaN where there is none."""

    values: tuple[float, ...]
    errors: tuple[float, ...]


def floats(values: np.ndarray | Sequence[float]) -> tuple[float, ...]:
    """Some numbers of NumPy as plain ones."""
    return tuple(map(float, values))


def over_examples(values: OfExamples) -> Numbers:
    """Mean over examples with its standard error."""
    errors = values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    return Numbers(floats(values.mean(axis=1)), floats(errors))


def without_error(values: np.ndarray) -> Numbers:
    """Numbers that are known exactly."""
    return Numbers(floats(values), (0.0,) * len(values))


def numbers_of_model(
    model: ModelWithHeads, heads: Sequence[Head], labels: Outputs, loss: Loss
) -> dict[str, Numbers]:
    """Taylor importance, the mean of |∂L/∂g_h| over examples (Michel et al., 2019), and magnitude.

    Taylor importance is left out where the model gives no gradients.
    """
    places = [all_heads(model.heads).index(head) for head in heads]
    slopes = model.slopes(loss_slopes(loss, model.without([]), labels))[:, places]
    numbers = {} if np.isnan(slopes).any() else {TAYLOR: over_examples(np.abs(slopes).T)}
    return {**numbers, "magnitude": without_error(model.magnitudes[places])}


def numbers_of_theory(
    theory: TheoryOfHeads, heads: Sequence[Head], labels: Outputs
) -> dict[str, Numbers]:
    """Head scores, and the squared loss gained with heads removed or zeroed."""
    numbers = {SCORE: without_error(theory.scores(heads))}
    for key, without in ((REMOVED, theory.path_sum.without), (ZEROED, theory.zeroed)):
        whole = losses("squared", without([]), labels)
        gained = [losses("squared", without([head]), labels) - whole for head in heads]
        numbers[key] = over_examples(np.stack(gained))
    return numbers


# --- how well numbers order costs

REPLICATES = 2000
LEVEL = 0.95
# Of fewer heads the interval says too much: of normal pairs with a correlation of 0.9 it has the
# true ρ in 58, 75 and 86 % of cases with 4, 5 and 6 heads, and in 95 % or more from 8 on.
FEWEST_HEADS = 8


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's ρ of so many heads and two 95 % percentile intervals.

    interval_over_heads     other heads could have been trained: pairs (score, drop) drawn again;
                            NaN of fewer than FEWEST_HEADS
    interval_over_examples  other examples could have been tested on: the drops measured again
    """

    value: float
    interval_over_heads: tuple[float, float]
    interval_over_examples: tuple[float, float]
    heads: int


@dataclass(frozen=True)
class JudgedNumbers(Numbers):
    """A number for each head with its error, and its rank correlation with each measure."""

    spearman: Mapping[str, RankCorrelation]


def judged_numbers(numbers: Numbers, lost: Mapping[str, OfExamples]) -> JudgedNumbers:
    """Numbers with their rank correlations, of heads with a number that were removed."""
    values = np.asarray(numbers.values)
    spearman = {}
    for key, of_heads in lost.items():
        finite = np.isfinite(values) & np.isfinite(of_heads[:, 0])
        spearman[key] = rank_correlation(values[finite], of_heads[finite])
    return JudgedNumbers(numbers.values, numbers.errors, spearman)


def spearman(
    scores: Float[np.ndarray, "*batch pair"], other: Float[np.ndarray, "*batch pair"]
) -> Float[np.ndarray | np.floating, "*batch"]:
    """Correlation of the ranks along the last axis, ties at their mean; NaN without variation.

    `scipy.stats.spearmanr` takes one pair at a time; the intervals need thousands at once.
    """
    from scipy.stats import rankdata

    ranks = [rankdata(values, axis=-1) for values in (scores, other)]
    a, b = (rank - rank.mean(axis=-1, keepdims=True) for rank in ranks)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1))


def rank_correlation(
    scores: Float[np.ndarray, " head"],
    lost: OfExamples | Bool[np.ndarray, "head example"],
    seed: int = 0,
) -> RankCorrelation:
    """ρ between scores and drops, a drop being the mean over examples of what was lost there."""
    lost = np.asarray(lost, dtype=np.float64)
    generator = stream(seed, Stream.CORRELATIONS_AGAIN)
    heads, examples = lost.shape
    unknown = np.nan, np.nan
    if heads < 2:
        return RankCorrelation(np.nan, unknown, unknown, heads)

    def interval(values: np.ndarray) -> tuple[float, float]:
        # A sample of equal scores or drops has no correlation.
        values, tail = values[np.isfinite(values)], (1.0 - LEVEL) / 2.0
        return floats(np.quantile(values, [tail, 1.0 - tail])) if values.size else unknown

    drops = lost.mean(axis=1)
    chosen = generator.integers(heads, size=(REPLICATES, heads))
    over_heads = spearman(scores[chosen], drops[chosen])
    counts = generator.multinomial(examples, np.full(examples, 1 / examples), REPLICATES)
    measured_again = np.stack([lost @ (count / examples) for count in counts])
    again = spearman(np.broadcast_to(scores, measured_again.shape), measured_again)
    of_heads = interval(over_heads) if heads >= FEWEST_HEADS else unknown
    return RankCorrelation(float(spearman(scores, drops)), of_heads, interval(again), heads)
