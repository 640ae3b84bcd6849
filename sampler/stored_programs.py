"""Programs of JAX that are stored traced and lowered, so that the next run need do neither.

JAX's own cache of compiled programs saves compiling a function, but not the seconds in which Python
traces and lowers it to learn which program that is. A function that is decorated by
`stored_program` is exported at its first call with arguments of some shapes, and the exported
program is what is executed, then and in every later run: all of them have the same bits.

A program serves again only where all that it follows from is the same: the source of this package,
versions of libraries, static arguments, shapes and types of arrays, settings of JAX, and devices.
Arguments with classes of other packages, whose source may change, are compiled by `jax.jit`.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export
from jax.core import Tracer

from sampler.compiled import PROGRAMS, processor_key

# Packages whose classes an argument may have, and libraries whose versions a program depends on.
OWN, LIBRARIES = ("sampler", "theory"), ("jax", "jaxlib", "numpyro", "numpy")
# Settings of JAX that a program depends on.
SETTINGS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_default_matmul_precision",
    "jax_use_shardy_partitioner",
)
SUFFIX, UNFINISHED = ".program", ".part"
# Bytes of all stored programs: the oldest go where they are more.
MOST_BYTES = 64 * 2**20
# What reading, exporting or storing a program may fail with: it is then compiled as usual.
FAILURES = (ValueError, TypeError, NotImplementedError, ImportError, OSError, RuntimeError)


def stored_program(
    *static: str, like: Mapping[int, str] | None = None
) -> Callable[[Callable], Callable]:
    """Compile a function as `jax.jit` does, and store its lowered form.

    static  names of the arguments that are no arrays; all arguments are given by position
    like    results that are built as an argument is, by their place in the tuple of results. All
            others are arrays, none of them random keys, in dictionaries, tuples and lists

    `programs()` counts those that were made in this process.
    """
    alike = dict(like or {})

    def decorate(function: Callable) -> Callable:
        compiled: Any = jax.jit(function, static_argnames=static)
        names = list(signature(function).parameters)
        made: dict[tuple, Callable | None] = {}

        @wraps(function)
        def call(*arguments: Any):
            folder = os.environ.get(PROGRAMS)
            given = dict(zip(names, arguments, strict=True))
            fixed = {name: given.pop(name) for name in static}
            leaves, tree = jax.tree.flatten(given)
            if not folder or any(isinstance(leaf, Tracer) for leaf in leaves):
                return compiled(*arguments)
            key = (folder, tuple(fixed.values()), tree, *map(shape_of, leaves), settings())
            if key not in made:
                made[key] = make(function, fixed, given, alike, Path(folder))
            if made[key] is None:
                return compiled(*arguments)
            results = made[key](list(map(plain, leaves)))
            return rebuilt(results, {place: given[name] for place, name in alike.items()})

        counted: Any = call
        counted.programs = lambda: compiled._cache_size() + len(made)
        return counted

    return decorate


def make(
    function: Callable,
    fixed: Mapping[str, Any],
    given: Mapping[str, Any],
    alike: Mapping[int, str],
    folder: Path,
) -> Callable | None:
    """The program of a function for arguments of these shapes; None where it cannot be stored."""
    if not is_own((fixed, given)):
        return None
    leaves, tree = jax.tree.flatten(given)
    random = [is_key(leaf) for leaf in leaves]

    def flat(data: Sequence):
        wrapped = [
            jax.random.wrap_key_data(d) if k else d for d, k in zip(data, random, strict=True)
        ]
        results = function(**fixed, **jax.tree.unflatten(tree, wrapped))
        if not alike:
            return results
        return tuple(
            list(map(plain, jax.tree.leaves(result))) if place in alike else result
            for place, result in enumerate(results)
        )

    what = function.__module__, function.__qualname__, repr(fixed), str(tree)
    shapes = map(repr, map(shape_of, leaves))
    name = hashlib.sha256("\n".join([*what, *shapes, settings(), sources()]).encode()).hexdigest()
    path, data = folder / f"{name}{SUFFIX}", list(map(plain, leaves))
    if " at 0x" in "".join(what):  # the address of something, which says nothing of it
        return None
    try:
        load_routines()
        exported = read(path)
        if exported is None:
            exported = export.export(jax.jit(flat))(data)
            write(path, bytes(exported.serialize()))
        return jax.jit(exported.call).lower(data).compile()
    except FAILURES:
        return None


@cache
def load_routines() -> None:
    """Load LAPACK's routines, which JAX loads when a call of one is lowered.

    A stored program is lowered already: it would call missing code, and end the process.
    """
    jax.jit(jax.numpy.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), np.float32))


def rebuilt(results: Any, alike: Mapping[int, Any]) -> Any:
    """The results of a program, those that are like an argument built as it is."""
    if not alike:
        return results
    whole = list(results)
    for place, argument in alike.items():
        leaves, tree = jax.tree.flatten(argument)
        pairs = zip(whole[place], leaves, strict=True)
        keyed = (jax.random.wrap_key_data(data) if is_key(leaf) else data for data, leaf in pairs)
        whole[place] = jax.tree.unflatten(tree, keyed)
    return tuple(whole)


# --- determinants of a program


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a random key, or an array of them."""
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def plain(leaf: Any) -> Any:
    """A random key as its data; anything else as it is."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def shape_of(leaf: Any) -> tuple:
    """Shape and type of an argument, and where it is."""
    if not hasattr(leaf, "dtype"):
        return (type(leaf).__name__,)
    weak, where = getattr(leaf, "weak_type", False), getattr(leaf, "sharding", None)
    spec = getattr(where, "spec", None)
    return leaf.shape, str(leaf.dtype), bool(weak), str(spec)


def is_own(value: Any) -> bool:
    """Whether a value is made of classes of this package, of Python and of JAX alone."""
    if is_dataclass(value) and not isinstance(value, type):
        own = type(value).__module__.partition(".")[0] in OWN
        return own and all(is_own(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Mapping):
        return all(map(is_own, value.values()))
    if isinstance(value, tuple | list):
        return all(map(is_own, value))
    plainly = (int, float, str, type(None), np.ndarray, np.generic, jax.Array, jax.sharding.Mesh)
    return isinstance(value, plainly)


def settings() -> str:
    """Settings of JAX and devices, in words."""
    of_jax = [str(getattr(jax.config, name, None)) for name in SETTINGS]
    return " ".join([*of_jax, jax.default_backend(), str(jax.device_count())])


@cache
def sources() -> str:
    """Checksum of the source of this package, with versions of libraries and the processor."""
    total = hashlib.sha256(processor_key().encode())
    for library in LIBRARIES:
        total.update(f"{library} {version(library)}\n".encode())
    root = Path(__file__).parents[1]
    for package in OWN:
        for path in sorted((root / package).rglob("*.py")):
            total.update(str(path.relative_to(root)).encode())
            total.update(path.read_bytes())
    return total.hexdigest()


# --- files: a checksum, then the program


def read(path: Path) -> export.Exported | None:
    """The program in a file; None where there is none, or a damaged one."""
    try:
        content = path.read_bytes()
        os.utime(path)  # what was used last goes last
    except OSError:
        return None
    size = hashlib.sha256().digest_size
    if hashlib.sha256(content[size:]).digest() != content[:size]:
        return None
    return export.deserialize(bytearray(content[size:]))


def write(path: Path, program: bytes) -> None:
    """Store a program, and remove the oldest where all of them are too large."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.stem}-{secrets.token_hex(4)}{UNFINISHED}")
    try:
        temporary.write_bytes(hashlib.sha256(program).digest() + program)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    entries = [(entry.stat(), entry) for entry in path.parent.glob(f"*{SUFFIX}")]
    size = sum(stat.st_size for stat, _ in entries)
    for stat, entry in sorted(entries, key=lambda pair: pair[0].st_mtime):
        if size <= MOST_BYTES:
            break
        entry.unlink(missing_ok=True)
        size -= stat.st_size
