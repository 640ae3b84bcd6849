"""The theory of fixed attention at draws of attention that is sampled.

Given logit weights W the values are those of a network whose attention is fixed, whose leading
order is averaged over draws W of the exact posterior.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from sampler.attention.logits import queries_and_keys
from sampler.attention.similarity import attention_distances, matched
from sampler.mcmc.tempered import log_mean, repetition_weights
from theory import (
    Architecture,
    LearningProblem,
    compress,
    solve_saddle_point,
)

EXAMPLES = 100  # test examples whose attention is compared


def leading_order(
    attended: Float[np.ndarray, "example path channel"],
    labels: Float[np.ndarray, "example output"],
    architecture: Architecture,
    temperature: float,
) -> Float[np.ndarray, "row row"]:
    """U_1 at attended inputs that were made with W, in float64; NaN where nothing converged."""
    problem = LearningProblem(architecture, jnp.asarray(attended), jnp.asarray(labels), temperature)
    saddle = solve_saddle_point(compress(problem))
    overlap = np.asarray(saddle.order_parameters.matrices[0])
    return overlap if saddle.converged else np.full_like(overlap, np.nan)


@dataclass(frozen=True)
class SampledHeads:
    """A posterior whose attention is sampled, of a quarter of its particles or fewer.

    weights    of repetitions, which sum to 1
    logits     logit weights [repetition, draw, head, channel, channel]
    attention  of the first layer to test examples [repetition, draw, example, head, key, query]
    predictor  mean of f(x) of the test examples
    evidence   ln p(y) of particles from the modes, and from the prior alone
    trace      of U_1 [repetition, draw]; None at infinite width
    """

    data: object
    weights: Float[np.ndarray, " repetition"]
    logits: np.ndarray
    attention: np.ndarray
    predictor: np.ndarray
    evidence: float
    evidence_prior: float
    trace: np.ndarray | None

    @classmethod
    def of(cls, draws, data) -> "SampledHeads":
        """Read from draws of tempered particles; those of a repetition share ancestors."""
        statistics = {key: np.asarray(one) for key, one in draws["sample_stats"].items()}
        weights = repetition_weights(statistics)
        logits = np.asarray(draws["posterior"]["logits_1"])
        kept = logits[:, :: max(1, logits.shape[1] // 16)]
        flat = attention_of(data, kept.reshape(-1, *kept.shape[2:]))
        trace = None
        if "order_parameter" in draws["posterior"]:
            overlaps = np.asarray(draws["posterior"]["order_parameter"])
            trace = np.trace(overlaps, axis1=-2, axis2=-1)
        predictor = np.asarray(draws["predictions"]["predictor"]).mean(axis=1)
        evidences = (
            log_mean(statistics[key][:, 0])[0] for key in ("log_evidence", "log_evidence_prior")
        )
        attention = flat.reshape(*kept.shape[:2], *flat.shape[1:])
        return cls(data, weights, kept, attention, weights @ predictor, *evidences, trace)

    def mean(self, values: np.ndarray) -> float:
        """Of a number of each repetition, or of each of its draws."""
        return float(self.weights @ np.reshape(values, (len(self.weights), -1)).mean(axis=1))

    def prior_attention(self, seed: int) -> np.ndarray:
        """Attention of 64 draws of the prior."""
        shape = 64, *self.logits.shape[2:]
        return attention_of(self.data, np.random.default_rng(seed).standard_normal(shape))


def attention_to(data, logits: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Attention [example, head, key, query] of the first layer with these logit weights."""
    learned = data.learned
    queries, keys = queries_and_keys(learned.form, learned.scale, logits, inputs, slice(None))
    return softmax(np.einsum("ehsi,ehti->ehst", keys, queries), axis=-2)


def attention_of(data, logits: np.ndarray) -> np.ndarray:
    """Attention [draw, example, head, key, query] to the first test examples."""
    return np.array([attention_to(data, one, data.test.inputs[:EXAMPLES]) for one in logits])


def overlap_with(attention: np.ndarray, references: np.ndarray) -> np.ndarray:
    """Mean overlap [repetition] of heads with those of a reference, at the query that is read."""
    read = references[:EXAMPLES, ..., -1:]
    return np.array(
        [np.mean([matched_overlap(one[..., -1:], read) for one in of]) for of in attention]
    )


def overlap_of_two_draws(found: SampledHeads) -> float:
    """Mean overlap of draws that share no ancestors: of neighbouring repetitions."""
    others = np.roll(found.attention, 1, axis=0)
    pairs = zip(found.attention[..., -1:], others[..., -1:], strict=True)
    overlaps = [np.mean(list(map(matched_overlap, *pair))) for pair in pairs]
    joint = found.weights * np.roll(found.weights, 1)
    return float(joint @ overlaps / joint.sum())


def attention_overlaps(
    matrices: Float[np.ndarray, "example head key query"],
    references: Float[np.ndarray, "example reference key query"],
) -> Float[np.ndarray, "head reference"]:
    """The share of Ω' in Ω, q = Σ Ω_st Ω'_st / Σ Ω'_st², with sums over examples as well.

    It is linear in Ω, 1 for Ω = Ω', and the weight Ω_ct of a token c where Ω' attends to it alone.
    """
    products = np.einsum("ehkq,erkq->hr", matrices, references)
    return products / np.einsum("erkq,erkq->r", references, references)


def matched_overlap(matrices: np.ndarray, reference: np.ndarray) -> float:
    """Mean overlap of both heads with those of a reference, in the order of least distance."""
    order = matched(attention_distances(matrices, reference)[None], ((0, 1),))[0]
    overlaps = attention_overlaps(matrices, reference)
    return float(np.take_along_axis(overlaps, order[None], axis=0).mean())


def distance_from(attention: np.ndarray, references: np.ndarray) -> np.ndarray:
    """Mean distance [repetition] of the nearer head from the first of a reference."""
    first = references[:EXAMPLES, :1]
    return np.array(
        [np.mean([attention_distances(one, first).min() for one in of]) for of in attention]
    )


def trace_at_leading_order(found: SampledHeads, width: int, temperature: float) -> np.ndarray:
    """Traces of U_1 [repetition, draw] of the theory on every second draw of the attention.

    The layer above attends uniformly.
    """
    data, few = found.data, found.logits[:, ::2]
    inputs, labels = data.train.inputs, data.train.labels
    arch = Architecture((2, 1), (width,) * 3, (1.0,) * 4, inputs.shape[-1])
    traces = []
    for logits in few.reshape(-1, *few.shape[2:]):
        top = attention_to(data, logits, inputs).mean(axis=-1)
        attended = np.einsum("ehs,esi->ehi", top, inputs)
        traces.append(np.trace(leading_order(attended, labels, arch, temperature)))
    return np.reshape(traces, few.shape[:2])
