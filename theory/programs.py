"""Compiled functions that give up the programs used least recently.

A program that XLA compiled for a processor stays in memory as three mappings for each of its
kernels, a few up to a thousand in all, and Linux grants a process 65,530. A process that meets data
of ever new sizes would be ended by the first mapping beyond them. So every function here is
compiled by `program`, which counts the mappings of its programs and gives up old ones. Functions
that others compiled are left alone. In a fork of a process that computed, they raise.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar

import jax
from jax._src import xla_bridge  # whether JAX computed is no public question
from jax.core import Tracer

MAPPINGS, MOST_MAPPINGS = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
# The rest is for libraries, threads, and what the user compiles.
SHARE = 0.1
# Where the system does not say: of 60 mappings each, what Linux would be granted.
MOST_UNCOUNTED, UNCOUNTED = 65_530, 60


class _Kept:
    """One function compiled for arguments of one kind, and the mappings of its programs."""

    def __init__(self, function: Callable) -> None:
        self.function = function
        self.mappings = 0


class program:
    """Compile a function with `jax.jit`, once for arguments of equal shapes.

    static_argnames  of arguments that are constants of the program, as in `jax.jit`

    Of all functions compiled by this, the programs used least recently are given up where their
    mappings exceed a tenth of those that the system grants. `compilations` counts how often
    this function was compiled.
    """

    _lock = RLock()
    # By function and kind of arguments, the one used least recently first.
    _kept: ClassVar[OrderedDict[Any, _Kept]] = OrderedDict()

    def __init__(self, function: Callable, static_argnames: str | Sequence[str] = ()) -> None:
        update_wrapper(self, function)
        self._compile = partial(jax.jit, static_argnames=static_argnames)
        self._plain = self._compile(function)
        self.compilations = 0

    @classmethod
    def of(cls, **settings: Any) -> Callable[[Callable], "program"]:
        """Return the decorator with these settings."""
        return partial(cls, **settings)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        refuse_fork()
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((arguments, keywords))):
            return self._plain(*arguments, **keywords)  # part of another program
        key, kept = self._kept_for(arguments, keywords)
        known = kept.function._cache_size()
        before = 0 if known else mappings()
        result = kept.function(*arguments, **keywords)
        found = kept.function._cache_size()
        if found > known:
            self.compilations += found - known
            if known:  # for other constants
                kept.mappings = kept.mappings * found // known
            else:
                kept.mappings = max(0, mappings() - before) if before else UNCOUNTED
            self._give_up(key)
        return result

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else partial(self, instance)

    def eval_shape(self, *arguments: Any, **keywords: Any) -> Any:
        """Shapes of the result, without compiling; a call traces nothing again."""
        return self._kept_for(arguments, keywords)[1].function.eval_shape(*arguments, **keywords)

    def clear_cache(self) -> None:
        """Give up every program of this function."""
        with self._lock:
            for key in [key for key in self._kept if key[0] is self]:
                self._kept.pop(key).function.clear_cache()

    def _kept_for(self, arguments: Any, keywords: Any) -> tuple[Any, _Kept]:
        """The entry for arguments of this kind, now the one used last."""
        leaves, structure = jax.tree.flatten((arguments, keywords))
        key = self, jax.config.jax_enable_x64, structure, *map(_kind, leaves)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = _Kept(self._compile(_copy_of(self.__wrapped__)))
            self._kept.move_to_end(key)
            return key, self._kept[key]

    @classmethod
    def _give_up(cls, newest: Any) -> None:
        """Drop what was used least recently, until the rest has few enough mappings."""
        most = SHARE * most_mappings()
        with cls._lock:
            total = sum(kept.mappings for kept in cls._kept.values())
            while total > most and (oldest := next(iter(cls._kept))) != newest:
                dropped = cls._kept.pop(oldest)
                dropped.function.clear_cache()
                total -= dropped.mappings


# The process that computed with JAX and of which this one is a fork.
_forked_from: int | None = None


def _note_fork() -> None:
    global _forked_from
    if xla_bridge.backends_are_initialized():
        _forked_from = os.getppid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def refuse_fork() -> None:
    """Raise RuntimeError in a process forked from one that had computed with JAX.

    The threads of JAX are not there, and it would wait for them forever.
    """
    if _forked_from is not None:
        raise RuntimeError(
            f"this process is a fork of process {_forked_from}, which had computed with JAX, and "
            'cannot compute; start processes with multiprocessing.get_context("spawn") instead, '
            "or fork before anything is computed"
        )


def mappings() -> int:
    """Count the mappings in memory of this process, zero where the system does not say."""
    try:
        with MAPPINGS.open("rb") as lines:
            return sum(1 for _ in lines)
    except OSError:
        return 0


def most_mappings() -> int:
    try:
        return int(MOST_MAPPINGS.read_text())
    except (OSError, ValueError):
        return MOST_UNCOUNTED


def _kind(leaf: Any) -> Any:
    """What decides, of an argument, which program it is for; too little costs nothing but time."""
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        return leaf.shape, leaf.dtype
    if isinstance(leaf, bool | int | float | complex):
        return type(leaf)
    try:
        hash(leaf)
    except TypeError:
        return type(leaf)
    return leaf


def _copy_of(function: Callable) -> Callable:
    """A function of its own, so that JAX keeps nothing of it once it is dropped."""

    def copy(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    return update_wrapper(copy, function)
