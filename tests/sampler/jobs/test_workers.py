"""Workers of a sweep: this process, others, a Dask cluster that is not there."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sampler.errors import ExitCode, InputError
from sampler.jobs.dask_workers import dask_client
from sampler.jobs.interruption import Interruption
from sampler.jobs.plan import make_plan
from sampler.jobs.sweep import start_sweep
from sampler.jobs.workers import (
    MOST_ATTEMPTS,
    Assignment,
    Outcomes,
    PointOutcome,
    by_workers,
    refuse_what_workers_lack,
    walk,
)
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import RECIPE_FILE
from tests import ROOT
from tests.commands import TINY_SAMPLED, assert_same_bits, environment, in_process
from tests.processes.slurm_cluster import free_port

OVER = ("--over", "network.widths=4,5")


@pytest.fixture
def recipe(tmp_path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY_SAMPLED)
    return path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_threads_of_a_dask_worker_do_what_one_does(tmp_path):
    """NumPyro's handlers are one list for all threads; both points sample a NumPyro model by it."""
    pytest.importorskip("distributed")
    recipe = tmp_path / "weights.toml"
    of_weights = ('algorithm = "nuts"\nmax_tree_depth = 3\nspace = "weights"',)
    recipe.write_text(TINY_SAMPLED.replace('algorithm = "hmc"\nleapfrog_steps = 3', *of_weights))
    words = "sweep", recipe, *OVER, "--no-figures"
    expected = in_process(*words, "--out", tmp_path / "here")
    address, started = f"tcp://127.0.0.1:{free_port()}", []

    def start(*words: str) -> None:
        whole = [sys.executable, "-m", "dask", *words, "--no-dashboard"]
        variables = environment(None) | {"PYTHONPATH": str(ROOT)}
        started.append(subprocess.Popen(whole, cwd=tmp_path, env=variables))

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2])
        start("worker", address, "--nthreads", "2")
        dask = tmp_path / "dask"
        assert in_process(*words, "--out", dask, "--scheduler", address) == expected
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(60)
    for label in ("network.widths=4", "network.widths=5"):
        assert_same_bits(dask / label, tmp_path / "here" / label)


def test_missing_dask_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError) as refused, dask_client("tcp://127.0.0.1:1"):
        pass
    assert refused.value.field == "--scheduler"


# Walks three points as a worker does, and is killed at the second one.
WALKER = """
import os, signal
from pathlib import Path
from sampler.errors import ExitCode
from sampler.jobs.interruption import Interruption
from sampler.jobs.workers import Outcomes, PointOutcome, walk

def do(point):
    if point == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return PointOutcome(ExitCode.OK)

for point, outcome in walk(Outcomes(Path()), range(3), do, Interruption()):
    print(point, int(outcome.code), flush=True)
"""


def python(program: str, folder: Path, **options) -> subprocess.Popen:
    variables = environment(None) | {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", program]
    return subprocess.Popen(
        words, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True, **options
    )


@pytest.mark.slow
def test_a_point_that_kills_its_workers_is_given_up_and_the_others_are_done(tmp_path):
    printed = []
    for _ in range(MOST_ATTEMPTS + 1):
        worker = python(WALKER, tmp_path)
        printed.append(worker.communicate()[0].split())
        codes = [*[-signal.SIGKILL] * MOST_ATTEMPTS, 0]
        assert worker.returncode == codes[len(printed) - 1]
    assert printed == [["0", "0"], [], [], ["1", "1", "2", "0"]]
    stored = json.loads((tmp_path / "1.json").read_text())
    assert (stored["code"], stored["attempts"]) == (ExitCode.INTERNAL_ERROR, MOST_ATTEMPTS)
    assert stored["problem"]


def test_workers_leave_what_another_holds_or_has_ended(tmp_path):
    """The second walks while the first is at its second point."""
    begun = Outcomes.begun(tmp_path, Assignment("run", (0, 1, 2)))
    other = Outcomes(begun.folder)
    done = []

    def do(point: int) -> PointOutcome:
        done.append(point)
        if point == 1 and 2 not in done:
            list(walk(other, range(3), do, Interruption()))
        return PointOutcome(ExitCode.OK)

    ended = [point for point, _ in walk(begun, range(3), do, Interruption())]
    assert (done, ended) == ([0, 1, 2], [0, 1])
    assert not list(walk(Outcomes(tmp_path / "new"), range(3), do, Interruption(lambda: True)))
    assert begun.ended() == {0, 1, 2}


def test_a_point_that_a_signal_stopped_has_no_outcome_and_no_attempt(tmp_path):
    begun = Outcomes.begun(tmp_path, Assignment("run", (0,)))
    for _ in range(MOST_ATTEMPTS + 1):
        begun.attempt(0, lambda: PointOutcome(ExitCode.REQUEUE))
    assert begun.of(0) is None
    begun.attempt(0, lambda: PointOutcome(ExitCode.OK))
    assert begun.of(0) == PointOutcome(ExitCode.OK)
    with begun.turn(0) as taken:  # it came while another one waited for the lock
        assert not taken


ORPHAN = """
import threading, time
from sampler.jobs.workers import end_with_parent
threading.Thread(target=end_with_parent, daemon=True).start()
print("waits", flush=True)
time.sleep(100)
"""


@pytest.mark.slow
def test_a_worker_ends_with_the_pipe_of_its_command(tmp_path):
    with python(ORPHAN, tmp_path, stdin=subprocess.PIPE) as worker:
        assert worker.stdout.readline() == "waits\n"
        assert worker.poll() is None
        worker.stdin.close()
        assert worker.wait(20) == ExitCode.REQUEUE


@pytest.mark.slow
def test_points_whose_workers_cannot_begin_fail_with_their_reason(tmp_path):
    """As where a recipe is spoilt after it was checked: no worker is begun again and again."""
    (tmp_path / RECIPE_FILE).write_text("spoilt")
    received = list(by_workers(tmp_path, 2, Interruption(), Assignment("run", (0, 1))))
    assert [(point, outcome.code) for point, outcome in received] == [
        (0, ExitCode.BAD_INPUT), (1, ExitCode.BAD_INPUT)
    ]  # fmt: skip
    assert all(RECIPE_FILE in outcome.problem for _, outcome in received)


@pytest.mark.parametrize("where", [{"workers": 2}, {"scheduler": "tcp://127.0.0.1:1"}], ids=str)
def test_what_a_script_has_registered_is_refused_by_name(where, recipe, tmp_path, monkeypatch):
    """What no recipe here asks for is not."""
    monkeypatch.setattr(ALGORITHMS, "_entries", dict(ALGORITHMS._entries))
    ALGORITHMS.register("mine", "sampler.mcmc.hamiltonian:StaticHmc")
    swept = load_recipe(recipe, [], [OVER[1]])
    plan = make_plan("run", swept, tmp_path / "out", figures=False)
    refuse_what_workers_lack(plan, "--workers", 2)
    mine = make_plan("run", load_recipe(recipe, ["sampler.algorithm=mine"], [OVER[1]]),
                     tmp_path / "out", figures=False)  # fmt: skip
    with pytest.raises(InputError) as refused:
        start_sweep(mine, Interruption(), **where)
    (option,) = where
    assert refused.value.field == f"--{option}"
    assert "'mine'" in refused.value.remedy
    assert not (tmp_path / "out").exists()


# Dask warns of ports and loops that it closes late.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scheduler_that_does_not_answer_is_named(recipe, tmp_path, monkeypatch, capsys):
    pytest.importorskip("distributed")
    monkeypatch.setattr("sampler.jobs.dask_workers.CONNECT_SECONDS", 1)
    arguments = (*OVER, "--scheduler", "tcp://127.0.0.1:1", "--out", tmp_path / "out")
    assert in_process("sweep", recipe, *arguments) == ExitCode.BAD_INPUT
    assert "--scheduler = " in capsys.readouterr().err
