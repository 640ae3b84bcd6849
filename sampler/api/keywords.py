"""Keywords of Python functions, made from the settings of recipes, and errors in terms of a call.

A function that is decorated with `takes` has a keyword for every setting of its sections: signature
and help follow from the fields, and what was given reaches the function as `**settings`.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import reduce, wraps
from inspect import Parameter, Signature, cleandoc, signature
from operator import or_
from pathlib import Path
from textwrap import fill
from types import UnionType
from typing import Annotated, Any, ParamSpec, TypeVar, Union, get_args, get_origin

import numpy as np

import sampler
from sampler.errors import DataWarning, InputError, Part, Setting, Words
from sampler.settings.task import AttentionSection, TaskSection
from sampler.settings.types import InPython, Mark, RelativePath, Section, meaning

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Keyword:
    """A setting as a keyword of a function.

    default  `Parameter.empty` where the setting is required
    """

    name: str
    key: str
    type: Any
    default: Any
    meaning: str

    @property
    def parameter(self) -> Parameter:
        """The parameter of a signature; what is required may be given by its place."""
        required = self.default is Parameter.empty
        kind = Parameter.POSITIONAL_OR_KEYWORD if required else Parameter.KEYWORD_ONLY
        return Parameter(self.name, kind, default=self.default, annotation=self.type)


def keywords_of(section: type[Section], *keys: str) -> list[Keyword]:
    """Return the keywords of a section that Python functions take, or of some of its keys."""
    keywords = []
    for key, field in section.model_fields.items():
        if Mark.NOT_IN_PYTHON in field.metadata or (keys and key not in keys):
            continue
        accepted = python_type(field.annotation, field.metadata)
        default = Parameter.empty if field.is_required() else field.default
        if Mark.OPEN_DEFAULT in field.metadata:
            accepted, default = accepted | None, None
        name, text = name_in_python(section, key), meaning(section, key)
        keywords.append(Keyword(name, key, accepted, default, text))
    return keywords


def name_in_python(section: type[Section], key: str) -> str:
    """Return the keyword of a setting: its key, unless another name is declared."""
    marks = section.model_fields[key].metadata if key in section.model_fields else ()
    return next((mark.name for mark in marks if isinstance(mark, InPython) and mark.name), key)


def keywords_of_task(section: type[TaskSection]) -> list[Keyword]:
    """Return the keywords of a task: of its heads, where the choice is open, and of its data."""
    found = []
    for keyword in keywords_of(AttentionSection) if section.head_kinds else ():
        default = section.attention_defaults.get(keyword.key, keyword.default)
        text = keyword.meaning
        if keyword.key == "heads":
            kinds = ", ".join(f'"{kind}"' for kind in section.head_kinds)
            text = f"{text.removesuffix('.')}: {kinds}."
        if keyword.key != "lag" or "lag" in section.head_kinds:
            found.append(replace(keyword, default=default, meaning=text))
    return found + keywords_of(section)


def python_type(annotation: Any, metadata: Iterable[Any] = ()) -> Any:
    """Return the type that a caller may give: sequences for tuples, paths for texts of paths."""
    for mark in metadata:
        if isinstance(mark, InPython) and mark.type is not None:
            return mark.type
        if isinstance(mark, RelativePath):
            return str | Path
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return python_type(inner[0], inner[1:])
    if origin in (Union, UnionType):
        return reduce(or_, map(python_type, inner))
    if origin is tuple:
        return Sequence[python_type(inner[0])]
    if origin is dict:
        return Mapping[python_type(inner[0]), python_type(inner[1])]
    return annotation


def takes(*keywords: Keyword) -> Callable[[Callable], Callable]:
    """Give a function that ends in `**settings` these keywords, with their help.

    The function receives what was given, without None where that is the default. Its errors name
    keywords in the place of the keys of a recipe.
    """

    def decorate(function: Callable) -> Callable:
        of_function = signature(function)
        own = [p for p in of_function.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        by_place = [p for p in own if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
        by_name = [p for p in own if p.kind is Parameter.KEYWORD_ONLY]
        made = [*by_place, *(keyword.parameter for keyword in keywords), *by_name]
        made.sort(key=lambda parameter: parameter.kind)
        of_call = Signature(made, return_annotation=of_function.return_annotation)

        @wraps(function)
        def call(*arguments: Any, **given: Any) -> Any:
            bound = of_call.bind(*arguments, **given).arguments
            open_ones = {p.name for p in made if p.default is None}
            values = {n: v for n, v in bound.items() if v is not None or n not in open_ones}
            return function(**values)

        call.__signature__ = of_call
        call.__doc__ = with_meanings(function.__doc__, keywords)
        return in_python(call)

    return decorate


def with_meanings(text: str | None, keywords: Iterable[Keyword]) -> str:
    """Return a docstring with a row for each keyword at its end."""
    width = max(len(keyword.name) for keyword in keywords) + 2
    rows = [
        fill(
            keyword.meaning, 96, initial_indent=keyword.name.ljust(width),
            subsequent_indent=" " * width, break_on_hyphens=False,
        )
        for keyword in keywords
    ]  # fmt: skip
    return "\n".join([cleandoc(text or ""), "", *rows])


def warn_of(concerns: Iterable[str]) -> None:
    """Warn of what is doubtful about data, at the line that called this package."""
    caller, level, frame = 1, 1, sys._getframe()
    while frame is not None:  # decorators of other packages may stand between frames of this one
        level += 1
        if frame.f_globals.get("__name__", "").startswith("sampler."):
            caller = level
        frame = frame.f_back
    for text in concerns:
        warnings.warn(text, DataWarning, stacklevel=caller)


def in_python(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Give a function errors that name keywords in the place of the keys of a recipe."""

    @wraps(function)
    def call(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        try:
            return function(*arguments, **keywords)
        except InputError as problem:
            raise in_terms_of_python(problem, function.__name__) from None

    return refusing_others(call)


def refusing_others(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make a function say of a keyword that it does not have which one is meant."""
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
    """Return the remedy for a keyword that a function does not have."""
    text = f"{function} has no such keyword"
    close = get_close_matches(name, known, n=1, cutoff=0.75)
    if close:
        return f"{text}; did you mean {close[0]}?"
    modules = [module for module in sampler.CONTENTS if module.startswith("api.")]
    names = " ".join(sampler.CONTENTS[module] for module in modules).split()
    for other in (getattr(sampler, public) for public in names):
        if hasattr(other, "__wrapped__") and name in signature(other).parameters:
            return f"{text}; it is one of {other.__name__}"
    return f"{text}; known here: {', '.join(known)}"


def in_terms_of_python(problem: InputError, function: str) -> InputError:
    """Return the same error with keywords of a function in the place of the keys of a recipe."""
    subject = problem.subject
    if isinstance(subject, Setting) and not subject.key and isinstance(problem.value, Mapping):
        problem = problem.about(f"keywords of {function}")
    return problem.written(as_python)


def as_python(part: Part) -> str:
    """Write a part of a message for somebody who called a function."""
    if isinstance(part, Setting):
        renamed = part.section == "attention" and name_in_python(AttentionSection, part.key)
        return renamed or part.key or part.section
    return part.python if isinstance(part, Words) else str(part)


def plain_setting(value: Any) -> Any:
    """Return a value as TOML has it: paths as text, tuples and arrays as lists, plain numbers."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain_setting(item) for key, item in value.items()}
    return [plain_setting(item) for item in value] if isinstance(value, list | tuple) else value
