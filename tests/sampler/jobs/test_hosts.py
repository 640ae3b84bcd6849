"""A sweep on a Dask cluster of two hosts, one of which is lost in the middle of a point."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from sampler.errors import ExitCode
from sampler.storage.lock import LOCK_FILE, Holder, read_holder
from tests.commands import TINY_SAMPLED, assert_same_bits, command, environment, finish, start

# A process of a host of another name; the superuser needs no namespace of users for that.
NAMESPACE = ["unshare", "--uts"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
HOSTS = ("one.example", "two.example")


def hosts_can_be_named() -> bool:
    """Whether this system lets a process have a host name of its own."""
    if shutil.which("unshare") is None or shutil.which("hostname") is None:
        return False
    return subprocess.run([*NAMESPACE, "hostname", HOSTS[0]], capture_output=True).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(not hosts_can_be_named(), reason="no host names: unshare is not allowed"),
]


@contextmanager
def cluster(folder: Path, variables: dict[str, str]):
    """Address of a scheduler, and a worker process on each of the hosts."""
    about = folder / "scheduler.json"
    log = (folder / "dask.log").open("w")
    options = {"env": variables, "stdout": log, "stderr": log}
    dask = [sys.executable, "-m", "distributed.cli"]
    scheduler = [f"{dask[-1]}.dask_scheduler", "--port", "0", "--host", "127.0.0.1"]
    words = [*dask[:2], *scheduler, "--no-dashboard", "--scheduler-file", str(about)]
    processes = [subprocess.Popen(words, **options)]
    try:
        wait_for(about.exists)
        address = json.loads(about.read_text())["address"]
        worker = [*dask[:2], f"{dask[-1]}.dask_worker", address, "--nthreads", "1", "--no-nanny"]
        script = 'hostname "$0" && exec "$@"'
        for host in HOSTS:
            words = [*NAMESPACE, "sh", "-c", script, host, *worker, "--no-dashboard"]
            processes.append(subprocess.Popen(words, **options))
        yield address, dict(zip(HOSTS, processes[1:], strict=True))
    finally:
        for process in processes:
            process.kill()
            process.wait()
        log.close()


def wait_for(condition, seconds: float = 240.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.02)


def test_the_point_of_a_lost_host_is_taken_up_by_the_other(tmp_path):
    """From the directory they share, where the lock of the lost host still lies: the same bits."""
    pytest.importorskip("distributed")
    recipe, cache = tmp_path / "tiny.toml", tmp_path / "cache"
    recipe.write_text(TINY_SAMPLED)
    here, there = tmp_path / "here", tmp_path / "there"
    sweep = ["sweep", recipe, "--over", "sampler.seed=0:2", "--set", "sampler.draws=1000"]
    expected, _ = command(*sweep, "--out", here, cache=cache)
    with cluster(tmp_path, environment(cache)) as (address, workers):
        process = start(*sweep, "--out", there, "--scheduler", address, cache=cache)
        wait_for(lambda: list(there.glob("*/checkpoint/state-*.bin")) or process.poll() is not None)
        point = next(there.glob("*/checkpoint/state-*.bin")).parents[1]
        holder = read_holder(point / LOCK_FILE)
        assert holder is not None, "the point was over too soon"
        lost = workers[holder.host]
        assert holder == Holder(holder.host, lost.pid)
        lost.send_signal(signal.SIGKILL)
        received, errors = finish(process)
        log = (tmp_path / "dask.log").read_text()
        assert received == expected == ExitCode.OK, errors + log
    assert "going on after" in (point / "run.log").read_text()
    assert (there / "sweep.csv").read_text() == (here / "sweep.csv").read_text()
    for name in sorted(path.parent.name for path in here.glob("*/draws.nc")):
        assert_same_bits(there / name, here / name)
