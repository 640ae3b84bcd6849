"""The theory of a network that lost some heads: solved again, or with what it learned.

Up to AGAIN heads the theory of what is left is solved once more after every removal, from the
saddle point before; above that weights stay as they were learned, and only paths go.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from jaxtyping import Float

from sampler.heads.derivatives import (
    AFTER,
    EVIDENCE_SLOPE,
    INFINITE,
    INFINITE_LEARNING,
    LEARNING,
    SIZE,
    places_of,
    predictions_of_slopes,
)
from sampler.heads.evidence import EVIDENCE, EVIDENCE_INFINITE
from sampler.heads.gates import Head
from sampler.heads.joint import Ranking, left_in_layers
from sampler.heads.measures import Lost, Outputs, TheoryWithoutHeads, losses
from theory import (
    GateResponse,
    InfiniteWidth,
    OrderParameters,
    contributions_by_head,
    gate_response,
    heads_closed,
    slopes_at_infinite_width,
    solve_saddle_point,
)
from theory.architecture import is_dense

# Most heads for which the theory is solved again after every removal.
AGAIN = 16
OF_WHAT_IS_LEFT = ("score", "removed", "zeroed", AFTER, AFTER + SIZE)
AT_INFINITE_WIDTH = (
    INFINITE, INFINITE + SIZE, INFINITE_LEARNING, INFINITE_LEARNING + SIZE, EVIDENCE_INFINITE,
)  # fmt: skip
OF_SETS = ("solved_again", EVIDENCE, EVIDENCE_INFINITE)
BY_HESSIAN = (LEARNING, LEARNING + SIZE, EVIDENCE_SLOPE)
SOLVED = (*BY_HESSIAN, "solved_again", EVIDENCE)


@dataclass(frozen=True)
class TheoryLeft:
    """A theory some of whose heads are removed.

    solved   the predictor of some examples at its order parameters
    at       the order parameters; None: they are those of the whole network
    action   max(N) A at them
    """

    solved: TheoryWithoutHeads
    at: OrderParameters | None
    action: float

    @cached_property
    def response(self) -> GateResponse:
        """Derivatives by all gates; one Hessian serves slopes, sizes and evidence."""
        return gate_response(self.solved.learning, self.at, self.solved.attended)


@dataclass(frozen=True)
class JointTheory:
    """Numbers of the theory for the heads of what is left, from some examples.

    whole    the theory with all heads
    found    its order parameters
    heads    that may go, in the order of numbers, as the theory numbers them
    gates    heads in the same order, as gates number them
    """

    whole: TheoryWithoutHeads
    found: OrderParameters
    heads: tuple[Head, ...]
    gates: tuple[Head, ...]
    labels: Outputs
    _kept: dict[frozenset[Head], TheoryLeft | None] = field(default_factory=dict, repr=False)

    @cached_property
    def again(self) -> bool:
        """Whether the theory of what is left is solved again."""
        return len(self.heads) <= AGAIN

    def rankings(self) -> dict[str, Ranking]:
        """The numbers by key of PREDICTIONS."""
        keys = [*OF_WHAT_IS_LEFT, *AT_INFINITE_WIDTH]
        if self.again:
            by_hessian = is_dense(self.whole.learning.architecture)
            keys += [key for key in SOLVED if by_hessian or key not in BY_HESSIAN]
        return {key: partial(self.numbers, key) for key in keys}

    def numbers(self, key: str, removed: Sequence[Head]) -> Float[np.ndarray, " head"]:
        """Numbers of all heads without those removed, as gates number them; NaN: not known."""
        gone = [self.heads[self.gates.index(head)] for head in removed]
        places = [place for place, head in enumerate(self.heads) if head not in gone]
        values = np.full(len(self.heads), np.nan)
        values[places] = self._of_left(key, gone, [self.heads[place] for place in places])
        return values

    def of_set(self, key: str, gone: Sequence[Head]) -> float:
        """The cost of a set of heads, as the theory numbers them: a squared loss, or −ln p(y).

        key  "removed" and "zeroed" of the whole network's order parameters, "solved_again",
             "evidence" and EVIDENCE_INFINITE of a network without these heads
        """
        if key in ("removed", "zeroed"):
            outputs = getattr(self.whole, key)(gone)
            return float(losses("squared", outputs, self.labels).mean())
        left = self.left(gone, infinite=key == EVIDENCE_INFINITE)
        if left is None:
            return np.nan
        if key == EVIDENCE:
            return 0.5 * left.action
        learning = left.solved.learning
        if key == EVIDENCE_INFINITE:
            return -InfiniteWidth.of(learning).log_evidence(learning.temperature)
        return float(losses("squared", left.solved.removed([]), self.labels).mean())

    def _of_left(self, key: str, gone: list[Head], kept: list[Head]) -> np.ndarray:
        if key in OF_SETS or (key in ("removed", "zeroed") and not self.again):
            return np.array([self.of_set(key, [*gone, head]) for head in kept])
        left = self.left(gone, infinite=key in AT_INFINITE_WIDTH)
        if left is None:
            return np.full(len(kept), np.nan)
        if key in ("removed", "zeroed"):
            without = getattr(left.solved, key)
            return Lost.without(without, kept, self.labels, "squared").loss.mean(axis=1)
        if key == "score":
            return left.solved.scores(kept)
        if key == EVIDENCE_SLOPE:
            return -0.5 * left.response.action[places_of(kept, self.whole.paths.heads)]
        mean, slopes = self._slopes(key.removesuffix(SIZE), left)
        slopes = slopes[..., places_of(kept, self.whole.paths.heads)]
        return predictions_of_slopes(key.removesuffix(SIZE), mean, slopes, self.labels)[key].value

    def _slopes(self, key: str, left: TheoryLeft) -> tuple[np.ndarray, np.ndarray]:
        """m(x), and its slopes by all gates."""
        if key in (AFTER, LEARNING):
            terms = left.solved.contributions
            if key == LEARNING:
                return terms.sum(axis=1), left.response.with_learning
            return terms.sum(axis=1), contributions_by_head(terms, self.whole.paths)
        wide, again = slopes_at_infinite_width(left.solved.learning, left.solved.attended)
        if key == INFINITE_LEARNING:
            return wide.sum(axis=1), again
        return wide.sum(axis=1), contributions_by_head(wide, self.whole.paths)

    def left(self, gone: Sequence[Head], *, infinite: bool = False) -> TheoryLeft | None:
        """The theory without these heads; None where a layer has none left, or none is found.

        infinite  whether it is asked for its data only, which learn nothing
        """
        learning, attended = self.whole.learning, self.whole.attended
        if not all(left_in_layers(learning.architecture.heads, gone)):
            return None
        if infinite:
            part, seen = heads_closed(learning, gone, attended)
            return TheoryLeft(replace(self.whole, learning=part, attended=seen), None, np.nan)
        if not self.again:  # paths that are gone send nothing, the others what they learned
            closed = self.whole.paths.through(gone)
            seen = np.where(closed[None, :, None], 0.0, np.asarray(attended))
            return TheoryLeft(replace(self.whole, attended=seen), None, np.nan)
        key = frozenset(gone)
        if key not in self._kept:
            self._kept[key] = self._solved(list(gone))
        return self._kept[key]

    def _solved(self, gone: list[Head]) -> TheoryLeft | None:
        learning, attended = self.whole.learning, self.whole.attended
        part, seen = heads_closed(learning, gone, attended)
        solved = solve_saddle_point(part, initial=self._near(gone))
        if not solved.converged:
            return None
        found = solved.order_parameters
        theory = TheoryWithoutHeads(part, seen, np.asarray(found.matrices[0]))
        return TheoryLeft(theory, found, max(part.architecture.widths) * solved.action)

    def _near(self, gone: list[Head]) -> OrderParameters:
        """Order parameters of a network that was solved with all but one of these removed."""
        for head in gone:
            known = self._kept.get(frozenset(gone) - {head})
            if known is not None:
                return known.at
        return self.found
