"""Compiled programs kept between runs, so that the next one need not compile them again.

JAX stores and finds them; this says where. Programs are kept in the user's cache directory unless
ATTENTION_POSTERIOR_CACHE names another one, or is "off"; where JAX_COMPILATION_CACHE_DIR is set,
JAX is left to decide. Every kind of processor, number of its cores, version and compiler flag has a
folder of its own, as each of them may change the code that is made. A program is the same whether
it was compiled or read, so no number depends on the cache.
"""

import hashlib
import os
import platform
import shutil
import sys
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from sampler.numerics import usable_cores

SETTING, OFF = "ATTENTION_POSTERIOR_CACHE", "off"
OF_JAX = "JAX_COMPILATION_CACHE_DIR"
# A run compiles one to three megabytes.
MOST_BYTES = 256 * 2**20
# Folders of machines, versions and flags that were not used for so long are given up.
MOST_DAYS = 60
ENTRY, USED = "-cache", "-atime"
LOCK = ".lockfile"
SECONDS_FOR_LOCK = 5.0
CONFIGURATION = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    "jax_compilation_cache_max_size": MOST_BYTES,
}


def keep_programs() -> Path | None:
    """Keep compiled programs from now on; return where, None where they are not kept.

    They are not where the user's settings say so, and where the directory cannot be written.
    """
    if OF_JAX in os.environ:
        return Path(os.environ[OF_JAX])
    root = programs_directory()
    if root is None:
        return None
    folder = root / machine_key()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_incomplete(folder)
        remove_unused(root, folder)
    except (OSError, TimeoutError, NotImplementedError):  # the last: no locks there
        return None
    # For this process, whether or not JAX was imported before, and for those it starts.
    found = {"jax_compilation_cache_dir": str(folder), **CONFIGURATION}
    os.environ |= {name.upper(): str(value) for name, value in found.items()}
    if "jax" in sys.modules:
        for name, value in found.items():
            sys.modules["jax"].config.update(name, value)
    # An entry that cannot be read or written costs a compilation, nothing else.
    warnings.filterwarnings("ignore", message=".*persistent compilation cache")
    return folder


def programs_directory() -> Path | None:
    """Return the directory of kept programs of all machines; None where none are kept."""
    from platformdirs import user_cache_path

    asked = os.environ.get(SETTING, "")
    if asked.strip().lower() in (OFF, "0", "false", "no"):
        return None
    return (
        Path(asked).expanduser() if asked else user_cache_path("attention-posterior") / "programs"
    )


def machine_key() -> str:
    """Return a name for what compiled code depends on beside the program itself."""
    parts = [
        platform.system(), *processor(), str(usable_cores()), version("jax"), version("jaxlib"),
        os.environ.get("XLA_FLAGS", ""),
    ]  # fmt: skip
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def processor() -> list[str]:
    """Return the kind of processor and the instructions that it has, as far as known."""
    try:
        first_core = Path("/proc/cpuinfo").read_text(errors="replace").partition("\n\n")[0]
    except OSError:  # not Linux; there the name takes a process of its own
        return [platform.machine(), platform.processor()]
    pairs = (line.partition(":") for line in first_core.splitlines())
    known = ("model name", "flags", "Features", "CPU part")
    return [platform.machine(), *(v.strip() for name, _, v in pairs if name.strip() in known)]


def remove_incomplete(folder: Path) -> None:
    """Remove entries whose writer was stopped: JAX writes the time of use after the entry.

    Raises TimeoutError where the lock cannot be had.
    """
    from filelock import FileLock

    with FileLock(folder / LOCK).acquire(timeout=SECONDS_FOR_LOCK):
        for entry in folder.glob(f"*{ENTRY}"):
            if not entry.with_name(entry.name.removesuffix(ENTRY) + USED).is_file():
                entry.unlink(missing_ok=True)
        os.utime(folder)


def remove_unused(root: Path, used: Path) -> None:
    """Remove folders of programs that nobody has used for a long time."""
    for folder in root.iterdir():
        old = time.time() - folder.stat().st_mtime > MOST_DAYS * 86400
        if old and folder != used and (folder / LOCK).is_file():
            shutil.rmtree(folder, ignore_errors=True)


def entries(root: Path) -> Iterator[Path]:
    yield from root.glob(f"*/*{ENTRY}")


def programs_text() -> str:
    """Say where programs are kept, how many there are and what they take."""
    if OF_JAX in os.environ:
        return f"compiled programs are kept by JAX: {OF_JAX} = {os.environ[OF_JAX]}"
    root = programs_directory()
    if root is None:
        return f"compiled programs are not kept: {SETTING} = {os.environ[SETTING]}"
    sizes = [entry.stat().st_size for entry in entries(root)]
    held = f"{len(sizes)} compiled programs, {sum(sizes) / 2**20:.1f} MiB"
    return f"{held} in {root} (at most {MOST_BYTES / 2**20:.0f} MiB for each machine and version)"


def clear_programs() -> str:
    """Remove all kept programs, and say how many."""
    root = programs_directory()
    count = 0 if root is None else sum(1 for _ in entries(root))
    for lock in root.glob(f"*/{LOCK}") if root is not None else ():
        shutil.rmtree(lock.parent, ignore_errors=True)
    return f"{count} compiled programs removed"
