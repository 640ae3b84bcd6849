"""Memory that this process may have: of the machine, of its control groups, by its own limits.

A scheduler or a container limits the group of a process, or one of those around it. Where each is:
the file `cgroup` of a process has its path in every hierarchy, `mountinfo` where a hierarchy is
mounted, and which part of it.
"""

import os
import re
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

PROCESS = Path("/proc/self")
# The files with the limit of a group, in versions 1 and 2.
LIMIT_FILES = {"cgroup": "memory.limit_in_bytes", "cgroup2": "memory.max"}
# What a run maps and does not touch, on two cores: libraries, stacks, what allocators hold ready.
UNTOUCHED_BYTES = 1.3 * 2**30


def available_bytes(process: Path = PROCESS) -> float:
    """Memory that this process may have at most."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return float(min([machine, *group_limits(process), *own_limits()]))


def own_limits() -> Iterator[float]:
    """Limits that the process has itself, as `ulimit -v` and `ulimit -d` set them."""
    for kind, untouched in ((resource.RLIMIT_AS, UNTOUCHED_BYTES), (resource.RLIMIT_DATA, 0.0)):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY:
            yield max(0.0, limit - untouched)


def group_limits(process: Path = PROCESS) -> Iterator[int]:
    """Limits of the control groups of a process, and of all groups around them that are seen."""
    for top, group, file in memory_groups(process):
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # no such file, or no limit
                yield int((folder / file).read_text(encoding="ascii"))
            if folder == top:
                break


def memory_groups(process: Path) -> Iterator[tuple[Path, Path, str]]:
    """The top of each hierarchy that limits memory, the folder of the group, and its file."""
    try:
        memberships = (process / "cgroup").read_text(errors="replace").splitlines()
        mounts = (process / "mountinfo").read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return
    paths = {}
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            paths["cgroup2"] = path
        elif "memory" in controllers.split(","):
            paths["cgroup"] = path
    for line in mounts:
        about, _, of_type = line.partition(" - ")
        kind, _, options = of_type.split(" ", 2)
        if kind not in paths or (kind == "cgroup" and "memory" not in re.split("[ ,]", options)):
            continue
        root, top = (unescaped(part) for part in about.split(" ")[3:5])
        inside = PurePosixPath(paths[kind])
        # Where another part of the hierarchy is mounted, a container sees its own group there.
        there = inside.is_relative_to(root) and ".." not in inside.parts
        yield Path(top), Path(top, inside.relative_to(root) if there else ""), LIMIT_FILES[kind]


def unescaped(text: str) -> str:
    r"""A name as `mountinfo` has it, where \040 is a space."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
