"""Tables that can be added to from outside the package: tasks, algorithms, figures and others."""

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from sampler.errors import InputError

Entry = TypeVar("Entry")

# Packages that name a module under this entry point are imported before a recipe is read.
ENTRY_POINT_GROUP = "attention_posterior"
# Registrations with their table, and the packages whose code was running.
REGISTERED: "list[tuple[Registry, str, set[str]]]" = []


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Named entries of one kind, in the order in which they were registered.

    An entry given as text, "module:name", is imported at its first use: a table may list objects of
    later modules, and its names need no import. `registry[name]` raises KeyError with the known
    names.
    """

    def __init__(self, kind: str, entries: Mapping[str, Entry | str] | None = None) -> None:
        self.kind = kind
        self._entries: dict[str, Entry | str] = dict(entries or {})

    def register(self, name: str, entry: Entry | str) -> Entry | str:
        """Add an entry and return it. Raises ValueError if the name is taken."""
        if name in self._entries:
            raise ValueError(f"{self.kind} {name!r} is registered already")
        self._entries[name] = entry
        REGISTERED.append((self, name, packages_at_work()))
        return entry

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            names = ", ".join(self._entries)
            raise KeyError(f"no {self.kind} {name!r}; there are {names}")
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._entries[name] = getattr(import_module(module), attribute)
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@cache
def load_plugins() -> None:
    """Import, once, the modules that installed packages name under the entry point.

    Raises InputError, naming the module and its package, if one cannot be imported.
    """
    for plugin in entry_points(group=ENTRY_POINT_GROUP):
        try:
            plugin.load()
        except Exception as problem:
            package = plugin.dist.name if plugin.dist else plugin.value
            raise InputError(
                f"plugin {plugin.name}",
                plugin.value,
                f"cannot be imported ({type(problem).__name__}: {problem}); "
                f"repair or uninstall the package {package}",
            ) from problem


def packages_at_work() -> set[str]:
    """The packages of all functions and modules that are being carried out."""
    packages, frame = set(), sys._getframe()
    while frame is not None:
        packages.add(str(frame.f_globals.get("__name__", "")).partition(".")[0])
        frame = frame.f_back
    return packages


def registered_by_scripts() -> list[tuple[str, str]]:
    """Kind and name of registrations without an entry point.

    Another process lacks it.
    """
    plugins = {each.module.partition(".")[0] for each in entry_points(group=ENTRY_POINT_GROUP)}
    return [
        (table.kind, name)
        for table, name, packages in REGISTERED
        if name in table and not packages & plugins
    ]
