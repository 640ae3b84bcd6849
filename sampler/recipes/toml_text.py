"""Settings written as TOML text."""

import json
import re
from collections.abc import Mapping
from typing import Any

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(settings: Mapping[str, Any]) -> str:
    """TOML of nested mappings, lists, text, numbers and booleans.

    A mapping at the top level becomes a table, a deeper one an inline table. Keys whose value
    is None are left out: TOML has no such value. Raises TypeError for any other type.
    """
    kept = {key: value for key, value in settings.items() if value is not None}
    lines = [
        f"{toml_key(key)} = {toml_value(value)}"
        for key, value in kept.items()
        if not isinstance(value, Mapping)
    ]
    for key, table in kept.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{toml_key(key)}]"]
            lines += [
                f"{toml_key(inner)} = {toml_value(value)}"
                for inner, value in table.items()
                if value is not None
            ]
    return "\n".join(lines).lstrip("\n") + "\n"


def toml_key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else toml_value(key)


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)  # the shortest text that gives the same number back
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the delete character, which JSON leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if item is not None}
        pairs = (f"{toml_key(key)} = {toml_value(item)}" for key, item in kept.items())
        return "{" + ", ".join(pairs) + "}"
    raise TypeError(f"TOML has no value for {type(value).__name__} {value!r}")
