"""Directive `recipe-section`: the keys of a section of the recipe, read from its class.

Types, limits and defaults are those that validate a recipe; texts are those of the class and of its
fields.
"""

import json
import re
from importlib import import_module
from inspect import getdoc

from docstrings import ROW
from pages import Written, table
from pydantic import BaseModel

from sampler.attention.variants import VARIANTS
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.settings.section import meaning
from sampler.settings.types import RelativePath, marks_of

NUMBERS = {"integer": "whole number", "number": "number"}
PLURALS = {"number": "numbers", "list of": "lists of", "text": "texts"}
LIMITS = {
    "minimum": "≥\N{NO-BREAK SPACE}{}",
    "exclusiveMinimum": ">\N{NO-BREAK SPACE}{}",
    "maximum": "≤\N{NO-BREAK SPACE}{}",
    "exclusiveMaximum": "<\N{NO-BREAK SPACE}{}",
    "multipleOf": "a multiple of {}",
}


def words(schema: dict) -> str:
    """Describe in words, from its JSON schema, what a value may be."""
    if "const" in schema or "enum" in schema:
        return ", ".join(code(value) for value in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        parts = [words(part) for part in schema["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(parts))
    kind = schema.get("type")
    if kind in NUMBERS:
        limits = [text.format(number(schema[key])) for key, text in LIMITS.items() if key in schema]
        return f"{NUMBERS[kind]} {' and '.join(limits)}".strip()
    if kind == "boolean":
        return "`true` or `false`"
    if kind == "array":
        if "prefixItems" in schema:
            return f"list of {len(schema['prefixItems'])} {plural(words(schema['prefixItems'][0]))}"
        return f"list of {plural(words(schema.get('items', {})))}"
    if kind == "object":
        return f"table of {plural(words(schema.get('additionalProperties', {})))}"
    return "text" if kind == "string" else "any"


def code(value: object) -> str:
    return f"`{json.dumps(value, default=list)}`"


def number(value: float) -> str:
    return {2**32: "2³²", 10**9: "10⁹"}.get(value, f"{value:g}")


def plural(text: str) -> str:
    """Return the plural of such a description; a list of lists is one of lists."""
    return re.sub("|".join(PLURALS), lambda found: PLURALS[found[0]], text, count=1)


def accepted(name: str, schema: dict, field) -> str:
    """Describe the values that a key accepts, by its checks if any, else by its type."""
    if any(isinstance(mark, RelativePath) for mark in marks_of(field.annotation, field.metadata)):
        return f"{words(schema)}; a path is relative to the recipe"
    if name == "algorithm":
        return ", ".join(map(code, ["auto", *ALGORITHMS]))
    checks = [getattr(check, "func", None) for check in field.metadata]
    texts = [check.__doc__.split("\n")[0] for check in checks if check and check.__doc__]
    said = [text.removeprefix("Accept ").rstrip(".") for text in texts if "Accept " in text]
    return "; ".join(said) or words(schema)


def default(name: str, field) -> str:
    """Write the value of a key that a recipe leaves out."""
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    return "set by the task" if (name, value) == ("heads", ()) else code(value)


def rows(section: type[BaseModel]) -> list[list[str]]:
    """List a row for each key: accepted values, default and meaning."""
    schema = section.model_json_schema()["properties"]
    return [
        [
            f"`{name}`",
            accepted(name, schema[name], field),
            default(name, field),
            meaning(section, name),
        ]
        for name, field in section.model_fields.items()
        if name != "kind"
    ]


def described(section: type[BaseModel]) -> list[str]:
    """Return the docstring of a class as lines of Markdown, tables of names as lists."""
    lines = (getattr(section, "told", None) or getdoc(section)).split("\n")
    return ["", *(re.sub(f"^{ROW.pattern}", r"* `\1` ", line) for line in lines), ""]


def keys(section: type[BaseModel]) -> list[str]:
    """Write the table of the keys of a section."""
    found = rows(section)
    if not found:
        return ["", "No keys of its own.", ""]
    return table(["key", "value", "default", "meaning"], found)


class RecipeSection(Written):
    """One section of the recipe: `module:Class` and the title."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list:
        place, title = self.arguments[0].split(maxsplit=1)
        module, _, name = place.partition(":")
        section = getattr(import_module(module), name)
        return [self.section(title, described(section) + keys(section))]


class AttentionVariants(Written):
    """Every attention variant that is registered, with its settings."""

    def run(self) -> list:
        return [
            self.section(f'kind = "{name}"', described(VARIANTS[name]) + keys(VARIANTS[name]))
            for name in VARIANTS
        ]


def setup(app) -> dict:
    app.add_directive("recipe-section", RecipeSection)
    app.add_directive("attention-variants", AttentionVariants)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
