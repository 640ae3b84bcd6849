"""Long work in steps: shown while it goes on, and ended early by Ctrl-C with what is done kept."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")
# (phase, steps that are done, steps in all)
Shown = Callable[[str, int, int], None]


def unseen(phase: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass
class WorkSteps:
    """WorkSteps of long work; after Ctrl-C in one of them no other one begins.

    ended  whether there was one
    """

    shown: Shown = unseen
    ended: bool = False

    def over(self, phase: str, items: Sequence[Item]) -> Iterator[tuple[int, Item]]:
        """Places and items, until the work was ended."""
        for place, item in enumerate(items):
            if self.ended:
                return
            self.shown(phase, place, len(items))
            yield place, item
        if not self.ended:
            self.shown(phase, len(items), len(items))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Inside, Ctrl-C ends this step and all work behind it, and nothing that was before."""
        try:
            yield
        except KeyboardInterrupt:
            self.ended = True
