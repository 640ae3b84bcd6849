"""Limits of memory, wherever a scheduler, a container or a shell sets them."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sampler.jobs.memory import (
    LIMIT_FILES,
    UNTOUCHED_BYTES,
    available_bytes,
    group_limits,
    memory_groups,
)
from tests import ROOT
from tests.commands import environment

KINDS = ("cgroup", "cgroup2")
UNLIMITED = {"cgroup": "9223372036854771712", "cgroup2": "max"}


def described(tmp_path: Path, kind: str, path: str, root: str = "/", top: str = "groups") -> Path:
    """A folder like /proc/self, of a process in a group of a hierarchy that is mounted in part."""
    process, mount = tmp_path / "process", str(tmp_path / top).replace(" ", r"\040")
    process.mkdir()
    named = {"cgroup": f"4:hugetlb,memory:{path}\n2:cpu:/elsewhere\n", "cgroup2": f"0::{path}\n"}
    (process / "cgroup").write_text(named[kind])
    options = "rw,memory" if kind == "cgroup" else "rw"
    (process / "mountinfo").write_text(
        "22 1 8:1 / / rw,relatime - ext4 /dev/sda rw\n"
        f"30 22 0:30 / {mount}-cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu\n"
        f"31 22 0:31 {root} {mount} rw,nosuid shared:10 - {kind} {kind} {options}\n"
    )
    return process


def limit(kind: str, folder: Path, value: int | str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LIMIT_FILES[kind]).write_text(f"{value}\n")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limited", ["", "slurm", "slurm/job_1", "slurm/job_1/step_0"])
def test_the_limit_of_any_group_around_a_process_counts(kind, limited, tmp_path):
    process = described(tmp_path, kind, "/slurm/job_1/step_0")
    groups = tmp_path / "groups"
    for folder in ("", "slurm", "slurm/job_1", "slurm/job_1/step_0", "slurm/job_2"):
        limit(kind, groups / folder, UNLIMITED[kind])
    limit(kind, groups / "slurm/job_2", 1000)  # another job
    whole = available_bytes(process)
    assert whole == available_bytes(tmp_path / "no process")
    limit(kind, groups / limited, 400 * 2**20)
    assert available_bytes(process) == 400 * 2**20 < whole


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/", "/"),  # a container that sees its own group as the top
        ("/docker/abc", "/docker/abc"),  # one that sees the paths of its host
        ("/../outside", "/"),  # a process that was moved out of what it sees
        ("/elsewhere", "/docker/abc"),
    ],
)
def test_a_container_finds_the_limit_at_its_top(kind, path, root, tmp_path):
    process = described(tmp_path, kind, path, root)
    limit(kind, tmp_path / "groups", 5000)
    limit(kind, tmp_path, 1000)  # above what is mounted
    assert list(group_limits(process)) == [5000]


def test_names_may_have_spaces(tmp_path):
    process = described(tmp_path, "cgroup2", "/a b", top="my groups")
    limit("cgroup2", tmp_path / "my groups" / "a b", 5000)
    assert list(group_limits(process)) == [5000]


@pytest.mark.parametrize("option", ["AS", "DATA"])
def test_limits_of_a_shell_count(option):
    """What is only mapped counts for `ulimit -v` and takes no memory."""
    most = 8 * 2**30
    program = (
        "import resource; from sampler.jobs.memory import available_bytes\n"
        f"resource.setrlimit(resource.RLIMIT_{option}, ({most}, {most}))\n"
        "print(available_bytes())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment(None), capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    expected = most - (UNTOUCHED_BYTES if option == "AS" else 0)
    assert float(done.stdout) == min(expected, available_bytes())


def test_without_a_limit_it_is_the_memory_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    pages = os.sysconf("SC_PHYS_PAGES")
    assert available_bytes(tmp_path) == pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group inside that of this process, limited to 400 MiB."""
    for _, here, file in memory_groups(Path("/proc/self")):
        made = here / f"attention-posterior-{os.getpid()}"
        try:
            made.mkdir()
        except OSError:
            continue
        try:
            (made / file).write_text(str(400 * 2**20))
            yield made
            return
        except OSError:
            continue
        finally:
            made.rmdir()
    pytest.skip("no control group can be made here")


@pytest.mark.heavy
def test_a_control_group_of_this_machine_counts(group):
    """As Slurm makes one for a job: the recipe is refused before the kernel ends its run."""
    program = (
        "import os, sys; from pathlib import Path\n"
        "Path(sys.argv[1], 'cgroup.procs').write_text(str(os.getpid()))\n"
        "from sampler.cli import main; sys.exit(main(['check', 'runs/quickstart.toml']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, group], cwd=ROOT, env=environment(None), text=True,
        capture_output=True,
    )  # fmt: skip
    assert "needed of 400 MiB: most of it, 1 GiB, for the program" in done.stderr
    assert done.returncode == 2
