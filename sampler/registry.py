"""Tables that can be added to from outside the package: tasks, algorithms, figures and others."""

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Generic, TypeVar

Entry = TypeVar("Entry")

# Packages that name a module under this entry point are imported before a recipe is read.
ENTRY_POINT_GROUP = "attention_posterior"


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Named entries of one kind, in the order in which they were registered.

    `registry[name]` raises KeyError with the names that there are.
    """

    def __init__(self, kind: str, entries: Mapping[str, Entry] | None = None) -> None:
        self.kind = kind
        self._entries: dict[str, Entry] = dict(entries or {})

    def register(self, name: str, entry: Entry) -> Entry:
        """Add an entry and return it. Raises ValueError if the name is taken."""
        if name in self._entries:
            raise ValueError(f"{self.kind} {name!r} is registered already")
        self._entries[name] = entry
        return entry

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            known = ", ".join(self._entries)
            raise KeyError(f"no {self.kind} {name!r}; there are {known}")
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def load_plugins() -> None:
    """Import the modules that installed packages name under the entry point of this program."""
    for plugin in entry_points(group=ENTRY_POINT_GROUP):
        plugin.load()
