"""Every recipe of the gallery: exit code, time, and memory against what `check` predicts.

A recipe whose data are not there, as the model of a training, is named and left out.
"""

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sampler.errors import InputError
from sampler.jobs.forecast import peak_bytes
from sampler.jobs.plan import Point, make_plan
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.recipes.training_recipe import load_any_recipe
from sampler.storage.manifest import MANIFEST_FILE, read_manifest
from tests import ROOT

GIB = 2**30


def recipes() -> list[Path]:
    """All but those of a training."""
    found = sorted((ROOT / "runs").glob("*.toml"))
    return [path for path in found if isinstance(load_any_recipe(path, []), Recipe)]


def measured(recipe: Path, out: Path, command: str = "run") -> tuple[int, float, float]:
    """Exit code and seconds of a command, and the most memory in GiB of one of its processes."""
    words = [sys.executable, "-m", "sampler", command, str(recipe), "--out", str(out)]
    started = time.perf_counter()
    done = subprocess.run(words, cwd=ROOT, capture_output=True)
    seconds = time.perf_counter() - started
    manifests = [read_manifest(path.parent) for path in out.rglob(MANIFEST_FILE)]
    used = [bytes_ for each in manifests for bytes_ in each.peak_memory_bytes.values()]
    return done.returncode, seconds, max(used, default=math.nan) / GIB


def predicted(recipe: Recipe) -> float:
    """Peak memory of `run` in GiB."""
    return peak_bytes(make_plan("run", Point(recipe, None)).forecast.parts) / GIB


def measure_gallery(names: list[str], folder: Path | None) -> Iterator[str]:
    """A row for each recipe, all of them or those that are named; results stay in the folder."""
    yield "| recipe | exit | minutes | GiB | predicted | ratio |"
    yield "|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as temporary:
        for path in recipes():
            if names and path.stem not in names:
                continue
            try:
                peak = predicted(load_recipe(path, []))
            except InputError as problem:
                yield f"| `{path.stem}` | {problem} |"
                continue
            out = (folder or Path(temporary)) / path.stem
            code, took, used = measured(path, out)
            ratio = math.exp(abs(math.log(used / peak)))
            yield (
                f"| `{path.stem}` | {code} | {took / 60:.1f} | {used:.2f} | {peak:.2f} | "
                f"{ratio:.1f} |"
            )
