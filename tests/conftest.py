"""Test-wide settings: 64-bit numbers, checked annotations, and the published reference problem."""

import gc
import importlib
import os
import signal
import sys
from pathlib import Path

# One BLAS thread, as the command line sets it: before anything numerical is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Most of the time is compilation: what one test has compiled serves all others, in the other
# workers, in the commands they start, and in the next run of the tests. `make clean` removes it.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(_ROOT, ".pytest_cache", "compiled")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
# Runs save what they have after every chunk, in the processes that they start, too.
os.environ.setdefault("ATTENTION_POSTERIOR_SAVE_SECONDS", "0")
# Programs need not say from which lines they come: writing that down is a tenth of making them.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

import jaxtyping
import numpy as np
import pytest

# Every annotation of the two packages is checked during the tests. The hook must be in place
# before either package is imported for the first time.
_HOOK = jaxtyping.install_import_hook(["theory", "sampler"], "beartype.beartype")

# The hook looks for compiled files under names of its own, also for the libraries that a module of
# ours imports first: it would compile all of pandas and SciPy anew. So they are imported before.
# JAX and NumPyro come before ArviZ, which would leave them behind unloaded.
LIBRARIES = ("jax", "numpyro.infer", "arviz_stats", "hypothesis", "matplotlib.figure", "optax",
             "pydantic", "rich.progress", "scipy.optimize", "scipy.stats", "xarray")  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Most tests draw too little for diagnostics to pass; those of the warning ask for it."""
    config.addinivalue_line("filterwarnings", "ignore::sampler.errors.ReliabilityWarning")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import the libraries where tests are run: not in the process that only hands them out."""
    hands_out = session.config.getoption("numprocesses", None)
    if hands_out and not hasattr(session.config, "workerinput"):
        return
    for library in LIBRARIES:
        importlib.import_module(library)
    sys.modules["jax"].config.update("jax_enable_x64", True)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Libraries and tests stay to the end: they are not searched for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="module", autouse=True)
def few_memory_maps():
    """What earlier files compiled is dropped before it takes too many memory maps."""
    importlib.import_module("sampler.runtime").free_memory_maps()


@pytest.fixture
def rng() -> np.random.Generator:
    """A random generator with a fixed seed, new for every test."""
    return np.random.default_rng(20240515)


@pytest.fixture
def interruptible():
    """Signals as in a terminal, also where the tests were started in the background or by nohup."""
    default = dict.fromkeys((signal.SIGHUP, signal.SIGQUIT), signal.SIG_DFL)
    default[signal.SIGINT] = signal.default_int_handler
    before = {each: signal.signal(each, handler) for each, handler in default.items()}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.fixture
def undrawn():
    """Figures whose picture no test looks at are files of one point."""
    from tests.commands import without_drawing

    with without_drawing():
        yield


@pytest.fixture
def without_annotation_checks():
    """Annotations as users have them, unchecked: for tests of the messages that users see."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory) -> Path:
    """The recipe of the shortest runs."""
    from tests.commands import TINY

    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def run_of_six_draws(recipe_file, tmp_path_factory) -> Path:
    """The directory of a finished run of six draws, made once for all modules."""
    from tests.commands import FEW_DRAWS, in_process, made_once, settings, without_drawing

    def make(folder: Path) -> int:
        with without_drawing():
            return in_process("run", recipe_file, "--out", folder / "run", *settings(*FEW_DRAWS))

    return made_once(tmp_path_factory, "run_of_six_draws", make)[0] / "run"


@pytest.fixture(scope="session")
def reference() -> dict[str, np.ndarray]:
    """The published four-path problem with every tenth of its test examples."""
    from tests.problems import load_reference

    return load_reference()
