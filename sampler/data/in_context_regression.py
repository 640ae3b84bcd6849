"""In-context linear regression: the label is the value of the line of a sequence at its query.

Every example has a line of its own, w ~ N(0, 1/d). Its tokens are pairs (x_i, y_i) with
y_i = w·x_i + noise, x_i ~ N(0, 1) in d dimensions, and last a question (x_q, 0). The label is
w·x_q.

A head "gradient_step" has the logits β x_s·x_t. With Ω_st = l_st/√T (the default `form`) the last
token then reads in the channel of y

    (β/√T) Σ_i y_i x_i·x_q,

the answer of the line that one step of gradient descent with the rate β/√T finds from 0, on half
the sum of squares of the pairs.
"""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float

from sampler.attention.variants import FirstOrder
from sampler.data.drawn_task import DrawnTask, LogitWeights
from sampler.data.examples import StreamedExamples
from sampler.settings.task_sections import Attention
from sampler.settings.types import Count, NotNegative
from sampler.streams import Stream, stream


class InContextRegression(DrawnTask):
    """Pairs (x, y) of a line that is another one in every example, and a question x; one output.

    Labels are real numbers of variance 1.
    """

    head_kinds: ClassVar = ("gradient_step", "uniform", "random", "learned")
    attention_defaults: ClassVar = {
        "heads": (("gradient_step",),),
        "form": FirstOrder(offset=False),
        # The rate β/√T is then about 1/n, the inverse of the number of pairs.
        "inverse_temperature": 0.23,
    }

    kind: Literal["in_context_regression"] = "in_context_regression"
    pairs: Count = 20
    """Pairs (x, y) before the question."""
    features: Count = 5
    """Dimensions of x; the tokens have one channel more, for y."""
    noise: NotNegative = 0.0
    """Standard deviation of the noise of y in the pairs; labels have none."""

    def draw(self, examples: int, of: Stream) -> StreamedExamples:
        tokens, labels = draw_lines(self, examples, stream(self.seed, of))
        return StreamedExamples.of(tokens.__getitem__, labels, tokens)

    def logit_weights(self, attention: Attention, tokens: int, channels: int) -> LogitWeights:
        return {"gradient_step": lambda: np.diag([*np.ones(self.features), 0.0])}


def draw_lines(
    task: InContextRegression, examples: int, generator: np.random.Generator
) -> tuple[Float[np.ndarray, "example token channel"], Float[np.ndarray, "example 1"]]:
    """Draw the tokens of sequences and the answers to their questions."""
    lines = generator.standard_normal((examples, task.features)) / np.sqrt(task.features)
    points = generator.standard_normal((examples, task.pairs + 1, task.features))
    noise = generator.standard_normal((examples, task.pairs))
    values = np.einsum("etc,ec->et", points, lines)
    answers = values[:, -1:].copy()
    values[:, :-1] += task.noise * noise
    values[:, -1] = 0.0
    return np.concatenate([points, values[..., None]], axis=-1), answers
