"""Labels of the points of a sweep: whole ones, which name folders, and short ones, for axes."""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sampler.settings.toml import toml_value

# The setting whose values are attention variants.
FORM = "attention.form"
LONGEST_LABEL, SHORTEST_WORD = 44, 8


def setting_text(key: str, value: Any) -> str:
    """A setting in a label, as in network.widths=10."""
    return f"{key}={value if isinstance(value, str) else toml_value(value)}"


def point_labels(sweep: Mapping[str, Sequence[Any]]) -> list[str]:
    """The labels `key=value,…` of all points of a sweep, the last key fastest.

    They are the same wherever a project lies: of paths they have the part that differs.
    """
    shown = {
        key: different_names(values) if are_paths(values) else values
        for key, values in sweep.items()
    }
    points = itertools.product(*shown.values())
    return [",".join(map(setting_text, shown, values)) for values in points]


def are_paths(values: Sequence[Any]) -> bool:
    """Whether swept values name files or folders: no other setting has a separator in its text."""
    texts = all(isinstance(value, str) for value in values)
    return texts and any(os.sep in value for value in values)


def different_names(paths: Sequence[str]) -> list[str]:
    """Return short names of different paths: their last parts, or all below the folder of all."""
    names = [Path(path).name for path in paths]
    if len(set(names)) == len(names):
        return names
    shared = os.path.commonpath([os.path.dirname(path) for path in paths])
    return [os.path.relpath(path, shared) for path in paths]


def short_label(settings: Mapping[str, Any]) -> str:
    """Return swept keys and their values at one point, for an axis: variants by name.

    Where that is too long it is the longest of them that is cut: points still differ by the others.
    """
    words = [
        name_of_form(value) if key == FORM else setting_text(key.rpartition(".")[2], value)
        for key, value in settings.items()
    ]
    excess = len(", ".join(words)) - LONGEST_LABEL
    if excess > 0:
        longest = max(words, key=len)
        kept = max(len(longest) - excess - 1, SHORTEST_WORD)
        words[words.index(longest)] = longest[:kept].rstrip(" ,;") + "…"
    return ", ".join(words)


def name_of_form(form: Any) -> str:
    """Return a short name of attention variants: their kinds, and the values of their settings."""
    values: dict[str, dict[str, None]] = {}
    for variant in variants_in(form):
        for key, value in variant.items():
            values.setdefault(key, {})[str(value).replace("_", " ")] = None
    kinds = " and ".join(values.pop("kind"))
    return "; ".join(
        [kinds, *(f"{key} {', '.join(different)}" for key, different in values.items())]
    )


def variants_in(variants: Any) -> list[dict[str, Any]]:
    """Return variants out of lists by layer and by head."""
    if isinstance(variants, list | tuple):
        return [variant for inner in variants for variant in variants_in(inner)]
    return [variants]
