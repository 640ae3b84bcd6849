"""What is wrong with a recipe, said in one line: the key, its value and the remedy."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from sampler.errors import ABSENT, InputError

# Remedies by pydantic's name for the problem; {…} are taken from pydantic's own context.
REMEDIES = {
    "missing": "this key is required; add it to the recipe",
    "literal_error": "use {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "finite_number": "must be a finite number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "use true or false",
    "string_type": 'must be text, as in "name"',
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "use letters, digits, '.', '_' and '-' only, none of the last "
    "three in front",
    "tuple_type": "must be a list, as in [1, 2]",
    "list_type": "must be a list, as in [1, 2]",
    "dict_type": "must be a table of keys and values",
    "model_type": "must be a table of keys and values",
    "model_attributes_type": "must be a table of keys and values",
    "too_short": "must have at least {min_length} entry",
    "union_tag_not_found": 'name the kind of task, as in kind = "markov_chain"',
    "union_tag_invalid": "use {expected_tags}",
}


def recipe_error(
    problem: ValidationError, settings: Mapping[str, Any], known_keys: list[str]
) -> InputError:
    """The InputError of the first problem that pydantic found in these settings.

    known_keys are the dotted keys a recipe may have, for the suggestion at an unknown key.
    """
    error = problem.errors()[0]
    kind, context = error["type"], error.get("ctx", {})
    field, value = locate(error["loc"], settings, kind)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        field = f"{field}.kind"
        value = value.get("kind", ABSENT) if isinstance(value, Mapping) else value
    if kind == "extra_forbidden":
        remedy = f"this key is unknown; {suggestion(field, known_keys)}"
    elif kind == "value_error":
        remedy = str(context["error"])
    elif kind in REMEDIES:
        remedy = REMEDIES[kind].format(**context)
    else:
        remedy = error["msg"]
    return InputError(field or "recipe", value, remedy)


def locate(
    location: tuple[int | str, ...], settings: Mapping[str, Any], kind: str
) -> tuple[str, Any]:
    """Dotted key and value of pydantic's location, whose names of unions are left out."""
    field, value = "", settings
    for step in location:
        if isinstance(step, int) and isinstance(value, list | tuple) and step < len(value):
            field, value = f"{field}[{step}]", value[step]
        elif isinstance(value, Mapping) and step in value:
            field, value = dotted(field, str(step)), value[step]
        elif kind == "missing" and step == location[-1]:
            field, value = dotted(field, str(step)), ABSENT
    return field, value


def suggestion(field: str, known_keys: list[str]) -> str:
    """The known key meant by an unknown one, or the keys known beside it."""
    section, _, name = field.rpartition(".")
    beside = [key for key in known_keys if key.rpartition(".")[0] == section]
    elsewhere = [key for key in known_keys if key.rpartition(".")[2] == name]
    close = get_close_matches(field, beside, n=1, cutoff=0.75) or elsewhere
    depth = field.count(".")
    same_depth = [key for key in known_keys if key.count(".") == depth]
    close = close or get_close_matches(field, same_depth, n=1, cutoff=0.75)
    if close:
        return f"did you mean {close[0]}?"
    names = sorted({key.removeprefix(f"{section}.").split(".")[0] for key in beside})
    if not section:
        names = sorted({key.split(".")[0] for key in known_keys})
    return f"known here: {', '.join(names)}" if names else "remove it"


def dotted(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
