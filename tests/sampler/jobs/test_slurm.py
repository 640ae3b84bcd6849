"""The batch script of a sweep, under bash."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sampler.cli import main
from sampler.errors import ExitCode
from sampler.jobs.slurm import LOG_FOLDER, SCRIPT_FILE, batch_script
from sampler.settings.recipe import load_recipe
from tests.commands import TINY_SAMPLED

# Stands for the command of a point: it writes down its point and the signal that reaches it, and
# leaves with a code. One that is "deaf" does not listen yet, an "ending" one goes on to its end.
CHILD = """
import signal, sys, time
from pathlib import Path
heard, codes, wait, point = Path(sys.argv[1]), eval(sys.argv[2]), float(sys.argv[3]), sys.argv[5]
def told(text):
    with heard.open("a") as file:
        print(point, text, file=file)
def stop(number, frame):
    time.sleep(0.3)  # what is in work is finished first
    told(signal.Signals(number).name)
    sys.exit(75)
for each in (signal.SIGUSR1, signal.SIGTERM):
    if codes != "deaf":
        signal.signal(each, stop)
if codes == "ending":
    signal.signal(signal.SIGUSR1, lambda *_: told("goes on"))
told("begun")
time.sleep(wait)
sys.exit(codes.get(point, 0) if isinstance(codes, dict) else 0)
"""


class Job:
    """A batch script under bash, as Slurm starts it, with a `scontrol` that writes down its use."""

    def __init__(self, folder: Path, codes: dict | str, wait: float, requeue_fails: bool):
        self.heard, self.requeued = folder / "heard", folder / "requeued"
        child, scontrol, script = folder / "child.py", folder / "bin" / "scontrol", folder / "s.sh"
        child.write_text(CHILD)
        scontrol.parent.mkdir()
        scontrol.write_text(f'#!/bin/bash\necho "$@" >> {self.requeued}\nexit {requeue_fails:d}\n')
        scontrol.chmod(0o755)
        command = [sys.executable, str(child), str(self.heard), repr(codes), str(wait)]
        script.write_text(batch_script(folder, "name", 2500, [], command))
        ids = {"SLURM_JOB_ID": "70", "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "1"}
        path = {"PATH": f"{scontrol.parent}:{os.environ['PATH']}"}
        self.process = subprocess.Popen(["bash", str(script)], env=os.environ | ids | path)

    def ended(self, number: signal.Signals | None) -> tuple[int, str, bool]:
        """Exit code, what was heard, and whether it is queued again; the shell alone is sent to."""
        if number is not None:
            limit = time.monotonic() + 120
            while not self.heard.exists():
                assert time.monotonic() < limit
                time.sleep(0.02)
            self.process.send_signal(number)
        code = self.process.wait(timeout=60)
        heard = self.heard.read_text().replace("\n", ", ").removesuffix(", ")
        if self.requeued.exists():  # the one task, not the array whose id SLURM_JOB_ID may be
            assert self.requeued.read_text() == "requeue 70_1\n"
        return code, heard, self.requeued.exists()


# A job and the signal it is sent → exit code, what its commands say, whether it is queued again.
# Of 2,500 points task 1 of 1,001 does three.
ENDINGS = {
    # The exit code is the worst of them.
    "does several": ({"codes": {"1002": 3}}, None, (3, "1 begun, 1002 begun, 2003 begun", False)),
    "is saved": ({"codes": {"1002": 75}}, None, (0, "1 begun, 1002 begun", True)),
    "cannot be queued": ({"codes": {"1": 75}, "requeue_fails": True}, None, (75, "1 begun", True)),
    # Before the command could hear it: nothing was begun that could be lost.
    "is deaf": ({"codes": "deaf", "wait": 60}, signal.SIGUSR1, (0, "1 begun", True)),
    # bash starts its child with SIGQUIT ignored: any warning is passed on as SIGUSR1.
    "is warned": ({"wait": 60}, signal.SIGUSR1, (0, "1 begun, 1 SIGUSR1", True)),
    "is quit": ({"wait": 60}, signal.SIGQUIT, (0, "1 begun, 1 SIGUSR1", True)),
    # What is in work comes to its end, and nothing else is begun.
    "is ending": ({"codes": "ending", "wait": 1}, signal.SIGUSR1, (0, "1 begun, 1 goes on", True)),
    # A cancelled task saves and stays cancelled.
    "is cancelled": ({"wait": 60}, signal.SIGTERM, (75, "1 begun, 1 SIGTERM", False)),
}


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("name", ENDINGS)
def test_how_a_task_ends(name, tmp_path, monkeypatch):
    monkeypatch.setattr("sampler.jobs.slurm.most_tasks", lambda: 1001)
    settings, number, expected = ENDINGS[name]
    usual = {"codes": {}, "wait": 0.0, "requeue_fails": False}
    assert Job(tmp_path, **usual | settings).ended(number) == expected


def test_the_script_of_a_sweep_stands_on_its_own_whatever_its_name(tmp_path):
    """As sbatch reads it, which takes %% for a per cent sign, and as the shell does."""
    out, recipe = tmp_path / """it's a#b 100 % o%j, say "so" $HOME `x` é""", tmp_path / "tiny.toml"
    recipe.write_text(TINY_SAMPLED)
    over = ["--over", "network.widths=3,5,7"]
    asked = ["--slurm", "--slurm-option", "time=0:30:00", "--slurm-option", "array=0-2%2"]
    assert main(["sweep", str(recipe), "--out", str(out), *over, *asked]) == ExitCode.OK
    assert load_recipe(out / "recipe.toml").sweep == {"network.widths": (3, 5, 7)}
    lines = (out / SCRIPT_FILE).read_text().splitlines()
    given = {line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")}
    assert {"array=0-2%2", "time=0:30:00", "requeue"} < given
    (output,) = (line.partition("=")[2] for line in given if line.startswith("output="))
    (pattern,) = shlex.split(output)
    log = re.sub("%(.)", lambda found: {"a": "7", "%": "%"}[found[1]], pattern)
    assert log == str(out / LOG_FOLDER / "7.log")
    (started,) = (line for line in lines if "--point" in line)
    words = shlex.split(started)
    for name, value in (
        ("sweep", f"{out}/recipe.toml"),
        ("--out", f"{out}"),
        ("--point", "$point"),
    ):
        assert words[words.index(name) + 1] == value


@pytest.mark.parametrize(("points", "last"), [(1, 0), (1001, 1000), (5000, 1000)])
def test_an_array_has_no_more_tasks_than_slurm_takes(points, last, tmp_path, monkeypatch):
    """By default, and as the cluster says: MaxArraySize is one more than the largest index."""

    def tasks(*options: str) -> list[int]:
        text = batch_script(tmp_path, "name", points, options, ["true"])
        return list(map(int, re.search("#SBATCH --array=([0-9]+)-([0-9]+)", text).groups()))

    monkeypatch.setenv("PATH", str(tmp_path))
    assert tasks() == [0, last]
    shown = "MaxArraySize            = 101\nMaxJobCount = 10000"
    (tmp_path / "scontrol").write_text(f"#!/bin/bash\necho '{shown}'\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert tasks() == [0, min(last, 100)]
    assert tasks("array=0-4999") == [0, 4999]
