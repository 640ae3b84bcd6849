"""Calls from Python: the keywords that were given, and errors in terms of the call.

Settings have their limits, and what they mean together, in the sections of the recipe alone. Their
names, types and defaults are written out a second time, in signatures: editors and type checkers
read source text, so that a signature made at run time, or an unpacked TypedDict, would leave either
these or `help` without any. `tests/sampler/api/test_signatures.py` holds each signature against its
sections, name by name, type by type and default by default.
"""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from inspect import Parameter, signature
from itertools import chain
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from sampler.errors import InputError
from sampler.recipes.sections import (
    NetworkSection,
    PosteriorSection,
    SamplerSection,
    TheorySection,
)
from sampler.recipes.task_section import AttentionSection

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

SECTIONS = {
    "attention": AttentionSection,
    "network": NetworkSection,
    "posterior": PosteriorSection,
    "theory": TheorySection,
    "sampler": SamplerSection,
}
# The keys of a task depend on its kind.
KEYS = [rf"{name}\.{key}" for name, one in SECTIONS.items() for key in one.model_fields]
DOTTED = re.compile(rf"\b(?:task\.\w+|{'|'.join(KEYS)})\b")
# What a recipe calls otherwise than Python does.
WORDS = (
    (r"this key\b", "this keyword"),
    (r"(this \w+ is required); add it to the (?:recipe|\.npz file)", r"\1"),
    (r"\btrue\b", "True"),
    (r"\bfalse\b", "False"),
    (r"a table of keys and values", "a dict"),
)
# Where functions with keywords are, in the order in which they are used.
MODULES = ("tasks", "networks", "results", "heads", "runs", "estimators")


def in_python(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, whose errors name keywords in the place of the keys of a recipe."""

    @wraps(function)
    def call(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        try:
            return function(*arguments, **keywords)
        except InputError as problem:
            raise in_terms_of_python(problem, function.__name__) from None

    return refusing_others(call)


def refusing_others(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, which says of a keyword that it does not have which one is meant."""
    parameters = signature(function).parameters
    takes_any = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())

    @wraps(function)
    def call(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        for name, value in keywords.items():
            if name not in parameters and not takes_any:
                of = function.__qualname__.removesuffix(".__init__")
                remedy = unknown_keyword(name, of, list(parameters))
                raise InputError(name, value, remedy)
        return function(*arguments, **keywords)

    return call


def unknown_keyword(name: str, function: str, known: list[str]) -> str:
    """The remedy for a keyword that a function does not have."""
    text = f"{function} has no such keyword"
    close = get_close_matches(name, known, n=1, cutoff=0.75)
    if close:
        return f"{text}; did you mean {close[0]}?"
    others = (vars(import_module(f"sampler.api.{module}")).values() for module in MODULES)
    for other in chain(*others):
        if hasattr(other, "__wrapped__") and name in signature(other).parameters:
            return f"{text}; it is one of {other.__name__}"
    return f"{text}; known here: {', '.join(known)}"


def in_terms_of_python(problem: InputError, function: str) -> InputError:
    """The same error with keywords of a function in the place of the keys of a recipe."""
    remedy = without_sections(problem.remedy)
    for of_recipe, of_python in WORDS:
        remedy = re.sub(of_recipe, of_python, remedy)
    field = without_sections(problem.field)
    if field in ("task", *SECTIONS) and isinstance(problem.value, Mapping):
        field = f"keywords of {function}"
    return InputError(field, problem.value, remedy)


def without_sections(text: str) -> str:
    """The text with `widths` for `network.widths`."""
    return DOTTED.sub(lambda key: key[0].partition(".")[2], text)


def given(function: Callable, values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call that differ from their defaults, as a TOML file would have them.

    values: the local variables at the beginning of the function.
    """
    parameters = signature(function).parameters
    plain = {name: plain_setting(values[name]) for name in parameters}
    return {
        name: value
        for name, value in plain.items()
        if value != plain_setting(parameters[name].default)
    }


def plain_setting(value: Any) -> Any:
    """As a TOML file has it: paths as text, tuples and arrays as lists, numbers as Python's."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain_setting(item) for key, item in value.items()}
    return [plain_setting(item) for item in value] if isinstance(value, list | tuple) else value
