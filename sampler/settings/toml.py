"""TOML read and written, dotted keys, and what a command line sets.

Values on the command line are TOML, separated by commas; a single word or path needs no quotation
marks. A:B is the range of whole numbers A, A+1, …, B−1, and A:B:STEP every STEP-th of them.
"""

import itertools
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sampler.errors import InputError, one_line
from sampler.settings.gallery import remedy_for_missing

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
DOTTED_KEY = re.compile(r"[\w-]+(\.[\w-]+)*")
WORD_OR_PATH = re.compile(r"(\.{0,2}/|[A-Za-z])[\w./-]*")
RANGE = re.compile(r"([+-]?\d+):([+-]?\d+)(?::([+-]?\d+))?")
LONGEST_RANGE = 100_000
# Names of what a process has open already, as in `check <(cat recipe.toml)`.
OPEN_FILES = ("/dev/fd/", "/dev/stdin", "/proc/")
# The setting whose values are attention variants, and the length of labels of points.
FORM = "attention.form"
LONGEST_LABEL, SHORTEST_WORD = 44, 8


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file. Raises InputError for a file that cannot be read.

    A pipe can be read but once.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # a byte order mark is no text
    except FileNotFoundError:
        raise InputError("recipe", path, remedy_for_missing(path)) from None
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError("recipe", path, f"{reason}; name a TOML file to read") from None
    except UnicodeDecodeError as problem:
        raise InputError("recipe", path, f"must be UTF-8 text ({problem})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise InputError("recipe", path, f"is not valid TOML: {problem}") from None


def folder_of(path: Path) -> Path:
    """Return what the paths in a recipe are relative to: its folder; of a pipe, where we are."""
    has_folder = path.is_file() and not str(path).startswith(OPEN_FILES)
    return path.parent if has_folder else Path.cwd()


# --- writing


def toml_text(settings: Mapping[str, Any]) -> str:
    """TOML of nested mappings, lists, text, numbers and booleans.

    A mapping at the top level becomes a table, a deeper one an inline table, and a list stays on
    its line, where tomli-w would give each number a line of its own. Keys whose value is None are
    left out: TOML has no such value. Raises TypeError for any other type.
    """
    tables = {key: value for key, value in settings.items() if isinstance(value, Mapping)}
    lines = toml_lines({key: value for key, value in settings.items() if key not in tables})
    for key, table in tables.items():
        lines += ["", f"[{toml_key(key)}]", *toml_lines(table)]
    return "\n".join(lines).lstrip("\n") + "\n"


def toml_lines(table: Mapping[str, Any]) -> list[str]:
    kept = {key: value for key, value in table.items() if value is not None}
    return [f"{toml_key(key)} = {toml_value(value)}" for key, value in kept.items()]


def toml_key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else toml_value(key)


def toml_value(value: Any) -> str:
    """A value on one line; a mapping is an inline table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)  # the shortest text that gives the same number back
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the delete character, which JSON leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(toml_lines(value)) + "}"
    raise TypeError(f"TOML has no value for {type(value).__name__} {value!r}")


# --- labels of points


def setting_text(key: str, value: Any) -> str:
    """A setting in a label, as in network.widths=10."""
    return f"{key}={value if isinstance(value, str) else toml_value(value)}"


def point_label(keys: Iterable[str], values: Iterable[Any]) -> str:
    """Swept keys with their values at one point, `key=value,…`."""
    return ",".join(map(setting_text, keys, values))


def point_labels(
    sweep: Mapping[str, Sequence[Any]], paths: Mapping[str, Any] | None = None
) -> list[str]:
    """The labels of all points of a sweep, the last key fastest.

    paths  what among the values names files or folders
    """
    paths = paths or {}
    shown = {
        key: different_names(values) if all(str(value) in paths for value in values) else values
        for key, values in sweep.items()
    }
    return [point_label(shown, values) for values in itertools.product(*shown.values())]


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
        (key == FORM and name_of_form(value)) or setting_text(key.rpartition(".")[2], value)
        for key, value in settings.items()
    ]
    excess = len(", ".join(words)) - LONGEST_LABEL
    if excess > 0:
        longest = max(words, key=len)
        kept = max(len(longest) - excess - 1, SHORTEST_WORD)
        words[words.index(longest)] = longest[:kept].rstrip(" ,;") + "…"
    return ", ".join(words)


def name_of_form(form: Any) -> str | None:
    """Return a short name of the value of `attention.form`: kinds of variants and their settings.

    None for a value of another form.
    """
    variants = variants_in(form)
    if not variants or not all(isinstance(item, dict) and "kind" in item for item in variants):
        return None
    values: dict[str, dict[str, None]] = {"kind": {}}
    for variant in variants:
        for key, value in variant.items():
            values.setdefault(key, {})[str(value).replace("_", " ")] = None
    kinds = values.pop("kind")
    return "; ".join([" and ".join(kinds), *(f"{key} {', '.join(v)}" for key, v in values.items())])


def variants_in(variants: Any) -> list:
    """Return variants out of lists by layer and by head."""
    if isinstance(variants, list | tuple):
        return [variant for inner in variants for variant in variants_in(inner)]
    return [variants]


# --- nested tables and dotted keys


def place(settings: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, making the tables on the way."""
    *sections, name = key.split(".")
    table = settings
    for section in sections:
        inner = table.get(section)
        if inner is None:
            inner = table[section] = {}
        if not isinstance(inner, dict):
            raise InputError(key, value, f"{section} is not a table and has no keys")
        table = inner
    table[name] = value


def flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys for nested tables."""
    flat = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def different_values(values: Iterable[Any]) -> tuple[Any, ...]:
    """Values of which none equals another one, the first of equal ones: 1 and 1.0 are equal."""
    different: dict[Any, Any] = {}
    for value in values:
        different.setdefault(comparable(value), value)
    return tuple(different.values())


def comparable(value: Any) -> Any:
    """Return something hashable that is equal for equal settings; true is not the number 1."""
    if isinstance(value, Mapping):
        return frozenset((key, comparable(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(comparable, value))
    return (value,) if isinstance(value, bool) else value


# --- settings of a command line


def parse_override(override: str) -> tuple[str, Any]:
    """Key and value of KEY=VALUE, as `--set` takes it."""
    key, text = split_setting("--set", override, "use KEY=VALUE, as in network.widths=100")
    return key, parse_value(f"--set {key}", text)


def parse_over(over: str) -> tuple[str, list[Any]]:
    """Key and values of KEY=V1,V2,…, as `--over` takes it; ranges are written out."""
    key, text = split_setting("--over", over, "use KEY=V1,V2, as in network.widths=10,100")
    option = f"--over {key}"
    if not text:
        raise InputError(option, text, "is empty; give at least one value")
    values: list[Any] = []
    pending: list[str] = []
    for piece in text.split(","):
        pending.append(piece)
        complete = values_of(option, ",".join(pending).strip())
        if complete is not None:  # else the comma stands within brackets or quotation marks
            values += complete
            pending = []
    if pending:
        parse_value(option, ",".join(pending).strip())
    return key, values


def split_setting(option: str, setting: str, remedy: str) -> tuple[str, str]:
    """Key and text of KEY=TEXT."""
    key, equals, text = (part.strip() for part in setting.partition("="))
    if not equals or not DOTTED_KEY.fullmatch(key):
        raise InputError(option, setting, remedy)
    return key, text


def parse_value(option: str, text: str) -> Any:
    """The value of a text: TOML, or a single word or path, which needs no quotation marks."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError as problem:
        if WORD_OR_PATH.fullmatch(text):
            return text
        reason = one_line(str(problem))
        raise InputError(option, text, f"is not a TOML value: {reason}") from None
    if set(parsed) != {"value"}:
        raise InputError(option, text, "give one TOML value")
    return parsed["value"]


def values_of(option: str, text: str) -> list[Any] | None:
    """The value of a text, or those of a range; None where it is no value yet."""
    ends = RANGE.fullmatch(text)
    if ends is None:
        try:
            return [parse_value(option, text)]
        except InputError:
            return None
    start, stop, step = int(ends[1]), int(ends[2]), int(ends[3] or 1)
    if step == 0:
        raise InputError(option, text, "the step of a range must not be 0")
    values = range(start, stop, step)
    if not 0 < len(values) <= LONGEST_RANGE:
        remedy = f"a range has from 1 to {LONGEST_RANGE} numbers; 0:3 stands for 0, 1, 2"
        raise InputError(option, text, remedy)
    return list(values)
