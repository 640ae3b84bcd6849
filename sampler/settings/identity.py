"""What a recipe is called and known by, wherever its project lies: name, hash, text, and paths.

What data are is said by their checksum; a path says where they are. In a run directory paths are
relative to it, so that it can be moved with its data.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import model_validator

from sampler.settings.section import Section, plain
from sampler.settings.toml import flattened, take_out, toml_text
from sampler.settings.types import Mark, Name, RelativePath, marks_of

# Name of a section → its class; None where it has none, or for an unknown kind of task.
Sections = Mapping[str, type[Section] | None]


class NamedRecipe(Section):
    """Base of the recipes of every command: a name, a hash, and a text."""

    name: Name = "python"
    """What the directory of its results begins with; a file has to name its recipe."""

    @model_validator(mode="after")
    def settings_go_together(self) -> "NamedRecipe":
        """Raise InputError for settings that do not."""
        self.refuse_conflicts()
        return self

    def refuse_conflicts(self) -> None:
        """Raise InputError for settings that do not go together."""
        raise NotImplementedError

    def given(self) -> dict[str, Any]:
        """The settings that were given, as nested tables: all others follow from them."""
        return plain(self.model_dump(exclude_unset=True))

    @property
    def sections(self) -> Sections:
        """The class of every section."""
        return {name: type(value) for name, value in self if isinstance(value, Section)}

    @property
    def hash8(self) -> str:
        """Eight hexadecimal digits of all settings that differ from the defaults.

        A new key with a default therefore changes no hash. Of a path only its last part counts: the
        hash is the same wherever a project lies. Of a sweep the keys count, not their values: it
        may grow; nor does how far a run goes at most.
        """
        departures = self.model_dump(mode="json", exclude_defaults=True) | {"name": self.name}
        self.leave_out_what_changes(departures)
        departures = {key: value for key, value in departures.items() if value != {}}
        change_paths(departures, self.sections, RelativePath.name)
        text = json.dumps(departures, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def to_toml(self, folder: Path | None = None) -> str:
        """The resolved recipe, every default written out; it reads as an equal recipe.

        folder  of its file, to which paths are then relative
        """
        settings = self.model_dump()
        for key in self.left_open:
            take_out(settings, key)
        if folder is not None:
            shorten = partial(RelativePath.relative, folder=folder)
            change_paths(settings, self.sections, shorten)
        return toml_text({key: value for key, value in settings.items() if value != {}})

    @property
    def left_open(self) -> tuple[str, ...]:
        """Keys of a sweep that each of its points fills in by its other settings."""
        return ()

    def leave_out_what_changes(self, settings: dict[str, Any]) -> None:
        """Remove from settings what may change between a command and the one that goes on with it.

        That is how far a run goes at most; of a sweep the values of its keys.
        """
        for name, section in self.sections.items():
            for key, field in section.model_fields.items():
                if Mark.CAN_BE_RAISED in field.metadata:
                    take_out(settings, f"{name}.{key}")
        swept = settings.get("sweep") or ()
        for key in (*swept, *self.left_open):
            take_out(settings, key)
        if swept:
            settings["sweep"] = list(swept)

    def without_paths(self) -> dict[str, Any]:
        """The settings by section; of a path only that there is one."""
        settings = self.model_dump()
        change_paths(settings, self.sections, lambda mark, value: mark.is_path(value) or value)
        return settings


def settings_that_fix_draws(recipe: NamedRecipe) -> dict[str, Any]:
    """Return the settings, by dotted key and as JSON has them, that a resumed run must keep.

    Those that are declared with Mark.CHANGES_NO_DRAW are left out, and paths: what lies there is
    told by its checksum.
    """
    settings, marks = recipe.model_dump(mode="json"), path_marks(recipe.sections)
    for name, section in (("", type(recipe)), *recipe.sections.items()):
        table = settings[name] if name else settings
        for key, field in section.model_fields.items():
            mark = marks.get(f"{name}.{key}")
            is_path = mark is not None and mark.is_path(table[key])
            if Mark.CHANGES_NO_DRAW in field.metadata or is_path:
                del table[key]
    return flattened(settings)


# --- paths among settings


def make_paths_absolute(settings: dict[str, Any], folder: Path, sections: Sections) -> None:
    """Make the paths among settings, which are relative to the folder, absolute; in sweeps too."""
    change_paths(settings, sections, partial(RelativePath.absolute, folder=folder))


def change_paths(
    settings: dict[str, Any], sections: Sections, change: Callable[[RelativePath, Any], Any]
) -> None:
    """Replace values of settings that name files or folders, also where they are swept."""
    sweep = settings.get("sweep")
    for setting, mark in path_marks(sections).items():
        name, _, key = setting.partition(".")
        table = settings.get(name)
        if isinstance(table, dict) and key in table:
            table[key] = change(mark, table[key])
        values = sweep.get(setting) if isinstance(sweep, dict) else None
        if isinstance(values, list | tuple):
            sweep[setting] = [change(mark, value) for value in values]


def path_marks(sections: Sections) -> dict[str, RelativePath]:
    """The marks of the settings that name files or folders, by dotted key."""
    return {
        f"{name}.{key}": mark
        for name, section in sections.items()
        for key, field in (section.model_fields.items() if section else ())
        for mark in marks_of(field.annotation, field.metadata)
        if isinstance(mark, RelativePath)
    }
