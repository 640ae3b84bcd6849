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
from sampler.jobs.interruption import WARNINGS
from sampler.jobs.slurm import LOG_FOLDER, SCRIPT_FILE, batch_script
from sampler.settings.recipe import load_recipe
from tests.commands import TINY_SAMPLED

# Stands for the command of a point. It says which signal reached it and leaves with a code.
CHILD = """
import signal, sys, time
from pathlib import Path
heard, code, wait = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
def stop(number, frame):
    time.sleep(0.3)  # what is in work is finished first
    heard.write_text(signal.Signals(number).name + " " + " ".join(sys.argv[4:]))
    sys.exit(75)
for each in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(each, stop)
Path(str(heard) + ".ready").touch()
time.sleep(wait)
sys.exit(code)
"""
# A process without a handler is killed by a warning.
DEAF = CHILD.replace("signal.signal(each, stop)", "pass")
# Writes down its point, and fails at the second one; a warning costs it nothing.
ONE_OF_SEVERAL = """
import signal, sys, time
from pathlib import Path
heard, wait, point = Path(sys.argv[1]), float(sys.argv[3]), int(sys.argv[5])
with heard.open("a") as file:
    print(point, file=file)
signal.signal(signal.SIGUSR1, lambda *_: None)
Path(str(heard) + ".ready").touch()
time.sleep(wait)
sys.exit(3 if point == 1002 else 0)
"""


class Job:
    """A batch script under bash, as Slurm starts it, with a `scontrol` that writes down its use."""

    def __init__(self, folder: Path, code: int = 0, wait: float = 0, requeue_fails: bool = False,
                 text: str = CHILD, points: int = 2):  # fmt: skip
        self.heard, self.requeued = folder / "heard", folder / "requeued"
        child, scontrol, script = folder / "child.py", folder / "bin" / "scontrol", folder / "s.sh"
        child.write_text(text)
        scontrol.parent.mkdir()
        scontrol.write_text(f'#!/bin/bash\necho "$@" >> {self.requeued}\nexit {requeue_fails:d}\n')
        scontrol.chmod(0o755)
        command = [sys.executable, str(child), str(self.heard), str(code), str(wait)]
        script.write_text(batch_script(folder, "name", points, [], command))
        ids = {"SLURM_JOB_ID": "70", "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "1"}
        path = {"PATH": f"{scontrol.parent}:{os.environ['PATH']}"}
        self.process = subprocess.Popen(
            ["bash", str(script)], env=os.environ | ids | path, stdout=subprocess.DEVNULL
        )

    def ended(self, number: signal.Signals | None = None) -> tuple[int, str, str]:
        """Exit code, what was heard, what was queued again; a signal goes to the shell alone."""
        if number is not None:
            limit = time.monotonic() + 120
            while not Path(f"{self.heard}.ready").exists():  # until the child listens
                assert time.monotonic() < limit
                time.sleep(0.02)
            self.process.send_signal(number)
        code = self.process.wait(timeout=60)
        texts = (path.read_text() if path.exists() else "" for path in (self.heard, self.requeued))
        return code, *texts


# The one task, not the array whose id SLURM_JOB_ID may be.
REQUEUED = "requeue 70_1\n"
# A job and the signal it is sent → exit code, what its command hears, what is queued again.
ENDINGS = {
    "passes": ({"code": 0}, None, (0, "", "")),
    "fails": ({"code": 3}, None, (3, "", "")),
    "is saved": ({"code": 75}, None, (0, "", REQUEUED)),
    "cannot be queued": ({"code": 75, "requeue_fails": True}, None, (75, "", REQUEUED)),
    # Before the command could hear it: nothing was begun that could be lost.
    "is deaf": ({"wait": 60, "text": DEAF}, signal.SIGUSR1, (0, "", REQUEUED)),
    # As SIGUSR1: bash starts its child with SIGQUIT ignored.
    **{f"hears {one.name}": ({"wait": 60}, one, (0, "SIGUSR1 --point 1", REQUEUED))
       for one in WARNINGS},
    # A cancelled task saves and stays cancelled.
    "is cancelled": ({"wait": 60}, signal.SIGTERM, (75, "SIGTERM --point 1", "")),
    # Of 2,500 points task 1 does three; the exit code is the worst of them.
    "does several": ({"text": ONE_OF_SEVERAL, "points": 2500}, None, (3, "1\n1002\n2003\n", "")),
    # A warned task begins no further point, though that in work comes to its end.
    "is warned": ({"text": ONE_OF_SEVERAL, "points": 2500, "wait": 1}, signal.SIGUSR1,
                  (0, "1\n", REQUEUED)),
}  # fmt: skip


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("name", ENDINGS)
def test_how_a_task_ends(name, tmp_path, monkeypatch):
    monkeypatch.setattr("sampler.jobs.slurm.most_tasks", lambda: 1001)
    settings, number, expected = ENDINGS[name]
    assert Job(tmp_path, **settings).ended(number) == expected


def test_the_array_of_a_sweep_stands_on_its_own_whatever_its_name(tmp_path):
    """As sbatch reads it, which takes %% for a per cent sign, and as the shell does."""
    out, recipe = tmp_path / """it's a#b 100 % o%j, say "so" $HOME `x` é""", tmp_path / "tiny.toml"
    recipe.write_text(TINY_SAMPLED)
    arguments = ["sweep", str(recipe), "--out", str(out), "--over", "network.widths=3,5,7"]
    options = ["time=0:30:00", "partition=long", "array=0-2%2", "exclusive"]
    asked = [word for option in options for word in ("--slurm-option", option)]
    assert main([*arguments, "--slurm", "--no-figures", *asked]) == ExitCode.OK
    assert load_recipe(out / "recipe.toml").sweep == {"network.widths": (3, 5, 7)}
    text = (out / SCRIPT_FILE).read_text()
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    lines = text.splitlines()
    assert lines[0] == "#!/bin/bash"
    given = {line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")}
    (output,) = (line.partition("=")[2] for line in given if line.startswith("output="))
    (pattern,) = shlex.split(output)
    log = re.sub("%(.)", lambda found: {"a": "7", "%": "%"}[found[1]], pattern)
    assert log == str(out / LOG_FOLDER / "7.log")
    assert (out / LOG_FOLDER).is_dir()
    assert given - {f"output={output}"} == {
        "job-name=tiny", "array=0-2%2", "open-mode=append", "time=0:30:00", "partition=long",
        "exclusive", "requeue", "signal=B:USR1@120",
    }  # fmt: skip
    (started,) = (line for line in lines if "--point" in line)
    assert shlex.split(started)[:-1] == [
        sys.executable, "-P", "-m", "sampler", "sweep", f"{out}/recipe.toml", "--out", str(out),
        "--no-figures", "--point", "$point",
    ]  # fmt: skip


def tasks_of(folder: Path, points: int, *options: str) -> list[int]:
    """The first and the last task of an array."""
    text = batch_script(folder, "name", points, options, ["true"])
    return [int(word) for word in re.search("#SBATCH --array=([0-9]+)-([0-9]+)", text).groups()]


@pytest.mark.parametrize(("points", "last"), [(1, 0), (1001, 1000), (1002, 1000), (5000, 1000)])
def test_an_array_has_no_more_tasks_than_slurm_takes(points, last, tmp_path, monkeypatch):
    """By default, and as the cluster says: MaxArraySize is one more than the largest index."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tasks_of(tmp_path, points) == [0, last]
    (tmp_path / "bin").mkdir()
    shown = "MaxArraySize            = 101\nMaxJobCount = 10000"
    (tmp_path / "bin" / "scontrol").write_text(f"#!/bin/bash\necho '{shown}'\n")
    (tmp_path / "bin" / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    assert tasks_of(tmp_path, points) == [0, min(last, 100)]
    assert tasks_of(tmp_path, points, "array=0-4999") == [0, 4999]
