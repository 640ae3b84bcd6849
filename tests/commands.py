"""Runs the program as its users do, here or in a process of its own, and compares results."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from sampler.cli import main
from sampler.data.make import build_task
from sampler.data.markov_chain import MarkovChain
from sampler.data.task import Task
from sampler.jobs.interruption import Interruption
from sampler.settings.recipe import Recipe, load_recipe
from tests import ROOT

# A network of a few weights; sections may be appended.
SMALLEST = """
name = "tiny"
[task]
kind = "markov_chain"
examples_train = 6
examples_test = 10
tokens = 4
features = 6
[attention]
heads = [["good", "uniform"], ["uniform"]]
[network]
widths = 3
[posterior]
temperature = 1.0
"""
TINY = f"""{SMALLEST}
[theory]
starts = 1
[sampler]
"""
# The same with two chains of a few steps.
TINY_SAMPLED = f"""{TINY}
chains = 2
warmup = 4
draws = 6
algorithm = "hmc"
leapfrog_steps = 3
"""
# TINY as arguments of `sampler.Recipe`.
TINY_IN_PYTHON = {
    "name": "tiny",
    "task": MarkovChain(examples_train=6, examples_test=10, tokens=4, features=6),
    "attention": {"heads": [["good", "uniform"], ["uniform"]]},
    "network": {"widths": 3},
    "posterior": {"temperature": 1.0},
    "theory": {"starts": 1},
}
# A recipe key, and what makes the chains so fast that tests do not wait for them.
FEW_DRAWS = (
    "sampler.warmup=4",
    "sampler.draws=6",
    "sampler.algorithm=hmc",
    "sampler.leapfrog_steps=3",
)

# The smallest pictures there are.
POINTS = {
    ".svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>',
    ".png": bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
        "0000000a49444154789c63f80f0001010100b138f6140000000049454e44ae426082"
    ),
}


def loader(folder: Path, text: str) -> Callable[..., tuple[Recipe, Task]]:
    """A function from settings to the recipe of this text with them, and its data."""
    file = folder / "tiny.toml"
    file.write_text(text)

    def loaded(*settings: str) -> tuple[Recipe, Task]:
        recipe = load_recipe(file, settings)
        return recipe, build_task(recipe)

    return loaded


def in_process(*arguments) -> int:
    """Run a command in this process: its exit code."""
    return main([str(argument) for argument in arguments])


@contextlib.contextmanager
def without_drawing() -> Iterator[None]:
    """Figures are composed, and their files have names and one point each.

    Arranging and drawing them takes half of the time of a short run; tests of figures and of
    reports draw them.
    """

    def save(figure: Figure, path, **_) -> None:
        Path(path).write_bytes(POINTS[Path(path).suffix])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        yield


# The same in a process of its own: what `start` and `command` take as `before`.
UNDRAWN = (
    "from tests.commands import without_drawing; undrawn = without_drawing(); undrawn.__enter__()"
)


def made_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]
) -> tuple[Path, Any]:
    """A folder that `make` fills once in a test session, and what it returned (as JSON).

    The first worker that asks makes it, others wait for it. Each has a copy of its own: what tests
    change there is seen by no other worker.
    """
    mine = tmp_path_factory.getbasetemp()
    shared = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine
    folder, record = shared / f"{name}-made-once", shared / f"{name}.json"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            record.write_text(json.dumps(make(folder)), encoding="utf-8")
    copy = tmp_path_factory.mktemp(name) / "copy"
    shutil.copytree(folder, copy)
    return copy, json.loads(record.read_text(encoding="utf-8"))


def settings(*overrides) -> list[str]:
    """Overrides as the command line takes them."""
    return [word for override in overrides for word in ("--set", override)]


# Beginnings of the places at which a work can be left: chains, trainings, particles, examples.
PLACES = ("warmup", "draws", "training", "pilot", "particles", "the pass")


class AfterChunks(Interruption):
    """A signal that arrives while the n-th chunk of a work is computed."""

    def __init__(self, chunks: int) -> None:
        super().__init__()
        self._left = chunks

    def leave_if_asked(self, where: str, save: Callable[[], object] = lambda: None) -> None:
        self._left -= where.startswith(PLACES)
        if self._left == 0:
            self.ask(signal.SIGTERM)
        super().leave_if_asked(where, save)


def environment(cache: Path | None) -> dict[str, str]:
    """Variables of a process; compiled functions are kept in `cache` and used again."""
    variables = {**os.environ, "JAX_PLATFORMS": "cpu"}
    if cache is not None:
        variables |= {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        }
    return variables


class Command(subprocess.Popen):
    """A command of the program whose stderr is read all the while.

    A full pipe would stop it for ever, and a file would count against a limit on its files.
    """

    def __init__(self, words: list[str], stdout=subprocess.DEVNULL, **options):
        super().__init__(words, stdout=stdout, stderr=subprocess.PIPE, text=True, **options)
        self._written = ""
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self.stderr:
            self._written = self.stderr.read()

    def complaints(self) -> str:
        """Everything an ended command has written to stderr."""
        self._reader.join()
        return self._written


def start(*arguments, cache: Path | None = None, before: str = "", **options) -> Command:
    """Start a command of the program, after the Python statements `before` in its process.

    They take the place of `preexec_fn`, which would fork this process with all its threads.
    """
    program = f"{before}\nfrom sampler.__main__ import console; console()"
    how = ["-c", program] if before else ["-m", "sampler"]
    return Command(
        [sys.executable, *how, *map(str, arguments)],
        env=environment(cache),
        cwd=ROOT,
        **options,
    )


def finish(process: Command, timeout: float = 300.0) -> tuple[int, str]:
    """Exit code and everything written to stderr."""
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        errors = process.complaints()
        raise AssertionError(f"no end after {timeout} s: {errors[-2000:]}") from None
    return process.returncode, process.complaints()


def command(*arguments, cache: Path | None = None, **options) -> tuple[int, str]:
    """Run a command to its end: exit code and stderr."""
    return finish(start(*arguments, cache=cache, **options))


def printed_without_jax(program: str) -> str:
    """What Python statements print in a process of their own, which may not import JAX."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nassert 'jax' not in sys.modules"],
        cwd=ROOT, env=environment(None), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def stored_arrays(directory: Path) -> dict[str, np.ndarray]:
    """Every number of the theory and of the draws in a run directory."""
    found = {}
    if (directory / "theory.nc").is_file():
        table = xr.load_dataset(directory / "theory.nc", engine="h5netcdf")
        found |= {f"theory/{name}": values.values for name, values in table.items()}
    if (directory / "draws.nc").is_file():
        with xr.open_datatree(directory / "draws.nc", engine="h5netcdf") as tree:
            for group in tree.children:
                table = tree[group].to_dataset().load()
                found |= {f"{group}/{name}": values.values for name, values in table.items()}
    return found


def write_sweep(
    directory: Path,
    rows: Sequence[Mapping],
    numbers: Mapping[str, Mapping[str, Sequence]] | None = None,
    of_samples: Mapping[str, Sequence] | None = None,
    **swept: Sequence,
) -> None:
    """Store the Dataset of a sweep over one setting whose table has these rows.

    numbers: quantity → predictor → its value in every row; of_samples: errors of the samples.
    """
    from sampler.analysis.comparison import NUMBERS
    from sampler.analysis.sweep_dataset import coordinate
    from sampler.analysis.sweep_results import TEXTS
    from sampler.storage.directory import SWEEP_DATASET_FILE
    from sampler.storage.files import SCHEMA_VERSION

    ((key, values),) = (swept or {"row": range(len(rows))}).items()
    columns: dict = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        missing, kind = ("", object) if name in TEXTS else (np.nan, None)
        columns[name] = (key, np.array([row.get(name, missing) for row in rows], dtype=kind))
    columns |= {name: (key, np.full(len(rows), True)) for name in ("stored", "one_width")}
    numbers = numbers or {}
    predictors = list(dict.fromkeys(who for of in numbers.values() for who in of))
    summary = {name: np.full((len(rows), len(numbers), len(predictors)), np.nan)
               for name in NUMBERS}  # fmt: skip
    for place, of in enumerate(numbers.values()):
        for who, one in of.items():
            summary["value"][:, place, predictors.index(who)] = one
        for name, one in (of_samples or {}).items():
            summary[name][:, place, predictors.index("sampled")] = one
    axes = (key, "quantity", "predictor")
    columns |= {name: (axes, one) for name, one in summary.items()}
    columns["state"] = (axes, np.full(summary["value"].shape, "", dtype=object))
    words = {"label": "", "unit": "", "show": "number"}
    columns |= {n: ("quantity", np.full(len(numbers), w, dtype=object)) for n, w in words.items()}
    coordinates = {key: coordinate(key, list(values)), "quantity": list(numbers)}
    table = xr.Dataset(
        columns, coordinates | {"predictor": predictors}, {"schema_version": SCHEMA_VERSION}
    )
    table.to_netcdf(directory / SWEEP_DATASET_FILE, engine="h5netcdf")


def assert_same_bits(received: Path, expected: Path) -> None:
    """Both directories hold the same arrays, bit for bit."""
    one, other = stored_arrays(received), stored_arrays(expected)
    assert one.keys() == other.keys()
    different = [
        name
        for name in one
        if one[name].dtype != other[name].dtype
        or one[name].shape != other[name].shape
        or one[name].tobytes() != other[name].tobytes()
    ]
    assert not different, f"{received} differs in {different}"
