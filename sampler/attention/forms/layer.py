"""The heads of one layer, each with its form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from sampler.attention.forms.batch_normalised import BatchNormalised
from sampler.attention.forms.form import Array, Form
from sampler.attention.forms.hard_maximum import HardMaximum
from sampler.attention.forms.head_normalised import HeadNormalised
from sampler.attention.forms.linear import Linear
from sampler.attention.forms.robust import Robust
from sampler.attention.forms.scaled import Scaled
from sampler.attention.forms.scaled_heads import ScaledHeads
from sampler.attention.forms.softmax import Softmax

AnyForm = Annotated[
    Softmax
    | HardMaximum
    | Linear
    | BatchNormalised
    | ScaledHeads
    | Robust
    | Scaled
    | HeadNormalised,
    Field(discriminator="kind"),
]


@dataclass(frozen=True)
class HeadGroup:
    """The heads of a layer that share a form, and the factors of their matrices A = S P.

    heads    their numbers
    form     the form
    weights  S [example, head, query, pooled]
    pooling  P [pooled, key], None where keys are not pooled
    """

    heads: tuple[int, ...]
    form: Form
    weights: Array
    pooling: Array | None

    def unpooled(self, rows: Array) -> Array:
        """Rows of S, or of what was multiplied by it from the left, as rows of A."""
        return rows if self.pooling is None else rows @ self.pooling


def head_groups(forms: tuple[Form, ...], queries: Array, keys: Array) -> tuple[HeadGroup, ...]:
    """The groups of a layer; heads of equal form are computed together.

    queries, keys: [example, head, token, key channel], one form for each head.
    """
    xp = queries.__array_namespace__()
    groups = []
    for form in dict.fromkeys(forms):
        heads = tuple(head for head, other in enumerate(forms) if other == form)
        # Slices, not a list of indices: their derivatives are cheap.
        chosen = (
            xp.concat([values[:, head : head + 1] for head in heads], axis=1)
            for values in (queries, keys)
        )
        groups.append(HeadGroup(heads, form, *form.factors(*chosen)))
    return tuple(groups)


def by_head(groups: tuple[HeadGroup, ...], found: Sequence[Array]) -> Array:
    """Arrays [example, head of the group, …], one for each group, as [example, head, …]."""
    xp = found[0].__array_namespace__()
    heads = [head for group in groups for head in group.heads]
    together = xp.concat(list(found), axis=1)
    if heads == sorted(heads):
        return together
    places = [heads.index(head) for head in range(len(heads))]
    return xp.concat([together[:, place : place + 1] for place in places], axis=1)


def layer_matrices(forms: tuple[Form, ...], queries: Array, keys: Array) -> Array:
    """A [example, head, query, key] of a layer; arguments as of `head_groups`."""
    groups = head_groups(forms, queries, keys)
    return by_head(groups, [group.unpooled(group.weights) for group in groups])
