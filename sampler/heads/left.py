"""The theory of a network that lost some heads: solved again, or with what it learned.

Up to AGAIN heads the theory of what is left is solved once more after every removal, from the
saddle point before; above that weights stay as they were learned, and only paths go.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from jaxtyping import Float

from sampler.heads.gates import Head
from sampler.heads.joint import Ranking, left_in_layers
from sampler.heads.measures import Lost, Outputs, TheoryWithoutHeads, losses
from theory import OrderParameters, heads_closed, solve_saddle_point

# Most heads for which the theory is solved again after every removal.
AGAIN = 16
OF_WHAT_IS_LEFT = ("score", "removed", "zeroed")


@dataclass(frozen=True)
class TheoryLeft:
    """A theory some of whose heads are removed.

    solved   the predictor of some examples at its order parameters
    at       the order parameters; None: they are those of the whole network
    """

    solved: TheoryWithoutHeads
    at: OrderParameters | None


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
        keys = [*OF_WHAT_IS_LEFT, *(["solved_again"] if self.again else [])]
        return {key: partial(self.numbers, key) for key in keys}

    def numbers(self, key: str, removed: Sequence[Head]) -> Float[np.ndarray, " head"]:
        """Numbers of all heads without those removed, as gates number them; NaN: not known."""
        gone = [self.heads[self.gates.index(head)] for head in removed]
        places = [place for place, head in enumerate(self.heads) if head not in gone]
        values = np.full(len(self.heads), np.nan)
        values[places] = self._of_left(key, gone, [self.heads[place] for place in places])
        return values

    def of_set(self, key: str, gone: Sequence[Head]) -> float:
        """The squared loss without a set of heads, as the theory numbers them.

        key  "removed" and "zeroed" of the whole network's order parameters, "solved_again" of a
             network without these heads
        """
        if key in ("removed", "zeroed"):
            outputs = getattr(self.whole, key)(gone)
            return float(losses("squared", outputs, self.labels).mean())
        left = self.left(gone)
        if left is None:
            return np.nan
        return float(losses("squared", left.solved.removed([]), self.labels).mean())

    def _of_left(self, key: str, gone: list[Head], kept: list[Head]) -> np.ndarray:
        if key == "solved_again" or (key in ("removed", "zeroed") and not self.again):
            return np.array([self.of_set(key, [*gone, head]) for head in kept])
        left = self.left(gone)
        if left is None:
            return np.full(len(kept), np.nan)
        if key == "score":
            return left.solved.scores(kept)
        without = getattr(left.solved, key)
        return Lost.without(without, kept, self.labels, "squared").loss.mean(axis=1)

    def left(self, gone: Sequence[Head]) -> TheoryLeft | None:
        """The theory without these heads; None where a layer has none left, or none is found."""
        learning, attended = self.whole.learning, self.whole.attended
        if not all(left_in_layers(learning.architecture.heads, gone)):
            return None
        if not self.again:  # paths that are gone send nothing, the others what they learned
            closed = self.whole.paths.through(gone)
            seen = np.where(closed[None, :, None], 0.0, np.asarray(attended))
            return TheoryLeft(replace(self.whole, attended=seen), None)
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
        return TheoryLeft(theory, found)

    def _near(self, gone: list[Head]) -> OrderParameters:
        """Order parameters of a network that was solved with all but one of these removed."""
        for head in gone:
            known = self._kept.get(frozenset(gone) - {head})
            if known is not None:
                return known.at
        return self.found
