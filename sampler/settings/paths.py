"""Paths among the settings of a recipe: where they stand, where they lead, how they are shown.

What data are is said by their checksum; a path is where they were seen last. In a run directory
paths are relative to it, so that it can be moved with its data, and a table of the recipe there
says where each led when it was written, for where it is moved alone.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from sampler.settings.types import RelativePath, Section, marks_of

# The table of a recipe in a run directory: path as it is written there → where it led.
SEEN = "seen"
Sections = Mapping[str, type[Section] | None]


def make_paths_absolute(settings: dict[str, Any], folder: Path, sections: Sections) -> None:
    """Make the paths among settings, which are relative to the folder, absolute; in sweeps too.

    One that leads nowhere is where it was seen last.
    """
    table = settings.pop(SEEN, None)
    seen = table if isinstance(table, dict) else {}

    def found(mark: RelativePath, value: Any) -> Any:
        here = mark.absolute(value, folder)
        is_lost = mark.is_path(value) and value in seen and not Path(here).exists()
        return str(seen[value]) if is_lost else here

    change_paths(settings, sections, found)


def make_paths_relative(
    settings: dict[str, Any], folder: Path, sections: Sections
) -> dict[str, str]:
    """Make absolute paths among settings relative to the folder, and return where each leads."""
    seen: dict[str, str] = {}

    def shorten(mark: RelativePath, value: Any) -> Any:
        shown = mark.relative(value, folder)
        if shown != value:
            seen[shown] = value
        return shown

    change_paths(settings, sections, shorten)
    return seen


def change_paths(
    settings: dict[str, Any], sections: Sections, change: Callable[[RelativePath, Any], Any]
) -> None:
    """Replace values of settings that name files or folders, also where they are swept."""
    sweep = settings.get("sweep")
    for name, section in sections.items():
        for key, field in section.model_fields.items() if section else ():
            mark = path_mark(field)
            if mark is None:
                continue
            table = settings.get(name)
            if isinstance(table, dict) and key in table:
                table[key] = change(mark, table[key])
            values = sweep.get(f"{name}.{key}") if isinstance(sweep, dict) else None
            if isinstance(values, list | tuple):
                sweep[f"{name}.{key}"] = [change(mark, value) for value in values]


def path_mark(field: FieldInfo) -> RelativePath | None:
    """Return the mark of a setting that names files or folders; None for any other."""
    marks = marks_of(field.annotation, field.metadata)
    return next((mark for mark in marks if isinstance(mark, RelativePath)), None)
