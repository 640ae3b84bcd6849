"""The fields of a recipe by dotted key: which of them fix its draws, and which name files.

A checksum identifies data; a path gives their place. In a run directory paths are
relative to it, so that it can be moved with its data.
"""

from collections.abc import Callable
from typing import Any

from pydantic.fields import FieldInfo

from sampler.settings.section import Section
from sampler.settings.toml import flattened, take_out
from sampler.settings.types import Mark, RelativePath, marks_of


def fields_of(recipe: Section) -> dict[str, FieldInfo]:
    """The fields of the sections of a recipe by dotted key."""
    sections = {name: type(value) for name, value in recipe if isinstance(value, Section)}
    return {
        f"{name}.{key}": field
        for name, section in sections.items()
        for key, field in section.model_fields.items()
    }


def settings_that_fix_draws(recipe: Section) -> dict[str, Any]:
    """Return the settings, by dotted key and as JSON has them, that a resumed run must keep.

    Those that are declared with Mark.CHANGES_NO_DRAW are left out, the values of a sweep, and
    paths: the checksum identifies the file.
    """
    settings = recipe.model_dump(mode="json", exclude={"sweep"})
    fields = fields_of(recipe).items()
    for key in [key for key, field in fields if Mark.CHANGES_NO_DRAW in field.metadata]:
        take_out(settings, key)
    flat = flattened(settings)
    paths = [key for key, mark in path_marks(recipe).items() if mark.is_path(flat[key])]
    return {key: value for key, value in flat.items() if key not in paths}


def change_paths(
    settings: dict[str, Any], recipe: Section, change: Callable[[RelativePath, Any], Any]
) -> None:
    """Replace values of settings of a recipe that name files or folders, also where swept."""
    sweep = settings.get("sweep")
    for setting, mark in path_marks(recipe).items():
        name, _, key = setting.partition(".")
        table = settings.get(name, {})
        if key in table:
            table[key] = change(mark, table[key])
        if isinstance(sweep, dict) and setting in sweep:
            sweep[setting] = tuple(change(mark, value) for value in sweep[setting])


def path_marks(recipe: Section) -> dict[str, RelativePath]:
    """The marks of the settings that name files or folders, by dotted key."""
    return {
        key: mark
        for key, field in fields_of(recipe).items()
        for mark in marks_of(field.annotation, field.metadata)
        if isinstance(mark, RelativePath)
    }
