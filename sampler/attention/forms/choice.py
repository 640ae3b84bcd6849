"""Which head takes which form, as recipes write it: one for all, one per layer, or one per head."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sampler.attention.forms.form import Form
from sampler.attention.forms.layer import AnyForm

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
