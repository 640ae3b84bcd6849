"""Long: a sweep on a Slurm and on a Dask cluster of this machine, both disturbed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sampler.errors import ExitCode
from sampler.storage.checkpoints import newest_header
from tests.commands import TINY, assert_same_bits, command, environment
from tests.sampler.jobs.slurm_cluster import Cluster, free_port, missing_programs, wait_for

pytestmark = pytest.mark.long
POINTS = 4
LABELS = [f"sampler.seed={number}" for number in range(POINTS)]
# Draws last long enough to be disturbed.
RECIPE = f"{TINY}draws = 6000\nthinning = 3\n"
OVER = ("--over", f"sampler.seed=0:{POINTS}", "--no-figures")


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "clusters.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def undisturbed(recipe, cache, tmp_path_factory) -> tuple[int, Path]:
    """The exit code and the directory of the sweep in one process."""
    out = tmp_path_factory.mktemp("here") / "sweep"
    return command("sweep", recipe, *OVER, "--out", out, cache=cache)[0], out


def sampling(out: Path, label: str) -> bool:
    """Whether draws of a point are saved, and not all of them."""
    header = newest_header(out / label)
    return bool(header) and header["phase"] == "draws" and header["done"] < header["total"]


def times_resumed(out: Path, label: str) -> int:
    return (out / label / "run.log").read_text().count("going on after")


@pytest.mark.skipif(bool(missing_programs()), reason="Slurm or Munge is not installed")
def test_slurm_pre_empts_and_warns_and_every_point_comes_to_its_end(
    recipe, cache, undisturbed, tmp_path
):
    expected, whole = undisturbed
    out, folder = tmp_path / "sweep", tmp_path / "slurm"
    folder.mkdir()
    assert command("sweep", recipe, *OVER, "--out", out, "--slurm")[0] == ExitCode.OK
    with Cluster(folder, environment(cache)) as cluster:
        array = cluster.submit(f"--chdir={tmp_path}", str(out / "sweep.sbatch"))
        wait_for(lambda: sampling(out, LABELS[0]) and sampling(out, LABELS[1]), 900)
        node = cluster.shown(f"{array}_0")["NodeList"]
        urgent = ("--partition=high", f"--nodelist={node}", "--wrap=sleep 1", "--output=/dev/null")
        other = cluster.submit(*urgent)
        # Its warning comes two minutes before: at once.
        hours, minutes, _ = map(int, cluster.shown(f"{array}_1")["RunTime"].split(":"))
        cluster.limit(f"{array}_1", 60 * hours + minutes + 2)
        wait_for(lambda: cluster.state(other) == "COMPLETED", 900)
        for number in range(POINTS):
            task = f"{array}_{number}"
            wait_for(lambda task=task: cluster.state(task) in ("COMPLETED", "FAILED"), 1800)
        assert int(cluster.shown(f"{array}_0")["Restarts"]) > 0
    assert command("sweep", recipe, *OVER, "--out", out, cache=cache)[0] == expected
    assert times_resumed(out, LABELS[0]) > 0
    for label in LABELS:
        assert_same_bits(out / label, whole / label)


@pytest.mark.filterwarnings("ignore")
def test_the_point_of_a_killed_dask_worker_goes_on_elsewhere(recipe, cache, undisturbed, tmp_path):
    pytest.importorskip("distributed")
    expected, whole = undisturbed
    out = tmp_path / "sweep"
    with dask_cluster(tmp_path, cache) as (address, workers):
        words = ("sweep", recipe, *OVER, "--out", out, "--scheduler", address)
        sweep = subprocess.Popen(
            [sys.executable, "-m", "sampler", *map(str, words)], env=environment(cache)
        )
        wait_for(lambda: any(sampling(out, label) for label in LABELS), 900)
        os.kill(workers()[0], signal.SIGKILL)
        assert sweep.wait(1800) == expected
    assert sum(times_resumed(out, label) for label in LABELS) > 0
    for label in LABELS:
        assert_same_bits(out / label, whole / label)


@contextmanager
def dask_cluster(folder: Path, cache: Path) -> Iterator[tuple[str, Callable[[], list[int]]]]:
    """Address of a scheduler with two workers, and what lists the processes that do points."""
    address, started = f"tcp://127.0.0.1:{free_port()}", []

    def start(*words: str) -> None:
        command_words = [sys.executable, "-m", "dask", *words, "--no-dashboard"]
        variables = environment(cache) | {"PYTHONPATH": os.getcwd()}
        started.append(subprocess.Popen(command_words, cwd=folder, env=variables))

    def workers() -> list[int]:
        descended = [
            int(child)
            for nanny in started[1:]
            for children in Path(f"/proc/{nanny.pid}/task").glob("*/children")
            for child in children.read_text().split()
        ]
        return [
            child
            for child in descended
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2])
        time.sleep(5)
        for _ in range(2):
            start("worker", address, "--nthreads", "1")
        yield address, workers
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)
