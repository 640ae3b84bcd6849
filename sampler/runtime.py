"""How JAX and NumPy compute here: threads, precision, random generators, and kinds of devices.

A processor works best on one chain or draw after another, with matrices that fit its caches; an
accelerator on many side by side.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.errors import InputError, Verbatim

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

# The random generator of all draws by JAX.
GENERATOR = "threefry2x32"
# Devices of any processor: so a recipe gives the same draws everywhere.
DEVICES = 2
# Devices that chains advance on at most, inside `at_most_devices`.
MOST_DEVICES: ContextVar[int | None] = ContextVar("MOST_DEVICES", default=None)
# The flag of XLA for the number of devices of a processor.
HOST_DEVICES = "xla_force_host_platform_device_count"
# How many threads OpenBLAS may start.
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
# Settings of JAX that change numbers, or refuse what libraries do, inside `jax_settings`: those
# that a thread has to itself, by the name of their context manager, and flags of the process.
USUAL = {
    "default_prng_impl": GENERATOR,
    "threefry_partitionable": True,
    "enable_custom_prng": False,
    "default_matmul_precision": None,
    "softmax_custom_jvp": False,
    "numpy_rank_promotion": "allow",
    "numpy_dtype_promotion": "standard",
    "legacy_prng_key": "allow",
    "transfer_guard": "allow",
    "array_garbage_collection_guard": "allow",
    "thread_guard": False,
    "disable_jit": False,
    "no_tracing": False,
    "no_execution": False,
    "enable_checks": False,
    "check_tracer_leaks": False,
    "debug_nans": False,
    "debug_infs": False,
    "debug_key_reuse": False,
}
FLAGS = {
    "jax_random_seed_offset": 0,
    "jax_high_dynamic_range_gumbel": False,
    "jax_error_checking_behavior_nan": "ignore",
    "jax_error_checking_behavior_oob": "ignore",
    "jax_error_checking_behavior_divide": "ignore",
}
# With which the environment asks for kinds of devices: the name today, and an older one.
PLATFORMS = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME")
# The memory maps of this process, and how many it may have.
MAPS, MOST_MAPS = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")


# Copies of OpenBLAS that were loaded before the environment could limit them.
LOADED_EARLY: "list[ThreadpoolController]" = []


class UsualProcess:
    """One thread for copies of OpenBLAS that were loaded early, and JAX's FLAGS, while inside.

    The threads of a process may be inside side by side: the last one restores the changes of the
    first one puts back.
    """

    def __init__(self) -> None:
        self.lock, self.inside, self.changes = threading.Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        import jax

        with self.lock:
            self.inside += 1
            if self.inside > 1:
                return
            for libraries in LOADED_EARLY:
                self.changes.enter_context(libraries.limit(limits=1))
            for name, value in FLAGS.items():
                before = getattr(jax.config, name, value)
                if before != value:
                    self.changes.callback(jax.config.update, name, before)
                    jax.config.update(name, value)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.changes.close()


USUAL_PROCESS = UsualProcess()


def use_one_blas_thread() -> None:
    """Factorise matrices on one thread unless the environment says otherwise.

    Threads of OpenBLAS, by which JAX factorises on CPUs, wait for each other and slow small
    factorisations down up to a hundredfold. OpenBLAS reads this when it is loaded: where NumPy came
    first, `jax_settings` limits its threads. Other libraries' threads are left alone.
    """
    if os.environ.get(BLAS_THREADS):
        return
    os.environ[BLAS_THREADS] = "1"
    if "numpy" in sys.modules:
        from threadpoolctl import ThreadpoolController  # only here: it takes a moment

        LOADED_EARLY.append(ThreadpoolController().select(internal_api="openblas"))


def prepare_process() -> None:
    """Set a process of this program up, before anything that computes or draws is imported.

    Matplotlib draws into files, whatever screen is asked for.
    """
    use_one_blas_thread()
    silence_compiler()
    os.environ["MPLBACKEND"] = "agg"


def silence_compiler() -> None:
    """Keep XLA's messages from the terminal: plans for several devices, and untrue errors.

    Other failures are raised as well. It reads this when JAX is imported.
    """
    # Not "1", which JAX itself sets when it is imported, for all processes started after.
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"


def divide_processor(devices: int) -> None:
    """Let chains advance on several devices of the processor, unless XLA_FLAGS says otherwise.

    JAX reads this when it first computes; the value stays for the process.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if HOST_DEVICES not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{HOST_DEVICES}={devices}".strip()


@contextmanager
def jax_settings(precision: str = "float64") -> Iterator[None]:
    """Let JAX compute in this precision while inside, and leave it as it was.

    Whatever the process has set, draws follow from the recipe alone, and JAX applies no stricter
    checks than the libraries that use it.

    Raises InputError where the environment asks JAX for an accelerator that is not there.
    """
    refuse_absent_platforms()
    free_memory_maps()
    import jax

    with USUAL_PROCESS, ExitStack() as stack:
        stack.enter_context(jax.enable_x64(precision == "float64"))
        for name, value in USUAL.items():
            if hasattr(jax, name):  # of this release
                stack.enter_context(getattr(jax, name)(value))
        yield


def free_memory_maps() -> None:
    """Drop what JAX compiled where that takes half of the memory maps of a process, or more.

    A program for a processor takes three maps for each of its kernels, up to a thousand in all.
    Linux grants some 65,000, and the first beyond them would end the process.
    """
    try:
        granted = int(MOST_MAPS.read_text())
        with MAPS.open("rb") as lines:
            taken = sum(1 for _ in lines)
    except (OSError, ValueError):  # not Linux
        return
    if taken > granted / 2 and "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


def prepare_devices(devices: int = DEVICES) -> None:
    """Divide the processor, then raise InputError for devices that do not exist.

    In this order: to look at devices begins JAX, and the value stays for the process.
    """
    divide_processor(devices)
    refuse_absent_platforms()


def refuse_absent_platforms() -> None:
    """Raise InputError where the environment asks JAX for devices that are not there."""
    asked = {name: os.environ[name] for name in PLATFORMS if os.environ.get(name)}
    try:
        if asked:
            import jax

            jax.devices()
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem) or "JAX finds none of these"
        remedy = f"name what this machine has, or unset it ({reason})"
        name, value = next(iter(asked.items()))
        raise InputError(name, value, remedy) from None


def refuse_masked(field: str, value: object) -> None:
    """Raise InputError for a masked array, or a list with one: masked values would count."""
    import numpy as np  # only here: threads are set before

    parts = value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        remedy = "give a plain array: fill masked values, or leave those examples out"
        raise InputError(field, Verbatim("(a masked array)"), remedy)


# --- kinds of devices


def on_accelerator() -> bool:
    """Whether arrays are on an accelerator."""
    import jax

    return jax.default_backend() != "cpu"


def batch_bytes() -> int:
    """Bytes of the matrices of a batch of log densities that are held at a time."""
    return 2**30 if on_accelerator() else 4 * 2**20


def side_by_side(most: int) -> int | None:
    """Number of draws made in one batch: at most `most`, or None, one after the other."""
    return most if on_accelerator() else None


def for_every_chain(of_one_chain, *by_chain):
    """The results for all chains, side by side or one after the other.

    Side by side, every step of a trajectory copies the trees of all chains, and the longest keeps
    all waiting: on a processor that costs several times more than the gradients of wide networks,
    and a batch of factorisations or triangular solves gains nothing there.
    """
    import jax

    if on_accelerator():
        return jax.vmap(of_one_chain)(*by_chain)
    return jax.lax.map(lambda arguments: of_one_chain(*arguments), by_chain)


@contextmanager
def at_most_devices(count: int | None) -> Iterator[None]:
    """Limit the devices of chains while inside; None: on all."""
    token = MOST_DEVICES.set(count)
    try:
        yield
    finally:
        MOST_DEVICES.reset(token)


def device_count() -> int:
    """Count the devices that chains may advance on."""
    import jax

    count = len(jax.devices())
    return min(count, MOST_DEVICES.get() or count)


def devices_for(chains: int) -> list:
    """As many devices as divide the chains evenly."""
    import jax

    most = device_count()
    return jax.devices()[: max(n for n in range(1, most + 1) if chains % n == 0)]
