"""What the environment asks of libraries and they cannot do: refused in one line, or done without.

Matplotlib needs a folder of its own though only files are drawn, and XLA ends the process where it
does not understand its flags.
"""

import os
import re
import sys
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from sampler.errors import InputError, one_line

# --- Matplotlib, which reads this when it is imported

OF_MATPLOTLIB = "MPLCONFIGDIR"


def draw_into_files() -> None:
    """Let Matplotlib draw into files, whatever screen is asked for, also where nobody has a home.

    Where it could not keep its list of fonts, this process has a folder for it.
    """
    os.environ["MPLBACKEND"] = "agg"
    if os.environ.get(OF_MATPLOTLIB) or keeps_files_at_home():
        return
    import atexit  # here and below only where they are needed: --help is instant
    import shutil
    import tempfile

    with suppress(OSError):
        folder = os.environ[OF_MATPLOTLIB] = tempfile.mkdtemp(prefix="matplotlib-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def keeps_files_at_home() -> bool:
    """Whether this process may keep settings and caches where users have them."""
    home = home_folder()
    places = [
        os.environ.get(name) or (home and os.path.join(home, below))
        for name, below in (("XDG_CONFIG_HOME", ".config"), ("XDG_CACHE_HOME", ".cache"))
    ]
    return all(place and is_writable(Path(place)) for place in places)


def home_folder() -> str | None:
    """The home of the user; None where there is none, or none that is the same everywhere."""
    home = os.environ["HOME"] if "HOME" in os.environ else os.path.expanduser("~")
    return home if os.path.isabs(home) else None


def is_writable(folder: Path) -> bool:
    """Whether a folder can be written, or made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


# --- XLA

# The flag that says how many devices a processor is.
HOST_DEVICES = "xla_force_host_platform_device_count"
# Values that every flag takes which has such a value at all.
PLAIN_FLAG = re.compile(r"--(\w+)(?:=(?:true|false|\d+))?")
# What XLA writes in front of its last words.
PREFIX = re.compile(r"^F\d+ .*?\] ", re.MULTILINE)
PROBE = "import jax; jax.devices()"
SECONDS_FOR_PROBE = 120.0


def refuse_compiler_flags() -> None:
    """Raise InputError where XLA_FLAGS has what XLA would end this process for."""
    flags = os.environ.get("XLA_FLAGS", "")
    reason = reason_against(flags) if flags else None
    if reason is not None:
        raise InputError("XLA_FLAGS", flags, f"correct or unset it ({reason})")


@cache
def reason_against(flags: str) -> str | None:
    """Return why XLA does not take these flags; None where it does.

    Names that its library holds, with a plain value, are known; of all else a process of its own is
    asked.
    """
    import subprocess

    plain = [PLAIN_FLAG.fullmatch(word) for word in flags.split()]
    if all(plain) and in_library({flag[1] for flag in plain} - {HOST_DEVICES}):
        return None
    words = [sys.executable, "-c", PROBE]
    only_here = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    try:
        asked = subprocess.run(
            words, env=only_here, capture_output=True, text=True, errors="replace",
            timeout=SECONDS_FOR_PROBE,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if asked.returncode == 0:
        return None
    last_words = PREFIX.search(asked.stderr)
    text = asked.stderr[last_words.end() :] if last_words else "XLA does not take a value"
    return one_line(text.strip().partition("\n")[0])


def in_library(names: set[str]) -> bool:
    """Whether the library of compiled code that is installed holds all of these names."""
    import mmap

    if not names:
        return True
    package = find_spec("jaxlib")
    folder = Path(package.origin).parent if package is not None and package.origin else Path()
    libraries = [*folder.glob("*.so"), *folder.glob("*.dylib")]
    if not libraries:
        return False
    largest = max(libraries, key=lambda path: path.stat().st_size)
    with (
        largest.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return all(content.find(b"\0" + name.encode() + b"\0") >= 0 for name in names)
