"""Workers of a sweep: this process, others, a Dask cluster."""

import subprocess
import sys
from pathlib import Path

import pytest

from sampler.analysis.quantities import QUANTITIES
from sampler.errors import ExitCode, InputError
from sampler.jobs.interruption import Interruption
from sampler.jobs.plan import make_plan
from sampler.jobs.sweep import start_sweep
from sampler.jobs.workers import (
    MOST_ATTEMPTS,
    Assignment,
    Outcomes,
    PointOutcome,
    PointPlans,
    by_workers,
    walk,
)
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import RECIPE_FILE
from tests import ROOT
from tests.commands import TINY_SAMPLED, assert_same_bits, environment, in_process
from tests.processes.test_a_slurm_cluster import free_port

OVER = ("--over", "network.widths=4,5")
FINE = PointOutcome(ExitCode.OK)


@pytest.fixture
def recipe(tmp_path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY_SAMPLED)
    return path


class Killed(BaseException):
    """The worker ends here."""


def test_a_point_that_kills_its_workers_is_given_up_and_the_others_are_done(tmp_path):
    outcomes, done = Outcomes(tmp_path), []

    def do(point: int) -> PointOutcome:
        done.append(point)
        if point == 1:
            raise Killed
        return FINE

    for _ in range(MOST_ATTEMPTS):
        with pytest.raises(Killed):
            list(walk(outcomes, range(3), do, Interruption()))
    ended = dict(walk(outcomes, range(3), do, Interruption()))
    assert done == [0, *[1] * MOST_ATTEMPTS, 2]
    assert {point: one.code for point, one in ended.items()} == {
        1: ExitCode.INTERNAL_ERROR, 2: ExitCode.OK
    }  # fmt: skip


def test_workers_leave_what_another_holds_or_has_ended(tmp_path):
    """The second walks while the first is at its second point."""
    begun = Outcomes.begun(tmp_path, Assignment("run", (0, 1, 2)))
    other, done = Outcomes(begun.folder), []

    def do(point: int) -> PointOutcome:
        done.append(point)
        if point == 1 and 2 not in done:
            list(walk(other, range(3), do, Interruption()))
        return FINE

    ended = [point for point, _ in walk(begun, range(3), do, Interruption())]
    assert (done, ended) == ([0, 1, 2], [0, 1])
    assert begun.ended() == {0, 1, 2}


def test_a_point_that_a_signal_stopped_has_no_outcome_and_no_attempt(tmp_path):
    outcomes = Outcomes(tmp_path)
    for _ in range(MOST_ATTEMPTS + 1):
        outcomes.attempt(0, lambda: PointOutcome(ExitCode.REQUEUE))
    assert outcomes.of(0) is None
    outcomes.attempt(0, lambda: FINE)
    assert outcomes.of(0) == FINE
    with outcomes.turn(0) as taken:  # it came while another one waited for the lock
        assert not taken


ORPHAN = """
import threading, time
from sampler.jobs.workers import end_with_parent
threading.Thread(target=end_with_parent, daemon=True).start()
print("waits", flush=True)
time.sleep(100)
"""


@pytest.mark.slow
def test_a_worker_ends_with_the_pipe_of_its_command():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", ORPHAN], cwd=ROOT, **pipes) as worker:
        assert worker.stdout.readline() == "waits\n"
        assert worker.poll() is None
        worker.stdin.close()
        assert worker.wait(20) == ExitCode.REQUEUE


@pytest.mark.slow
def test_points_whose_workers_cannot_begin_fail_with_their_reason(tmp_path):
    """As where a recipe is spoilt after it was checked: no worker is begun again and again."""
    (tmp_path / RECIPE_FILE).write_text("spoilt")
    received = list(by_workers(tmp_path, 2, Interruption(), Assignment("run", (0, 1))))
    assert [(point, one.code) for point, one in received] == [
        (0, ExitCode.BAD_INPUT), (1, ExitCode.BAD_INPUT)
    ]  # fmt: skip
    assert all(RECIPE_FILE in one.problem for _, one in received)


@pytest.mark.parametrize(
    ("table", "entry", "settings"),
    [
        (ALGORITHMS, "sampler.mcmc.hamiltonian:StaticHmc", ["sampler.algorithm=mine"]),
        (QUANTITIES, QUANTITIES["accuracy"], []),  # which every run has
    ],
)
def test_what_a_script_has_registered_is_refused_by_name(
    table, entry, settings, recipe, tmp_path, monkeypatch
):
    """Workers are other processes, which do not know it."""
    monkeypatch.setattr(table, "_entries", dict(table._entries))
    table.register("mine", entry)
    asked = load_recipe(recipe, settings, [OVER[1]])
    with pytest.raises(InputError) as refused:
        start_sweep(make_plan("run", asked, tmp_path / "out"), Interruption(), workers=2)
    assert refused.value.field == "--workers"
    assert "'mine'" in refused.value.remedy
    assert not (tmp_path / "out").exists()


def test_the_log_of_a_point_has_what_it_failed_by(recipe, tmp_path, monkeypatch):
    """And the other points are done."""

    def fail(plan, _):
        plan.directory.mkdir()
        (plan.directory / RECIPE_FILE).touch()
        raise ZeroDivisionError("nothing to\ndivide by")

    swept = load_recipe(recipe, [], [OVER[1]])
    (tmp_path / RECIPE_FILE).write_text(swept.to_toml())
    plans = PointPlans(tmp_path, Assignment("run", (0, 1)))
    monkeypatch.setattr("sampler.jobs.workers.start_run", fail)
    for point in range(2):
        outcome = plans.do(Interruption(), point)
        assert outcome.code == ExitCode.INTERNAL_ERROR
        assert "ZeroDivisionError: nothing to divide by" in outcome.problem
        log = (plans.folder(point) / "run.log").read_text()
        assert "Traceback" in log
        assert "in fail" in log


# --- a Dask cluster, which warns of ports and loops that it closes late


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
