"""Limits of memory, wherever a scheduler, a container or a shell sets them."""

import os
import resource
from pathlib import Path

import pytest

from sampler.jobs.memory import (
    LIMIT_FILES,
    UNTOUCHED_BYTES,
    available_bytes,
    group_limits,
)

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
@pytest.mark.parametrize("limited", ["", "slurm/job_1"])
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
        ("/docker/abc", "/docker/abc"),  # one that sees the paths of its host
        ("/../outside", "/"),  # a process that was moved out of what it sees
    ],
)
def test_a_container_finds_the_limit_at_its_top(kind, path, root, tmp_path):
    process = described(tmp_path, kind, path, root)
    limit(kind, tmp_path / "groups", 5000)
    limit(kind, tmp_path, 1000)  # above what is mounted
    assert list(group_limits(process)) == [5000]


@pytest.mark.parametrize(("option", "mapped"), [("AS", UNTOUCHED_BYTES), ("DATA", 0)])
def test_limits_of_a_shell_count(option, mapped, tmp_path, monkeypatch):
    """What is only mapped counts for `ulimit -v` and takes no memory."""
    most = {getattr(resource, f"RLIMIT_{option}"): mapped + 2**28}
    limit = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda each: (most.get(each, limit),) * 2)
    assert available_bytes(tmp_path) == 2**28


def test_without_a_limit_it_is_the_memory_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    pages = os.sysconf("SC_PHYS_PAGES")
    assert available_bytes(tmp_path) == pages * os.sysconf("SC_PAGE_SIZE")
