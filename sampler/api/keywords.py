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

from sampler.errors import DataWarning, InputError, Option, Part, Setting, Words, as_recipe
from sampler.settings.task_sections import AttentionSection, TaskSection
from sampler.settings.types import InPython, Mark, RelativePath, Section, meaning

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Keyword:
    """A setting as a keyword of a function.

    default  `Parameter.empty` where the setting is required
    """

    name: str
    type: Any
    default: Any
    meaning: str

    @property
    def parameter(self) -> Parameter:
        """The parameter of a signature; what is required may be given by its place."""
        required = self.default is Parameter.empty
        kind = Parameter.POSITIONAL_OR_KEYWORD if required else Parameter.KEYWORD_ONLY
        return Parameter(self.name, kind, default=self.default, annotation=self.type)


# --- from the fields of a section


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
        keywords.append(Keyword(name_of(section, key), accepted, default, meaning(section, key)))
    return keywords


def keywords_of_task(section: type[TaskSection]) -> list[Keyword]:
    """Return the keywords of a task: of its heads, where the choice is open, and of its data."""
    if not section.head_kinds:
        return keywords_of(section)
    kinds = ", ".join(f'"{kind}"' for kind in section.head_kinds)
    of_heads = []
    for key in AttentionSection.model_fields:
        (keyword,) = keywords_of(AttentionSection, key)
        default = section.attention_defaults.get(key, keyword.default)
        text = keyword.meaning
        if key == "heads":
            text = f"{text.removesuffix('.')}: {kinds}."
        if key != "lag" or "lag" in section.head_kinds:
            of_heads.append(replace(keyword, default=default, meaning=text))
    return of_heads + keywords_of(section)


def name_of(section: type[Section], key: str) -> str:
    """Return the keyword of a setting: its key, unless another name is declared."""
    marks = section.model_fields[key].metadata if key in section.model_fields else ()
    return next((mark.name for mark in marks if isinstance(mark, InPython) and mark.name), key)


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


# --- a function of Python


def as_python(part: Part) -> str:
    """Write a part of a message for somebody who called a function."""
    if isinstance(part, Setting):
        renamed = part.section == "attention" and name_of(AttentionSection, part.key)
        return renamed or part.key or part.section
    if isinstance(part, Option):
        return part.name
    return part.python if isinstance(part, Words) else str(part)


def with_keys(part: Part) -> str:
    """Write a part of a message for somebody who called a function with a recipe."""
    return part.name if isinstance(part, Option) else as_recipe(part)


def takes(
    *keywords: Keyword, write: Callable[[Part], str] = as_python
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Give a function these keywords, with their help, and errors in terms of a call.

    write  how errors name settings

    A function with keywords ends in `**settings`, and receives what was given, without None where
    that is the default.
    """
    optional = {keyword.name for keyword in keywords if keyword.default is None}

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        accepted = signature_with(function, keywords)
        kinds = {each.kind: each.name for each in accepted.parameters.values()}
        further = kinds.get(Parameter.VAR_KEYWORD)

        @wraps(function)
        def call(*arguments: Arguments.args, **given: Arguments.kwargs) -> Result:
            if further is None:
                refuse_unknown(function.__qualname__, accepted.parameters, given)
            values = dict(accepted.bind(*arguments, **given).arguments)
            values |= values.pop(further, {})
            values = {n: v for n, v in values.items() if v is not None or n not in optional}
            try:
                return function(**values)
            except InputError as problem:
                raise problem.written(write) from None

        if keywords:
            call.__signature__ = accepted
            call.__doc__ = with_meanings(function.__doc__, keywords)
        return call

    return decorate


def signature_with(function: Callable, keywords: Sequence[Keyword]) -> Signature:
    """Return the signature of a function with these keywords in the place of `**settings`."""
    of_function = signature(function)
    parameters = list(of_function.parameters.values())
    if keywords:
        parameters = [each for each in parameters if each.kind is not Parameter.VAR_KEYWORD]
    place = sum(each.kind is Parameter.POSITIONAL_OR_KEYWORD for each in parameters)
    parameters[place:place] = [keyword.parameter for keyword in keywords]
    return of_function.replace(parameters=sorted(parameters, key=lambda each: each.kind))


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


def refuse_unknown(function: str, keywords: Iterable[str], given: Mapping[str, Any]) -> None:
    """Raise InputError for a keyword that a function does not have, with the one that is meant."""
    for name in [name for name in given if name not in keywords]:
        close = get_close_matches(name, keywords, n=1, cutoff=0.75)
        meant = f"did you mean {close[0]}?" if close else f"known here: {', '.join(keywords)}"
        function = function.removesuffix(".__init__")
        raise InputError(name, given[name], f"{function} has no such keyword; {meant}")


# --- values and warnings


def plain_setting(value: Any) -> Any:
    """Return a value as TOML has it: paths as text, tuples and arrays as lists, plain numbers."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain_setting(item) for key, item in value.items()}
    return [plain_setting(item) for item in value] if isinstance(value, list | tuple) else value


def warn_of(concerns: Iterable[str], category: type[Warning] = DataWarning) -> None:
    """Warn of what is doubtful about data or results, at the line that called this package."""
    caller, level, frame = 1, 1, sys._getframe()
    while frame is not None:  # decorators of other packages may stand between frames of this one
        level += 1
        if frame.f_globals.get("__name__", "").startswith("sampler."):
            caller = level
        frame = frame.f_back
    for text in concerns:
        warnings.warn(text, category, stacklevel=caller)
