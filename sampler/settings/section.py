"""The base of all sections: frozen settings, made from plain values, and errors on one line.

A setting is a field of a section: name, type, limits and default, with its meaning as docstring.
Recipe key, Python keyword, help, completion, reference and hash follow from the field.
"""

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from inspect import Parameter, Signature, cleandoc, signature
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from sampler.errors import ABSENT, InputError, input_error_in

TASK = "task"
# The sections of recipes by their place, but for those of tasks, of which there are many.
TABLES: dict[str, type["Section"]] = {}
Filled = TypeVar("Filled", bound="Section")


class Section(BaseModel):
    """A frozen group of settings, in which an unknown key is an error.

    What checks it is made at its first use: a recipe needs few of all sections.

    table  its place in a recipe, as in `network.mlp`; the recipe itself has none
    told   its description; its help has the meaning of every field as well
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
        parameters = [
            Parameter(key, Parameter.KEYWORD_ONLY, default=default_of(field))
            for key, field in cls.model_fields.items()
        ]
        if cls.__init__ is not Section.__init__:  # it has arguments of its own
            parameters = list(signature(cls.__init__).parameters.values())[1:]
        cls.__signature__ = Signature(parameters)
        if cls.table not in ("", TASK):
            TABLES.setdefault(cls.table, cls)

    if not TYPE_CHECKING:  # who reads source text sees the fields in its place

        def __init__(self, /, **settings: Any) -> None:
            given, error = plain(settings), None
            try:
                super().__init__(**given)
            except ValidationError as problem:
                error = error_of(type(self), problem, given)
            if error is not None:  # raised here, as its context would hold it: it can be pickled
                raise error

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """The given settings, in the order of the fields; their text makes the same section."""
        given = (key for key in type(self).model_fields if key in self.model_fields_set)
        return ((key, getattr(self, key)) for key in given)

    __str__ = BaseModel.__repr__

    def filled_in(self: Filled, defaults: Mapping[str, Any]) -> Filled:
        """The section with defaults for missing settings; they do not count as given."""
        filled = self.model_copy()
        open_keys = defaults.keys() - self.model_fields_set
        vars(filled).update({key: defaults[key] for key in open_keys})
        return filled


def plain(value: Any) -> Any:
    """Return a value as TOML has it: paths as text, tuples and arrays as lists, plain numbers.

    A key whose value is None is left out.
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def default_of(field: FieldInfo) -> Any:
    """Return the default of a field, as a signature has it."""
    required = field.is_required()
    return Parameter.empty if required else field.get_default(call_default_factory=True)


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
# Remedies by pydantic's name for the problem, where its own words are not those of TOML.
REMEDIES = {
    "missing": REQUIRED,
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "use true or false",
    "string_type": 'must be text, as in "name"',
    "string_pattern_mismatch": "use letters, digits, '.', '_' and '-' only, none of the last "
    "three in front",
    "tuple_type": LIST,
    "list_type": LIST,
    "dict_type": TABLE,
    "model_type": TABLE,
}


def error_of(
    section: type[Section], problem: ValidationError, settings: Mapping[str, Any]
) -> InputError:
    """Return the InputError of the first problem that pydantic reports of these settings.

    Of a missing key and one that is misspelt in its place it is the latter; of a value that fits
    no member of a union what is wrong innermost.
    """
    original = input_error_in(problem)
    if original is not None:
        return original
    errors = [(*locate(error, settings), error) for error in problem.errors()]
    first, _, _ = errors[0]
    unknown = {key: value for key, value, error in errors if error["type"] == "extra_forbidden"}
    misspelt = get_close_matches(first, unknown, n=1, cutoff=LIKE)
    if misspelt:
        field = name_of(section, misspelt[0])
        return InputError(field, unknown[misspelt[0]], remedy_for_unknown(section, field))
    of_first = (each for each in errors if each[0].startswith(first))
    key, value, error = max(of_first, key=lambda each: len(each[2]["loc"]))
    words = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return InputError(name_of(section, key), value, REMEDIES.get(error["type"], words))


def name_of(section: type[Section], key: str) -> str:
    """Return the dotted name of a key of a section."""
    return ".".join(filter(None, (section.table, key))) or "recipe"


def locate(error: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[str, Any]:
    """Key and value of an error of pydantic, whose names of unions are left out."""
    key, value = "", settings
    for step in error["loc"]:
        if isinstance(step, int) and isinstance(value, list) and step < len(value):
            key, value = f"{key}[{step}]", value[step]
            continue
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif error["type"] == "missing" and step == error["loc"][-1]:
            value = ABSENT
        else:
            continue
        key = f"{key}.{step}" if key else str(step)
    return key, value


def remedy_for_unknown(section: type[Section], field: str) -> str:
    """Suggest the setting meant by an unknown key, or list all settings."""
    table, _, name = field.rpartition(".")
    tables = TABLES | {section.table: section}
    known = [name_of(of, key) for of in tables.values() for key in of.model_fields]
    beside = [key for key in known if key.rpartition(".")[0] == table]
    meant = get_close_matches(field, beside, n=1, cutoff=LIKE)
    meant = meant or [key for key in known if key.rpartition(".")[2] == name]
    if meant:
        return f"this key is unknown; did you mean {meant[0]}?"
    names = ", ".join(sorted(key.rpartition(".")[2] for key in beside))
    return f"this key is unknown; {f'known here: {names}' if names else 'remove it'}"
