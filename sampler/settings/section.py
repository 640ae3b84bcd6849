"""The base of all sections: frozen settings, made from plain values, and errors on one line.

A setting is a field of a section: name, type, limits and default, with its meaning as docstring.
Recipe key, Python keyword, help, completion, reference and hash follow from the field.
"""

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from inspect import Parameter, Signature, cleandoc, signature
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from sampler.errors import ABSENT, InputError, input_error_in

TASK = "task"


class Section(BaseModel):
    """A frozen group of settings, in which an unknown key is an error.

    What checks it is made at its first use: a recipe needs few of all sections.

    table  its place in a recipe, as in `network.mlp`; the recipe itself has none
    told   what is said of it; its help has the meaning of every field as well
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True,
        use_attribute_docstrings=True,
    )  # fmt: skip
    table: ClassVar[str] = ""
    told: ClassVar[str] = ""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Give the class help and signature of its fields, before anything checks them."""
        cls.told = cleandoc(cls.__doc__ or "")
        rows = [f"{key}\n{indent(fill(meaning(cls, key), 92), '    ')}" for key in cls.model_fields]
        cls.__doc__ = "\n\n".join([cls.told, *rows])
        parameters = [parameter_of(key, field) for key, field in cls.model_fields.items()]
        if cls.__init__ is not Section.__init__:  # it has arguments of its own
            _, *parameters = signature(cls.__init__).parameters.values()
        cls.__signature__ = Signature(parameters)

    if not TYPE_CHECKING:  # who reads source text sees the fields in its place

        def __init__(self, /, **settings: Any) -> None:
            given = plain(settings)
            try:
                super().__init__(**given)
            except ValidationError as problem:
                raise error_of(type(self), problem, given) from None


def plain(value: Any) -> Any:
    """Return a value as TOML has it: paths as text, tuples and arrays as lists, plain numbers."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def parameter_of(key: str, field: FieldInfo) -> Parameter:
    """Return a field as a keyword of its section."""
    default = field.get_default(call_default_factory=True)
    default = Parameter.empty if field.is_required() else default
    return Parameter(key, Parameter.KEYWORD_ONLY, default=default, annotation=field.annotation)


def section_in(annotation: Any) -> type[Section] | None:
    """Return the class of a table within a section, None for any other setting."""
    members = (annotation, *get_args(annotation))
    return next((m for m in members if isinstance(m, type) and issubclass(m, Section)), None)


def meaning(section: type[BaseModel], key: str) -> str:
    """Return the docstring of a field on one line, where it has none that of the base's field."""
    fields = (getattr(base, "model_fields", {}).get(key) for base in section.__mro__)
    return " ".join(next((f.description for f in fields if f and f.description), "").split())


def dump_setting(value: Any) -> Any:
    """Return a setting as a recipe has it."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    return [dump_setting(item) for item in value] if isinstance(value, list | tuple) else value


# --- what pydantic refuses, as one line

# How like a known key another one must be, to be meant as that.
LIKE = 0.7
REQUIRED = "this key is required; give it a value"
TABLE = "must be a table of keys and values"
LIST = "must be a list, as in [1, 2]"
# Remedies by pydantic's name for the problem; {…} are taken from pydantic's own context.
REMEDIES = {
    "missing": REQUIRED,
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
    "tuple_type": LIST,
    "list_type": LIST,
    "dict_type": TABLE,
    "model_type": TABLE,
    "model_attributes_type": TABLE,
    "too_short": "must have at least {min_length} entry",
}


def error_of(
    section: type[Section], problem: ValidationError, settings: Mapping[str, Any]
) -> InputError:
    """Return the InputError of the first problem that pydantic reports of these settings.

    Of a missing key and one that is misspelt in its place it is the latter.
    """
    original = input_error_in(problem)
    if original is not None:
        return original
    errors = problem.errors()
    *inner, missing = errors[0]["loc"] or ("",)
    unknown = {
        each["loc"][-1]: each
        for each in errors
        if each["type"] == "extra_forbidden" and [*each["loc"][:-1]] == inner
    }
    misspelt = get_close_matches(str(missing), unknown, n=1, cutoff=LIKE)
    error = unknown[misspelt[0]] if misspelt else errors[0]
    kind, context = error["type"], error.get("ctx", {})
    key, value = locate(error["loc"], settings, kind)
    field = ".".join(filter(None, (section.table, key))) or "recipe"
    if kind == "extra_forbidden":
        return InputError(field, value, remedy_for_unknown(section, field))
    remedy = REMEDIES.get(kind)
    if remedy is None:
        return InputError(field, value, str(context.get("error") or error["msg"]))
    return InputError(field, value, remedy.format(**context))


def locate(
    location: tuple[int | str, ...], settings: Mapping[str, Any], kind: str
) -> tuple[str, Any]:
    """Key and value of pydantic's location, whose names of unions are left out."""
    key, value = "", settings
    for step in location:
        if isinstance(step, int) and isinstance(value, list | tuple) and step < len(value):
            key, value = f"{key}[{step}]", value[step]
            continue
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif kind == "missing" and step == location[-1]:
            value = ABSENT
        else:
            continue
        key = f"{key}.{step}" if key else str(step)
    return key, value


def remedy_for_unknown(section: type[Section], field: str) -> str:
    """Say which setting is meant by a key that a section does not have, or all that it has."""
    every = [*keys_of(section), *(key for other in others(section) for key in keys_of(other))]
    same_depth = [key for key in every if key.count(".") == field.count(".")]
    table, _, name = field.rpartition(".")
    beside = [key for key in same_depth if key.rpartition(".")[0] == table]
    close = get_close_matches(field, beside, n=1, cutoff=LIKE)
    close = close or [key for key in every if key.rpartition(".")[2] == name]
    close = close or get_close_matches(field, same_depth, n=1, cutoff=LIKE)
    if close:
        return f"this key is unknown; did you mean {close[0]}?"
    names = ", ".join(sorted(key.rpartition(".")[2] for key in beside))
    return f"this key is unknown; {f'known here: {names}' if names else 'remove it'}"


def keys_of(section: type[Section]) -> Iterator[str]:
    """Yield the dotted keys of a section."""
    table = f"{section.table}." if section.table else ""
    yield from (f"{table}{key}" for key in section.model_fields)


def others(section: type[Section], base: type[Section] = Section) -> Iterator[type[Section]]:
    """Yield the other sections of recipes that are imported, without those of other tasks."""
    for other in base.__subclasses__():
        if other.table not in ("", TASK, section.table):
            yield other
        yield from others(section, other)
