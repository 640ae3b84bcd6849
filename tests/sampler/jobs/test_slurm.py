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
from sampler.jobs.plan import make_plan
from sampler.jobs.slurm import LOG_FOLDER, SCRIPT_FILE, batch_script, write_slurm_array
from sampler.settings.recipe import load_recipe
from tests import ROOT
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


@pytest.fixture
def recipe(tmp_path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY_SAMPLED)
    return path


class Job:
    """A batch script under bash, as Slurm starts it, with a `scontrol` that writes down its use."""

    def __init__(
        self,
        folder: Path,
        code: int,
        wait: float,
        requeue_fails: bool = False,
        text: str = CHILD,
        points: int = 2,
    ):
        self.heard, self.requeued = folder / "heard", folder / "requeued"
        child, scontrol, script = folder / "child.py", folder / "bin" / "scontrol", folder / "s.sh"
        child.write_text(text)
        scontrol.parent.mkdir()
        scontrol.write_text(f'#!/bin/bash\necho "$@" >> {self.requeued}\nexit {requeue_fails:d}\n')
        scontrol.chmod(0o755)
        command = [sys.executable, str(child), str(self.heard), str(code), str(wait)]
        script.write_text(batch_script(folder, "name", points, [], command))
        self.process = subprocess.Popen(
            ["bash", str(script)],
            env=os.environ
            | {
                "PATH": f"{scontrol.parent}:{os.environ['PATH']}",
                "SLURM_JOB_ID": "70",
                "SLURM_ARRAY_JOB_ID": "70",
                "SLURM_ARRAY_TASK_ID": "1",
            },
            stdout=subprocess.DEVNULL,
        )

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the shell alone, once the child listens."""
        wait_for(lambda: Path(f"{self.heard}.ready").exists())
        self.process.send_signal(number)

    def exit_code(self) -> int:
        return self.process.wait(timeout=60)


def wait_for(condition, seconds: float = 120.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("code", [0, 3])
def test_exit_codes_pass_through_the_batch_script(tmp_path, code):
    job = Job(tmp_path, code, wait=0)
    assert job.exit_code() == code
    assert not job.requeued.exists()


def test_saved_task_is_queued_again(tmp_path):
    job = Job(tmp_path, code=75, wait=0)
    assert job.exit_code() == 0
    # the one task, not the array whose id SLURM_JOB_ID may be
    assert job.requeued.read_text() == "requeue 70_1\n"


@pytest.mark.usefixtures("interruptible")
def test_a_warning_before_the_command_could_hear_it_is_no_failure(tmp_path):
    """A process without a handler is killed by it; nothing was begun that could be lost."""
    deaf = CHILD.replace("signal.signal(each, stop)", "pass")
    job = Job(tmp_path, code=0, wait=60, text=deaf)
    job.send(signal.SIGUSR1)
    assert job.exit_code() == 0
    assert not job.heard.exists()
    assert job.requeued.read_text() == "requeue 70_1\n"


def test_requeue_that_fails_is_not_taken_for_success(tmp_path):
    job = Job(tmp_path, code=75, wait=0, requeue_fails=True)
    assert job.exit_code() == 75


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("warning", WARNINGS)
def test_any_warning_reaches_the_command(warning, tmp_path):
    """As SIGUSR1: bash starts its child with SIGQUIT ignored."""
    job = Job(tmp_path, code=0, wait=60)
    job.send(warning)
    assert job.exit_code() == 0
    assert job.heard.read_text() == "SIGUSR1 --point 1"
    assert job.requeued.read_text() == "requeue 70_1\n"


def test_cancelled_task_saves_and_stays_cancelled(tmp_path):
    job = Job(tmp_path, code=0, wait=60)
    job.send(signal.SIGTERM)
    assert job.exit_code() == 75
    assert job.heard.read_text().startswith("SIGTERM")
    assert not job.requeued.exists()


def test_slurm_array_stands_on_its_own(recipe, tmp_path):
    out = tmp_path / "with space"
    arguments = ["sweep", str(recipe), "--out", str(out), "--over", "network.widths=3,5,7"]
    options = ["time=0:30:00", "partition=long", "array=0-2%2", "exclusive"]
    assert main([*arguments, "--slurm", "--no-figures", "--slurm-option", *options[:3],
                 "--slurm-option", options[3]]) == ExitCode.OK  # fmt: skip
    assert load_recipe(out / "recipe.toml").sweep == {"network.widths": (3, 5, 7)}
    script = out / "sweep.sbatch"
    subprocess.run(["bash", "-n", str(script)], check=True)
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    assert {line for line in lines if line.startswith("#SBATCH")} == {
        "#SBATCH --job-name=tiny",
        "#SBATCH --array=0-2%2",
        f"#SBATCH --output='{out}/slurm/%a.log'",
        "#SBATCH --open-mode=append",
        "#SBATCH --time=0:30:00",
        "#SBATCH --partition=long",
        "#SBATCH --exclusive",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:USR1@120",
    }
    assert (out / "slurm").is_dir()
    started = next(line for line in lines if "--point" in line)
    assert shlex.split(started)[:-1] == [
        sys.executable, "-P", "-m", "sampler", "sweep", f"{out}/recipe.toml", "--out", str(out),
        "--no-figures", "--point", "$point",
    ]  # fmt: skip


# Writes down its point, and fails at the second one.
ONE_OF_SEVERAL = """
import sys, time
from pathlib import Path
heard, wait, point = Path(sys.argv[1]), float(sys.argv[3]), int(sys.argv[5])
with heard.open("a") as file:
    print(point, file=file)
Path(str(heard) + ".ready").touch()
time.sleep(wait)
sys.exit(3 if point == 1002 else 0)
"""


def with_scontrol(folder: Path, monkeypatch, config: str) -> None:
    """In front of any other, an `scontrol` that shows this configuration."""
    folder.mkdir()
    (folder / "scontrol").write_text(f"#!/bin/bash\necho '{config}'\n")
    (folder / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def tasks_of(folder: Path, points: int, *options: str) -> list[int]:
    """The first and the last task of an array."""
    text = batch_script(folder, "name", points, options, ["true"])
    return [int(word) for word in re.search("#SBATCH --array=([0-9]+)-([0-9]+)", text).groups()]


@pytest.mark.parametrize(("points", "last"), [(1, 0), (1001, 1000), (1002, 1000), (5000, 1000)])
def test_an_array_has_no_more_tasks_than_slurm_takes(points, last, tmp_path, monkeypatch):
    """By default, and as the cluster says: MaxArraySize is one more than the largest index."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tasks_of(tmp_path, points) == [0, last]
    shown = "MaxArraySize            = 101\nMaxJobCount = 10000"
    with_scontrol(tmp_path / "bin", monkeypatch, shown)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    assert tasks_of(tmp_path, points) == [0, min(last, 100)]
    assert tasks_of(tmp_path, points, "array=0-4999") == [0, 4999]


def test_a_task_of_a_large_array_does_all_its_points(tmp_path, monkeypatch):
    """Of 2,500 points task 1 does 1, 1002 and 2003; its exit code is the worst of them."""
    monkeypatch.setattr("sampler.jobs.slurm.most_tasks", lambda: 1001)
    job = Job(tmp_path, code=0, wait=0, text=ONE_OF_SEVERAL, points=2500)
    assert job.exit_code() == 3
    assert job.heard.read_text().split() == ["1", "1002", "2003"]
    assert not job.requeued.exists()


@pytest.mark.usefixtures("interruptible")
def test_a_warned_task_begins_no_further_point(tmp_path, monkeypatch):
    """Though the point in work comes to its end: the others are done when it is queued again."""
    monkeypatch.setattr("sampler.jobs.slurm.most_tasks", lambda: 1001)
    text = ONE_OF_SEVERAL.replace("import sys", "import signal, sys").replace(
        "Path(str", "signal.signal(signal.SIGUSR1, lambda *_: None)\nPath(str"
    )
    job = Job(tmp_path, code=0, wait=1, text=text, points=2500)
    job.send(signal.SIGUSR1)
    assert job.exit_code() == 0
    assert job.heard.read_text().split() == ["1"]
    assert job.requeued.read_text() == "requeue 70_1\n"


def test_any_name_that_can_be_printed_may_stand_in_a_script(tmp_path):
    """As sbatch reads it, which takes %% for a per cent sign, and as the shell does."""
    directory = tmp_path / """it's a#b 100 % o%j, say "so" $HOME `x` é"""
    recipe = load_recipe(ROOT / "runs" / "quickstart.toml", ["sweep.sampler.seed=[0, 1]"])
    write_slurm_array(make_plan("run", recipe, directory), [])
    text = (directory / SCRIPT_FILE).read_text()
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    (output,) = re.findall("#SBATCH --output=(.*)", text)
    (pattern,) = shlex.split(output)
    log = re.sub("%(.)", lambda found: {"a": "7", "%": "%"}[found[1]], pattern)
    assert log == str(directory / LOG_FOLDER / "7.log")
    (started,) = [line for line in text.splitlines() if "--point" in line]
    assert str(directory) in shlex.split(started)
