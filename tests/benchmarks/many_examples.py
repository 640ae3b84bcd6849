"""A million examples: what one pass over them takes, and that nothing after it depends on them."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import jax
import numpy as np

from sampler.storage.manifest import read_manifest
from tests import ROOT
from tests.benchmarks.scale import Curve, collapsed_gradient, problem_of, repeated
from theory import compress

HEADS, PATHS, CHANNELS, TEST = (2, 2), 4, 32, 1000
PIECE = 50_000
# GNU time says how much memory a program took.
TIMED = ["time", "-v"] if shutil.which("time") else []
RECIPE = """name = "many"
task = {{kind = "arrays", path = "{file}"}}
network = {{widths = 100}}
posterior = {{temperature = 0.1}}
"""


def write_file(path: Path, examples: int) -> None:
    """Attended inputs that share a part among paths; labels by a noisy linear rule."""
    rng = np.random.default_rng(0)
    rule = rng.standard_normal(CHANNELS)
    with h5py.File(path, "w") as file:
        file["heads"] = np.array(HEADS)
        for name, count in (("train", examples), ("test", TEST)):
            shape = (count, PATHS, CHANNELS)
            attended = file.create_dataset(f"attended_{name}", shape, np.float32)
            labels = file.create_dataset(f"labels_{name}", (count,), np.float32)
            for start in range(0, count, PIECE):
                some = min(PIECE, count - start)
                block = rng.standard_normal((some, 1, CHANNELS), np.float32)
                own = rng.standard_normal((some, PATHS, CHANNELS), np.float32)
                block = block + np.float32(0.5) * own
                attended[start : start + some] = block
                noise = rng.standard_normal(some)
                labels[start : start + some] = np.sign(block.mean(axis=1) @ rule + noise)


def whole_run(folder: Path, examples: int) -> tuple[float, dict[str, float], float]:
    """Seconds of `run` from a file, of its stages, and its peak memory in GiB."""
    recipe = folder / f"many_{examples}.toml"
    recipe.write_text(RECIPE.format(file=f"many_{examples}.h5"), encoding="utf-8")
    out = folder / f"out_{examples}"
    command = [sys.executable, "-m", "sampler", "run", str(recipe), "--out", str(out)]
    started = time.perf_counter()
    done = subprocess.run([*TIMED, *command], cwd=ROOT, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if done.returncode not in (0, 3):
        raise RuntimeError(done.stderr[-2000:])
    found = re.search(r"Maximum resident set size \(kbytes\): (\d+)", done.stderr)
    peak = int(found[1]) / 2**20 if found else float("nan")
    return seconds, read_manifest(out).seconds, peak


def measure_many_examples(repetitions: int) -> Iterator[str]:
    """Gradients beyond P = Π D, then whole runs."""
    sizes = (2048, 8192, 32768)
    with jax.enable_x64(True):
        seconds = []
        calls = [
            repeated(collapsed_gradient(compress(problem_of(examples=size, heads=(2, 2)))))
            for size in sizes
        ]
        for _ in range(repetitions):
            seconds.append([call() for call in calls])
    curve = Curve("gradient, four paths of 64 channels, P", sizes, np.array(seconds))
    yield "| what, against | milliseconds, median | slope |\n|---|---|---|\n" + curve.row()
    yield "\n| P | seconds of `run` | of the theory, the pass in it | of sampling | peak GiB |"
    yield "|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as name:
        for examples in (1000, 1_000_000):
            write_file(Path(name) / f"many_{examples}.h5", examples)
            seconds, stages, peak = whole_run(Path(name), examples)
            yield (
                f"| {examples:,} | {seconds:.0f} | {stages.get('solve', 0):.0f} | "
                f"{stages.get('sample', 0):.0f} | {peak:.2f} |"
            )
