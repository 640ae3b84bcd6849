"""Attention paths of a task: their names, and how many of them a theory can have.

Heads of L layers make Π = H_1 ··· H_L paths, which are soon more than anything can hold: what
depends on their number is asked for here before it is made.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from types import MappingProxyType

from sampler.errors import InputError, Part, Setting, Verbatim

# U_1 of so many paths has 134 MB and 8 million free entries: no search ends with more.
MOST_PATHS = 4096
HEADS = Setting("network", "heads")


def name_paths(
    head_names: Sequence[Sequence[str]],
    known: Mapping[tuple[str, ...], str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Name all paths in flat order: by a known name, or by the heads on the path.

    None of them is named where there are more than a theory can have.
    """
    if too_many_paths(list(map(len, head_names))):
        return ()
    return tuple(known.get(path, "·".join(path)) for path in product(*head_names))


def too_many_paths(heads: Sequence[int]) -> bool:
    return math.prod(heads) > MOST_PATHS


def refuse_too_many_paths(heads: Sequence[int], field: Part = HEADS) -> None:
    """Raise InputError where the heads of each layer make more paths than a theory can have.

    field  the setting that keeps fewer of them
    """
    if too_many_paths(heads):
        layers = f"{len(heads)} layers of {' × '.join(map(str, heads))} heads"
        if len(set(heads)) == 1:
            layers = f"{len(heads)} layers of {heads[0]} heads"
        received = f"{layers}, {math.prod(heads):,} paths"
        remedy = f"order parameters of {MOST_PATHS:,} paths at most can be held; keep fewer heads "
        remedy += "of each layer, or export a window of layers, as in layers = (3, 4)"
        raise InputError(field, Verbatim(received), remedy)
