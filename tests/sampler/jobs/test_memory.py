"""Limits of memory, wherever a scheduler, a container or a shell sets them."""

import os
import resource
from pathlib import Path

import pytest

from sampler.jobs import memory
from sampler.jobs.memory import UNTOUCHED_BYTES, available_bytes, group_limits

# Version of control groups → where their hierarchy is mounted, file of a limit, text of none.
KINDS = {
    1: ("groups/memory", "memory.limit_in_bytes", "9223372036854771712"),
    2: ("groups", "memory.max", "max"),
}


def described(tmp_path: Path, kind: int, path: str) -> Path:
    """A file like /proc/self/cgroup, of a process in this group."""
    groups = tmp_path / "cgroup"
    lines = {1: f"4:hugetlb,memory:{path}\n2:cpu:/elsewhere\n", 2: f"0::{path}\n"}
    groups.write_text(lines[kind])
    return groups


def limit(folder: Path, kind: int, value: int | str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / KINDS[kind][1]).write_text(f"{value}\n")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limited", ["", "slurm/job_1"])
def test_the_limit_of_any_group_around_a_process_counts(kind, limited, tmp_path):
    process = described(tmp_path, kind, "/slurm/job_1/step_0")
    mounted, _, unlimited = KINDS[kind]
    top = tmp_path / mounted
    for folder in ("", "slurm", "slurm/job_1", "slurm/job_1/step_0", "slurm/job_2"):
        limit(top / folder, kind, unlimited)
    limit(top / "slurm/job_2", kind, 1000)  # another job
    limit(top / limited, kind, 400 * 2**20)
    assert min(group_limits(process, tmp_path / "groups")) == 400 * 2**20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["/docker/abc", "/../outside"])
def test_a_container_finds_the_limit_at_its_top(kind, path, tmp_path):
    """One that sees the paths of its host, or a process that was moved out of what it sees."""
    process, (mounted, *_) = described(tmp_path, kind, path), KINDS[kind]
    limit(tmp_path / mounted, kind, 5000)
    assert list(group_limits(process, tmp_path / "groups")) == [5000]


@pytest.mark.parametrize(("option", "mapped"), [("AS", UNTOUCHED_BYTES), ("DATA", 0)])
def test_limits_of_a_shell_count(option, mapped, monkeypatch):
    """What is only mapped counts for `ulimit -v` and takes no memory."""
    most = {getattr(resource, f"RLIMIT_{option}"): mapped + 2**28}
    limit = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda each: (most.get(each, limit),) * 2)
    monkeypatch.setattr(memory, "group_limits", lambda: [])
    assert available_bytes() == 2**28


def test_without_a_limit_it_is_the_memory_of_the_machine(tmp_path, monkeypatch):
    assert not list(group_limits(tmp_path / "no file"))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    monkeypatch.setattr(memory, "group_limits", lambda: [])
    pages = os.sysconf("SC_PHYS_PAGES")
    assert available_bytes() == pages * os.sysconf("SC_PAGE_SIZE")
