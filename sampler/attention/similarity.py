"""Distance and entropy of attention matrices, and heads in an order that can be compared.

Of matrices Ω [example, head, key, query], with means over examples and queries t:

    distance  d(Ω, Ω') = mean of ½ Σ_s |Ω_st − Ω'_st|, the total variation where columns are laws
    entropy   S(Ω) = mean of −Σ_s p_st ln p_st in nats, p_st = |Ω_st| / Σ_s' |Ω_s't|

and between all heads of a network, in Frobenius' norm, of matrices and of their outputs.

Heads of a layer with the same prior can be exchanged: no two draws have the same order, and means
over draws need one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from sampler.attention.variants import Array

# Learned heads of a layer, those together that can be exchanged with each other.
Groups = tuple[tuple[int, ...], ...]
# Examples at a time: outputs of all heads are as large as the inputs, times the heads.
EXAMPLES_AT_A_TIME = 128


def attention_distances(
    matrices: Float[Array, "example head key query"],
    references: Float[Array, "example reference key query"],
) -> Float[Array, "head reference"]:
    xp = matrices.__array_namespace__()

    def distances(reference):
        return xp.mean(0.5 * xp.sum(xp.abs(matrices - reference), axis=2), axis=(0, 2))

    each = [distances(references[:, n : n + 1]) for n in range(references.shape[1])]
    return xp.stack(each, axis=1)


def attention_entropies(matrices: Float[Array, "example head key query"]) -> Float[Array, " head"]:
    """Entropy of every head, from 0 to the logarithm of the number of tokens."""
    xp = matrices.__array_namespace__()
    size = xp.abs(matrices)
    share = size / xp.sum(size, axis=2, keepdims=True)
    logs = xp.log(xp.where(share > 0, share, 1.0))
    return -xp.mean(xp.sum(share * logs, axis=2), axis=(0, 2))


@dataclass(frozen=True)
class HeadDistances:
    """Mean and standard deviation over pairs of heads of all layers; NaN where none has two.

    matrices  ‖Ω_h − Ω_h'‖_F, averaged over examples
    outputs   ‖(Ω_h − Ω_h')ᵀ X‖_F of the inputs X, averaged over examples
    """

    matrices: tuple[float, float]
    outputs: tuple[float, float]

    @classmethod
    def of(
        cls,
        attention: Sequence[Float[np.ndarray, "_example _head _key _query"]],
        inputs: Float[np.ndarray, "_example _token _channel"],
    ) -> "HeadDistances":
        """Distances of all layers; the output of a head is that for values X."""
        matrices, outputs = [], []
        for layer in attention:
            for head, other in combinations(range(layer.shape[1]), 2):
                difference = layer[:, head] - layer[:, other]
                matrices.append(np.sqrt((difference**2).sum(axis=(1, 2))).mean())
                norms = []
                for start in range(0, len(inputs), EXAMPLES_AT_A_TIME):
                    part = slice(start, start + EXAMPLES_AT_A_TIME)
                    moved = np.swapaxes(difference[part], 1, 2) @ inputs[part]
                    norms.append(np.sqrt((moved**2).sum(axis=(1, 2))))
                outputs.append(float(np.concatenate(norms).mean()))
        return cls(spread(matrices), spread(outputs))


def spread(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation; the latter is 0 for one pair."""
    if not values:
        return float("nan"), float("nan")
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def matched(
    costs: Float[np.ndarray, "*draw head place"], groups: Groups
) -> Int[np.ndarray, "*draw place"]:
    """The head of each draw at each place: the order of the smallest sum of costs.

    groups  of heads, and of places alike, within which heads may be exchanged
    """
    from scipy.optimize import linear_sum_assignment  # only here: importing it takes long

    flat = costs.reshape(-1, *costs.shape[-2:])
    orders = np.tile(np.arange(costs.shape[-1]), (len(flat), 1))
    for group in map(list, groups):
        for order, cost in zip(orders, flat, strict=True):
            heads, places = linear_sum_assignment(cost[np.ix_(group, group)])
            order[np.take(group, places)] = np.take(group, heads)
    return orders.reshape(costs.shape[:-1])


def medoid(
    costs: Sequence[Float[np.ndarray, "draw draw _head _head"]], groups: Sequence[Groups]
) -> int:
    """The draw with the smallest sum of distances to all others, heads in the best order of each.

    costs, groups  of every layer
    """
    total = np.zeros(len(costs[0]))
    for of_layer, groups_of_layer in zip(costs, groups, strict=True):
        order = matched(of_layer, groups_of_layer)
        pairs = np.take_along_axis(of_layer, order[..., None, :], axis=-2)
        total += pairs.sum(axis=(1, 2, 3))
    return int(np.argmin(total))
