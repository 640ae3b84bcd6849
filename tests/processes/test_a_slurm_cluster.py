"""Nightly: a sweep on a Slurm of this machine, one of whose tasks is pre-empted and one warned.

The Slurm has two nodes, and is made of ordinary processes in a folder of their own.
"""

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from sampler.errors import ExitCode
from sampler.storage.checkpoints import newest_header
from tests.commands import TINY, assert_same_bits, command, environment

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
NODES = ("one", "two")
# A job of the partition `high` takes the place of one of `low`, which is queued again. A job that
# is queued again begins after the lifetime of its credential: two minutes, if this is not said.
CONFIGURATION = """\
ClusterName=trial
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=600
KillWait=30
MailProg={true}
{nodes}
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 State=UP
PartitionName=high Nodes=ALL PriorityTier=10 State=UP
"""


def missing_programs() -> list[str]:
    """The programs of Slurm and Munge that are not on this machine."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Cluster:
    """Controller, two nodes of one processor each, and what they authenticate each other with."""

    def __init__(self, folder: Path, variables: dict[str, str]):
        self.folder = folder
        self.environment = variables | {"SLURM_CONF": str(folder / "slurm.conf")}
        self.daemons: dict[str, subprocess.Popen] = {}
        for name in ("munge", "state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir(mode=0o755)
        nodes = [
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={free_port()} CPUs=1"
            for node in NODES
        ]
        settings = {"folder": folder, "port": free_port(), "user": getpass.getuser()}
        text = CONFIGURATION.format(**settings, true=shutil.which("true"), nodes="\n".join(nodes))
        (folder / "slurm.conf").write_text(text)
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)

    def __enter__(self) -> "Cluster":
        munge = self.folder / "munge"
        files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")]
        self.start("munged", "--foreground", "--force", f"--socket={munge / 'socket'}", *files)
        wait_for((munge / "socket").exists)
        self.start("slurmctld", "-D")
        for node in NODES:
            self.start("slurmd", "-D", "-N", node, name=node)
        wait_for(lambda: self.run("sinfo", "--noheader", "--format=%D %t", "-p", "low") == "2 idle")
        return self

    def __exit__(self, *_) -> None:
        self.run("scancel", "--user", getpass.getuser())
        for process in reversed(self.daemons.values()):
            process.terminate()
        for process in self.daemons.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()

    def start(self, program: str, *arguments: str, name: str | None = None) -> None:
        """Start one of the daemons in the foreground of its own process."""
        command = [shutil.which(program), *arguments]
        with (self.folder / f"{name or program}.out").open("a") as log:
            self.daemons[name or program] = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log
            )

    def run(self, *command: str) -> str:
        """What a command of Slurm prints; its error where it fails."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return (done.stdout or done.stderr).strip()

    def submit(self, *command: str) -> str:
        """Submit a batch job: its id."""
        printed = self.run("sbatch", "--parsable", *command)
        assert printed.isdigit(), printed
        return printed

    def limit(self, job: str, minutes: int) -> None:
        """Set the time limit of a job that was submitted."""
        assert self.run("scontrol", "update", f"jobid={job}", f"TimeLimit={minutes}") == ""

    def shown(self, job: str) -> dict[str, str]:
        """What Slurm shows of a job or of a task of an array."""
        words = self.run("scontrol", "show", "job", job, "--oneliner").split()
        return dict(word.split("=", 1) for word in words if "=" in word)


def wait_for(condition, seconds: float = 240.0) -> None:
    """Wait until the condition holds; fail after so many seconds."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.1)


# --- the sweep

POINTS = 4
LABELS = [f"sampler.seed={number}" for number in range(POINTS)]
ENDED = ("COMPLETED", "FAILED")
OVER = ("--over", f"sampler.seed=0:{POINTS}", "--no-figures")


@pytest.mark.nightly
@pytest.mark.skipif(bool(missing_programs()), reason="Slurm or Munge is not installed")
def test_slurm_pre_empts_and_warns_and_every_point_comes_to_its_end(tmp_path):
    recipe, cache, out = tmp_path / "clusters.toml", tmp_path / "cache", tmp_path / "sweep"
    whole, folder = tmp_path / "whole", tmp_path / "slurm"
    # Draws last long enough to be disturbed.
    recipe.write_text(f"{TINY}draws = 6000\nthinning = 3\n")
    cache.mkdir()
    folder.mkdir()

    def sampling(label: str) -> bool:
        """Whether draws of a point are saved, and not all of them."""
        header = newest_header(out / label)
        return bool(header) and header["phase"] == "draws" and header["done"] < header["total"]

    expected, _ = command("sweep", recipe, *OVER, "--out", whole, cache=cache)
    assert command("sweep", recipe, *OVER, "--out", out, "--slurm")[0] == ExitCode.OK
    with Cluster(folder, environment(cache)) as cluster:
        array = cluster.submit(f"--chdir={tmp_path}", str(out / "sweep.sbatch"))
        wait_for(lambda: sampling(LABELS[0]) and sampling(LABELS[1]), 900)
        node = cluster.shown(f"{array}_0")["NodeList"]
        urgent = ("--partition=high", f"--nodelist={node}", "--wrap=sleep 1", "--output=/dev/null")
        other = cluster.submit(*urgent)
        # Its warning comes two minutes before: at once.
        hours, minutes, _ = map(int, cluster.shown(f"{array}_1")["RunTime"].split(":"))
        cluster.limit(f"{array}_1", 60 * hours + minutes + 2)
        wait_for(lambda: cluster.shown(other)["JobState"] == "COMPLETED", 900)
        for number in range(POINTS):
            task = f"{array}_{number}"
            wait_for(lambda task=task: cluster.shown(task)["JobState"] in ENDED, 1800)
        assert int(cluster.shown(f"{array}_0")["Restarts"]) > 0
    assert command("sweep", recipe, *OVER, "--out", out, cache=cache)[0] == expected
    assert "going on after" in (out / LABELS[0] / "run.log").read_text()
    for label in LABELS:
        assert_same_bits(out / label, whole / label)
