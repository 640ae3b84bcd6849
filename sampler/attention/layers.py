"""The variants of all heads of a layer: how recipes choose them, and the matrices they make."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from sampler.attention.variants import (
    Array,
    BatchNormalised,
    Form,
    HardMaximum,
    HeadNormalised,
    Linear,
    Robust,
    Scaled,
    ScaledHeads,
    Softmax,
)

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


_ONE = TypeAdapter(AnyForm)
# A form, or a tuple with an entry for each layer: a form, or a tuple of forms, one per head.
Forms = Form | tuple[Form | tuple[Form, ...], ...]


def read_forms(value: Any) -> Any:
    """Forms from a recipe's tables and lists. Raises ValueError with the place and the remedy."""
    return None if value is None else _read(value, "", depth=0)


def _read(value: Any, place: str, depth: int) -> Any:
    if isinstance(value, Form):
        return value
    if isinstance(value, Mapping):
        try:
            return _ONE.validate_python(dict(value))
        except ValidationError as problem:
            error = problem.errors()[0]
            # The first name of pydantic's place is the kind.
            inner = ".".join(map(str, error["loc"][1:]))
            text = error["msg"].removeprefix("Value error, ")
            raise ValueError(f"{place or 'form'}{'.' * bool(inner)}{inner}: {text}") from None
    if isinstance(value, Sequence) and not isinstance(value, str) and value and depth < 2:
        return tuple(_read(one, f"{place}[{i}]", depth + 1) for i, one in enumerate(value))
    raise ValueError(
        f'{place or "form"}: use a table with a kind, as in {{ kind = "softmax" }}, or a list with '
        "an entry for each layer: a table, or a list of one table per head"
    )


def forms_by_head(forms: Forms, heads: Sequence[int]) -> tuple[tuple[Form, ...], ...]:
    """The form of every head, layer by layer. Raises ValueError if lists do not fit the heads."""
    if isinstance(forms, Form):
        return tuple((forms,) * count for count in heads)
    if len(forms) != len(heads):
        raise ValueError(f"gives {len(forms)} layers, the network has {len(heads)}")
    by_head = []
    for layer, (of_layer, count) in enumerate(zip(forms, heads, strict=True), start=1):
        if isinstance(of_layer, Form):
            of_layer = (of_layer,) * count
        if len(of_layer) != count:
            raise ValueError(f"gives {len(of_layer)} heads in layer {layer}, which has {count}")
        by_head.append(of_layer)
    return tuple(by_head)
