"""Threads, precision and random streams of the program."""

import ctypes
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# Here a factorisation takes threads that run the program, and waits for them: `warn_of_deadlock`.
DEADLOCKING_JAXLIB = ("0.10.", "0.11.0")
# These call every function that they read from a cache of compiled functions compiled for another
# machine, because two preferences of the compiler are no features of any processor.
COMPLAINING_JAXLIB = ("0.9.",)
HOST_DEVICES = "xla_force_host_platform_device_count"


def use_one_blas_thread() -> None:
    """Factorise matrices on one thread unless the environment says otherwise.

    OpenBLAS, which does JAX's factorisations on CPUs, else starts a thread per core whose waiting
    makes small factorisations up to a hundred times slower on a machine that is not idle. It reads
    this when it is loaded, so it is set before anything numerical is imported.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def silence_compiler() -> None:
    """Keep XLA's warnings from the terminal, which say nothing to users.

    It warns of its own plans for each function that is compiled for several devices, and some
    releases report an untrue error of up to two kilobytes for each function read from a cache of
    compiled ones, a hundred in a run. What XLA really fails at is raised as well. It reads this
    when JAX is imported, so it is set before.
    """
    # Not "1", which JAX itself sets when it is imported, for all processes started after.
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
        cached = os.environ.get("JAX_COMPILATION_CACHE_DIR")
        untrue = cached and version("jaxlib").startswith(COMPLAINING_JAXLIB)
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3" if untrue else "2"


def return_free_memory() -> None:
    """Give memory that nothing uses back to the system, where the C library can.

    Compilers and many small arrays leave it scattered: glibc then keeps hundreds of megabytes.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def divide_processor() -> None:
    """Let chains advance on two devices of the processor, unless XLA_FLAGS says otherwise.

    Two whatever the machine, so that a recipe gives the same draws on any. JAX reads this when it
    starts. Not for processes that share the machine with others of the same job.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if HOST_DEVICES not in flags and not version("jaxlib").startswith(DEADLOCKING_JAXLIB):
        os.environ["XLA_FLAGS"] = f"{flags} --{HOST_DEVICES}=2".strip()


def use_float64() -> None:
    """Let JAX compute in float64, and warn of a jaxlib that may not end."""
    import jax

    warn_of_deadlock()
    jax.config.update("jax_enable_x64", True)


@contextmanager
def float64() -> Iterator[None]:
    """Let JAX compute in float64 while inside, and leave it as it was."""
    import jax

    warn_of_deadlock()
    with jax.enable_x64(True):
        yield


def warn_of_deadlock() -> None:
    """Warn where the installed jaxlib can wait for itself without end.

    In these releases as many batched factorisations or triangular solves as there are threads, run
    at once by one compiled function, each wait for a thread that none of them gives back.
    """
    installed = version("jaxlib")
    if installed.startswith(DEADLOCKING_JAXLIB):
        warnings.warn(
            f"jaxlib {installed} can hang on processors: "
            "pip install 'jax!=0.10.*,!=0.11.0' 'jaxlib!=0.10.*,!=0.11.0'",
            RuntimeWarning,
            stacklevel=2,
        )


def stream(seed: int, *key: int) -> "np.random.Generator":
    """The random generator of this seed and this key, independent of that of any other key."""
    import numpy as np  # only here: the command line starts without it

    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
