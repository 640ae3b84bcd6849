"""The folder in which JAX keeps compiled programs, so that the next run need not compile them.

ATTENTION_POSTERIOR_CACHE names it, and where that is empty none are kept; by default it is in the
user's cache directory. Where JAX_COMPILATION_CACHE_DIR is set, JAX is left to decide.
"""

import hashlib
import os
import platform
import warnings
from pathlib import Path

SETTING, OF_JAX = "ATTENTION_POSTERIOR_CACHE", "JAX_COMPILATION_CACHE_DIR"
# Where programs are stored that are traced and lowered (`sampler.stored_programs`), here and in the
# processes that are started.
PROGRAMS = "ATTENTION_POSTERIOR_PROGRAMS"
ENTRY, USED = "-cache", "-atime"
SECONDS_FOR_LOCK = 5.0
CONFIGURATION = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "JAX_COMPILATION_CACHE_MAX_SIZE": str(256 * 2**20),
}


def cache_programs() -> Path | None:
    """Keep compiled programs from now on; return where, None where they are not kept."""
    asked = os.environ.get(SETTING)
    if OF_JAX in os.environ or asked == "":
        return None
    try:
        folder = (Path(asked).expanduser() if asked else default_folder()) / processor_key()
        folder.mkdir(parents=True, exist_ok=True)
        remove_incomplete(folder)
    # The last two: no locks there, and nobody has a home.
    except (OSError, TimeoutError, NotImplementedError, RuntimeError):
        return None
    # JAX reads this when it is imported, here and in the processes that are started.
    os.environ |= {OF_JAX: str(folder), PROGRAMS: str(folder / "exported"), **CONFIGURATION}
    # An entry that cannot be read or written costs a compilation, nothing else.
    warnings.filterwarnings("ignore", message=".*persistent compilation cache")
    return folder


def default_folder() -> Path:
    """Return where the user's programs are kept; RuntimeError where the user has no home."""
    from platformdirs import user_cache_path

    home = os.environ["HOME"] if "HOME" in os.environ else os.path.expanduser("~")
    if not os.path.isabs(home) and "XDG_CACHE_HOME" not in os.environ:
        raise RuntimeError("there is no home")
    return user_cache_path("attention-posterior") / "programs"


def processor_key() -> str:
    """Return a name for the processor and its number of cores, which JAX's own keys leave out.

    Code for another processor may give other bits, or instructions that this one lacks.
    """
    try:
        first_core = Path("/proc/cpuinfo").read_text(errors="replace").partition("\n\n")[0]
    except OSError:  # not Linux
        first_core = f"flags: {platform.processor()}"
    pairs = (line.partition(":") for line in first_core.splitlines())
    shown = ("model name", "flags", "Features", "CPU part")
    kind = [value.strip() for name, _, value in pairs if name.strip() in shown]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = "\n".join([platform.system(), platform.machine(), *kind, str(cores)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def remove_incomplete(folder: Path) -> None:
    """Remove entries whose writer was stopped: JAX writes the time of use after the entry.

    Raises TimeoutError where the lock cannot be had.
    """
    from filelock import FileLock

    with FileLock(folder / ".lockfile").acquire(timeout=SECONDS_FOR_LOCK):
        for entry in folder.glob(f"*{ENTRY}"):
            if not entry.with_name(entry.name.removesuffix(ENTRY) + USED).is_file():
                entry.unlink(missing_ok=True)
