"""TOML read and written, dotted keys, and settings of a command line.

Values on the command line are TOML, separated by commas; words and paths need no quotation marks.
A:B is the range of whole numbers A, A+1, …, B−1, and A:B:STEP every STEP-th of them.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sampler.errors import InputError, one_line
from sampler.settings.gallery import remedy_for_missing

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
DOTTED_KEY = re.compile(r"[\w-]+(\.[\w-]+)*")
# Parts of a text of values: a string as it is, a range, or a word or path that is no key.
PARTS = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\])*"|'[^']*')
    |(?<![\w.+-])(?P<range>[+-]?\d+:[+-]?\d+(?::[+-]?\d+)?)(?![\w.:])
    |(?<![\w.+-])(?P<word>(?:\.{0,2}/|[A-Za-z])[\w./-]*+)(?!\s*=)""",
    re.VERBOSE,
)
LITERALS = ("true", "false", "inf", "nan")
LONGEST_RANGE = 100_000
# Names of what a process has open already, as in `check <(cat recipe.toml)`.
OPEN_FILES = ("/dev/fd/", "/dev/stdin", "/proc/")


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file. Raises InputError for a file that cannot be read.

    A pipe can be read but once.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # a byte order mark is no text
    except FileNotFoundError:
        remedy = remedy_for_missing(path)
    except OSError as problem:
        remedy = f"{problem.strerror or problem}; name a TOML file to read"
    except UnicodeDecodeError as problem:
        remedy = f"must be UTF-8 text ({problem})"
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        remedy = f"is not valid TOML: {problem}"
    raise InputError("recipe", path, remedy)


def folder_of(path: Path) -> Path:
    """Return the folder of relative paths in a recipe: its folder; of a pipe, where we are."""
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


# --- nested tables and dotted keys


def place(settings: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, making the tables on the way."""
    *sections, name = key.split(".")
    table = settings
    for section in sections:
        if table.get(section) is None:
            table[section] = {}
        table = table[section]
        if not isinstance(table, dict):
            raise InputError(key, value, f"{section} is not a table and has no keys")
    table[name] = value


def take_out(settings: dict[str, Any], key: str) -> None:
    """Remove a dotted key, if it is there."""
    *sections, name = key.split(".")
    table: Any = settings
    for section in sections:
        table = table.get(section) if isinstance(table, dict) else None
    if isinstance(table, dict):
        table.pop(name, None)


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
    key, values = parse_over(override, "--set", "KEY=VALUE, as in network.widths=100")
    if len(values) != 1:
        raise InputError(f"--set {key}", override.partition("=")[2], "give one TOML value")
    return key, values[0]


def parse_over(
    over: str, option: str = "--over", form: str = "KEY=V1,V2, as in network.widths=10,100"
) -> tuple[str, list[Any]]:
    """Key and values of KEY=V1,V2,…, as `--over` takes it; ranges are written out."""
    key, equals, text = (part.strip() for part in over.partition("="))
    if not equals or not text or not DOTTED_KEY.fullmatch(key):
        raise InputError(option, over, f"use {form}")
    option = f"{option} {key}"

    def as_toml(part: re.Match) -> str:
        if part["range"]:
            return ", ".join(map(str, numbers_of(option, part["range"])))
        is_word = part["word"] and part["word"] not in LITERALS
        return json.dumps(part["word"]) if is_word else part[0]

    try:
        return key, tomllib.loads(f"values = [{PARTS.sub(as_toml, text)}]")["values"]
    except tomllib.TOMLDecodeError as problem:
        raise InputError(option, text, f"is not a TOML value: {one_line(str(problem))}") from None


def numbers_of(option: str, text: str) -> range:
    """The numbers of a range."""
    start, stop, *step = map(int, text.split(":"))
    if step == [0]:
        raise InputError(option, text, "the step of a range must not be 0")
    numbers = range(start, stop, *step)
    if not 0 < len(numbers) <= LONGEST_RANGE:
        remedy = f"a range has from 1 to {LONGEST_RANGE} numbers; 0:3 means 0, 1, 2"
        raise InputError(option, text, remedy)
    return numbers
