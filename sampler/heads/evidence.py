"""Evidence of heads: how much ln p(y) of the training labels falls if a head is not there.

ln p(y | all heads) − ln p(y | all but h), at infinite width, at leading and at next order. A
network without h is one that never had it: a sum over H_l − 1 heads is divided by √(H_l − 1), Π is
the number of paths that are left, and the kernel Σ_π C_ππ/Π stays of the same size. No test set is
needed, and no error comes from examples.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from sampler.analysis.estimate import Estimate
from sampler.analysis.labels import LEADING, NEXT, NEXT_ORDER
from sampler.heads.gates import Head
from theory import (
    InfiniteWidth,
    LearningProblem,
    Predictor,
    SaddlePoint,
    log_evidence_at_leading_order,
    predict,
    solve_next_order,
    solve_saddle_point,
    sub_network,
)

EVIDENCE, EVIDENCE_NEXT = "evidence", "evidence_next_order"
EVIDENCE_INFINITE = "evidence_infinite"
# Keys of the predictions, and their names in tables and figures.
EVIDENCES = {
    EVIDENCE: f"ln evidence of the head, {LEADING}",
    EVIDENCE_NEXT: f"ln evidence of the head, {NEXT}",
    EVIDENCE_INFINITE: "ln evidence of the head, infinite width",
}


@dataclass(frozen=True)
class SolvedWithout:
    """The theory of a network that never had some heads.

    attended  of the examples that are predicted
    """

    learning: LearningProblem
    attended: Float[Array, "example path channel"]
    saddle: SaddlePoint

    @property
    def mean(self) -> Float[np.ndarray, "example output"]:
        """m(x)."""
        predictor = Predictor.for_examples(self.learning, self.attended)
        return np.asarray(predict(predictor, self.saddle.order_parameters.factors[0])[0])

    def log_evidence(self, next_order: bool) -> dict[str, float]:
        """ln p(y) at leading order and, if wanted, at next order; NaN where there is none."""
        found = {EVIDENCE: log_evidence_at_leading_order(self.learning, self.saddle.action)}
        if next_order:
            found[EVIDENCE_NEXT] = solve_next_order(self.learning, self.saddle).log_evidence
        return found


def log_evidence_of_all(learning: LearningProblem, table: xr.Dataset) -> dict[str, float]:
    """ln p(y) with all heads, from a table of the theory: what `SolvedWithout` has without some."""
    found = {EVIDENCE: log_evidence_at_leading_order(learning, float(table["action"]))}
    beyond = float(table.get(f"log_evidence{NEXT_ORDER}", np.nan))
    return found | ({EVIDENCE_NEXT: beyond} if np.isfinite(beyond) else {})


def network_without(
    learning: LearningProblem,
    heads: Collection[Head],
    attended: Float[Array, "example path channel"],
) -> tuple[LearningProblem, Float[Array, "example kept_path channel"]] | None:
    """The data as a network sees them that never had these heads; None without a whole layer."""
    kept = [
        [head for head in range(count) if (layer, head) not in heads]
        for layer, count in enumerate(learning.architecture.heads)
    ]
    return sub_network(learning, kept, attended) if all(kept) else None


def solved_without(
    learning: LearningProblem,
    heads: Collection[Head],
    attended: Float[Array, "example path channel"],
) -> SolvedWithout | None:
    """None where these are all heads of a layer, or the saddle point does not converge."""
    found = network_without(learning, heads, attended)
    if found is None:
        return None
    saddle = solve_saddle_point(found[0], starts=1)
    return SolvedWithout(*found, saddle) if saddle.converged else None


def predictions_at_infinite_width(
    learning: LearningProblem, heads: Sequence[Head]
) -> dict[str, Estimate]:
    """ln p(y) lost without each head at infinite width; NaN for the only one of a layer."""
    nothing, lost = learning.attended[:0], np.full(len(heads), np.nan)
    whole = InfiniteWidth.of(learning).log_evidence(learning.temperature)
    for place, head in enumerate(heads):
        found = network_without(learning, [head], nothing)
        if found is not None:
            lost[place] = whole - InfiniteWidth.of(found[0]).log_evidence(learning.temperature)
    return {EVIDENCE_INFINITE: Estimate(lost, np.zeros(len(heads)))}
