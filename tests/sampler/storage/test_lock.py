"""Who may take a lock: on this host and on another one, with `flock` and without."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from sampler.errors import InputError
from sampler.storage import lock
from sampler.storage.lock import (
    LOCK_FILE,
    Holder,
    has_flock,
    living_holder,
    locked,
    remove_lock_of_lost_host,
)
from tests import ROOT

HOLD = """
import fcntl, os, pathlib, socket, sys
from sampler.storage.lock import locked
def refuse(*_):
    raise OSError({errno}, os.strerror({errno}))
if {errno}:
    fcntl.flock = refuse
if "{host}":
    socket.gethostname = lambda: "{host}"
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""
ELSEWHERE = "other.example"


@pytest.fixture(params=[0, errno.ENOSYS], ids=["flock", "no flock"])
def missing(request, monkeypatch):
    """The error of `flock` where the file system has none, 0 where it works."""

    def refuse(*_):
        raise OSError(request.param, os.strerror(request.param))

    if request.param:
        monkeypatch.setattr(fcntl, "flock", refuse)
    return request.param


def holder(directory, missing, host="") -> subprocess.Popen:
    """A process that holds the directory, as one of another host where a name is given."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(errno=missing, host=host), directory],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout.readline() == "held\n"
    return process


def may_take(directory) -> bool:
    """Whether this process can hold the directory."""
    try:
        with locked(directory):
            written = json.loads((directory / LOCK_FILE).read_text())
            assert written == {"host": socket.gethostname(), "pid": os.getpid()}
    except InputError as refused:
        if "is in use by process" in refused.remedy:
            return False
        raise
    assert not list(directory.iterdir())
    return True


# host of the holder, whether it runs, and whether who comes may take the lock: as anybody, and as
# the one process that a scheduler gives the point to
CASES = [
    ("", True, False, False),
    ("", False, True, True),
    (ELSEWHERE, True, False, False),
    (ELSEWHERE, False, False, True),
]


@pytest.mark.heavy
@pytest.mark.parametrize("clock", [-3600.0, 0.0, 3600.0])
@pytest.mark.parametrize(("host", "runs", "anybody", "alone"), CASES)
def test_who_may_take_it(tmp_path, missing, host, runs, anybody, alone, clock):
    if missing and runs and host:
        alone = True  # nothing tells that it runs: what a scheduler says is believed
    with holder(tmp_path, missing, host) as process:
        if not runs:
            process.kill()
            process.wait()
        # The clock of its host is wrong, or has been set since.
        stamp = (tmp_path / LOCK_FILE).stat().st_mtime + clock
        os.utime(tmp_path / LOCK_FILE, (stamp, stamp))
        shown = living_holder(tmp_path)
        expected = Holder(host or socket.gethostname(), process.pid)
        assert shown == (expected if runs or host else None)
        received = [may_take(tmp_path)]
        if not received[0]:
            remove_lock_of_lost_host(tmp_path)
            received.append(may_take(tmp_path))
        process.kill()
    assert received == ([True] if anybody else [False, alone])


@pytest.mark.heavy
def test_without_flock_one_of_many_takes_what_was_left_behind(tmp_path, missing):
    """Threads of one process stand for processes; every one of them finds the same dead holder."""
    taken, together, done = [], threading.Barrier(16), threading.Barrier(16)

    def contend(number: int) -> None:
        together.wait()
        try:
            with locked(tmp_path):
                taken.append(number)
                done.wait()
        except InputError:
            done.wait()

    for _ in range(20):
        with subprocess.Popen([sys.executable, "-c", ""]) as ended:
            pass
        content = {"host": socket.gethostname(), "pid": ended.pid}
        (tmp_path / LOCK_FILE).write_text(json.dumps(content))
        threads = [threading.Thread(target=contend, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 1
        taken.clear()
        assert not list(tmp_path.iterdir())


def test_an_empty_lock_is_nobodys(tmp_path, missing):
    """A full disk took the name and not the content."""
    (tmp_path / LOCK_FILE).touch()
    assert may_take(tmp_path)


def test_an_error_that_is_not_the_lack_of_flock_is_reported(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    assert has_flock(tmp_path)
    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with pytest.raises(InputError, match="Input/output error"), locked(tmp_path):
        pass


def test_a_look_at_what_was_left_behind_keeps_nobody_away(tmp_path, monkeypatch):
    """`status` locks the file for a moment to see whether its holder still runs."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    path = tmp_path / LOCK_FILE
    path.write_text(json.dumps({"host": socket.gethostname(), "pid": ended.pid}))
    with path.open() as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        threading.Timer(0.2, fcntl.flock, (look, fcntl.LOCK_UN)).start()
        assert may_take(tmp_path)
    path.write_text(json.dumps({"host": socket.gethostname(), "pid": ended.pid}))
    monkeypatch.setattr(lock, "SECONDS_TO_LOOK", 0.1)
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not may_take(tmp_path)  # not for ever, if it is held by what nobody knows


def test_a_process_of_somebody_else_runs(tmp_path, monkeypatch):
    """Where there is no `flock`, its number is asked for; the answer may be a refusal."""

    def lacks(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def refuses(pid, sent):
        assert (pid, sent) == (ended.pid, 0)
        raise PermissionError

    monkeypatch.setattr(fcntl, "flock", lacks)
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = Holder(socket.gethostname(), ended.pid)
    (tmp_path / LOCK_FILE).write_text(json.dumps({"host": left.host, "pid": left.pid}))
    assert living_holder(tmp_path) is None
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", refuses)
        assert living_holder(tmp_path) == left
        assert not may_take(tmp_path)
    assert may_take(tmp_path)
