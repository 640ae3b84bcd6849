"""The directive `recipe-section`: the keys of a section of the recipe, read off its class.

Types, limits and defaults are those that validate a recipe; the text is that of the class.
"""

import json
from importlib import import_module

from pages import Written, table
from pydantic import BaseModel

from sampler.attention.variants import VARIANTS

NUMBERS = {"integer": "whole number", "number": "number"}
LIMITS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "multipleOf": "a multiple of {}",
}


def words(schema: dict) -> str:
    """What a value may be, in words, from its JSON schema."""
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{json.dumps(v)}`" for v in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        parts = [words(part) for part in schema["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(parts))
    kind = schema.get("type")
    if kind in NUMBERS:
        limits = [
            text.format(f"{schema[key]:g}" if abs(schema[key]) < 1e6 else schema[key])
            for key, text in LIMITS.items()
            if key in schema
        ]
        return " ".join([NUMBERS[kind], " and ".join(limits)]).strip()
    if kind == "boolean":
        return "`true` or `false`"
    if kind == "array":
        if "prefixItems" in schema:
            return f"list of {len(schema['prefixItems'])}: {words(schema['prefixItems'][0])}"
        return f"list of ({words(schema.get('items', {}))})"
    if kind == "object":
        return f"table: {words(schema.get('additionalProperties', {}))}"
    return "text" if kind == "string" else "any"


def accepted(schema: dict, field) -> str:
    """The words of the checks that a value passes, where there are some; else those of its type."""
    checks = [getattr(check, "func", None) for check in field.metadata]
    texts = [check.__doc__.split("\n")[0] for check in checks if check and check.__doc__]
    said = [
        text.removeprefix("Accept ").rstrip(".") for text in texts if text.startswith("Accept ")
    ]
    return "; ".join(said) or words(schema)


def default(field) -> str:
    """The value of a key that a recipe leaves out."""
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    return f"`{json.dumps(value, default=list)}`"


def rows(section: type[BaseModel]) -> list[list[str]]:
    """One row per key: key, what it may be, default and, where the class says it, the meaning."""
    schema = section.model_json_schema()["properties"]
    return [
        [f"`{name}`", accepted(schema[name], field), default(field), field.description or ""]
        for name, field in section.model_fields.items()
    ]


def described(section: type[BaseModel]) -> list[str]:
    """The docstring of a class: paragraphs as they are, tables of names as lists."""
    lines = (section.__doc__ or "").split("\n")
    return ["", *(line.strip() for line in lines), ""]


def keys(section: type[BaseModel]) -> list[str]:
    """The table of a section, without a column that is empty."""
    found = [row for row in rows(section) if row[0] != "`kind`"]
    if not found:
        return ["", "No keys of its own.", ""]
    head = ["key", "value", "default", "meaning"]
    if not any(row[-1] for row in found):
        head, found = head[:-1], [row[:-1] for row in found]
    return table(head, found)


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
