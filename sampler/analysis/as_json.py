"""Results as JSON has them, and back: frozen dataclasses to dicts, by the types of their fields."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

NOTHING = {tuple: (), Mapping: {}, dict: {}, float: float("nan"), int: 0, str: "", bool: False}


def to_json(value: Any) -> Any:
    """A dataclass as a dict of its fields; one that is None by default is left out while it is.

    A class with a `to_json` of its own decides for itself. Arrays and numbers stay as they are.
    """
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return {
            field.name: to_json(getattr(value, field.name))
            for field in fields(value)
            if not (field.default is None and getattr(value, field.name) is None)
        }
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    return [to_json(item) for item in value] if isinstance(value, list | tuple) else value


def from_json(kind: Any, content: Any) -> Any:
    """The inverse for a type: null is NaN, 0 or what is empty.

    Keys that are not there count as null. Raises ValueError, TypeError or
    AttributeError for content of another shape.
    """
    if hasattr(kind, "from_json"):
        return kind.from_json(content)
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, types.UnionType):
        inner = next(argument for argument in arguments if argument is not types.NoneType)
        return None if content is None else from_json(inner, content)
    if content is None:
        return NOTHING.get(origin)
    if is_dataclass(kind):
        return kind(**{n: from_json(hint, content.get(n)) for n, hint in hints_of(kind).items()})
    if origin is tuple and arguments:
        return tuple(from_json(arguments[0], item) for item in content)
    if origin in (Mapping, dict) and arguments:
        return {key: from_json(arguments[1], item) for key, item in content.items()}
    if kind is np.ndarray:
        return np.asarray(content, dtype=np.float64)
    return float(content) if kind is float else content


@cache
def hints_of(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
