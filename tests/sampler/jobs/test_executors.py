"""Workers of a sweep: this process, others, a Dask cluster that is not there."""

import subprocess
import sys
from pathlib import Path

import pytest

from sampler.errors import ExitCode, InputError, RequeueError
from sampler.jobs.executors import dask_executors
from sampler.jobs.plan import make_plan
from sampler.jobs.sweep import start_sweep
from sampler.settings.recipe import load_recipe
from tests import ROOT
from tests.commands import TINY_SAMPLED, AfterChunks, assert_same_bits, environment, in_process
from tests.sampler.jobs.slurm_cluster import free_port

OVER = ("--over", "network.widths=4,5")


@pytest.fixture
def recipe(tmp_path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY_SAMPLED)
    return path


@pytest.mark.heavy
def test_no_point_is_begun_after_a_request_to_stop(recipe, tmp_path):
    out = tmp_path / "out"
    plan = make_plan("run", load_recipe(recipe, [], [OVER[1]]), out, figures=False)
    with pytest.raises(RequeueError):
        start_sweep(plan, AfterChunks(2))
    assert [path.name for path in out.iterdir() if path.is_dir()] == ["network.widths=4"]


@pytest.mark.heavy
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
    with pytest.raises(InputError) as refused, dask_executors("tcp://127.0.0.1:1"):
        pass
    assert refused.value.field == "--scheduler"


WORKERS = """
from sampler.errors import InputError
from sampler.jobs.executors import worker_processes
try:
    with worker_processes(2) as make:
        make()
except InputError as problem:
    print(problem.field)
"""


def test_workers_without_shared_memory_are_refused_by_their_option():
    """In containers /dev/shm may be full, or not to be written."""
    words = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$@"']
    try:
        done = subprocess.run([*words, "sh", sys.executable, "-c", WORKERS], cwd=ROOT,
                              capture_output=True, text=True)  # fmt: skip
    except FileNotFoundError:
        pytest.skip("no program `unshare`")
    if done.returncode:
        pytest.skip(f"the superuser alone can: {done.stderr}")
    assert done.stdout == "--workers\n"


CALLER = """
import multiprocessing, os, time
from pathlib import Path
from sampler.jobs.executors import worker_processes

def wait(place):
    Path(place, f"begun-{os.getpid()}").touch()
    time.sleep(120)

if __name__ == "__main__":
    mine = multiprocessing.get_context("spawn").Process(target=wait, args=("mine",), daemon=True)
    mine.start()
    try:
        with worker_processes(2) as make:
            make().submit(wait, "workers")
            while not list(Path().glob("*/begun-*"))[1:]:
                time.sleep(0.05)
            workers = {each.pid for each in multiprocessing.active_children()} - {mine.pid}
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    alive = {each.pid for each in multiprocessing.active_children()}
    print(mine.is_alive(), len(workers), len(workers & alive))
    mine.kill()
"""


def test_a_sweep_that_raises_ends_its_own_workers_and_no_other_process(tmp_path):
    """At once, as Ctrl-C asks for; the processes that the caller began go on."""
    script = tmp_path / "caller.py"
    script.write_text(CALLER)
    for name in ("mine", "workers"):
        (tmp_path / name).mkdir()
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True,
                          env=environment(None) | {"PYTHONPATH": str(ROOT)},
                          text=True, timeout=100)  # fmt: skip
    mine_is_alive, workers, left = done.stdout.split()
    assert mine_is_alive == "True", done.stderr
    assert int(workers) >= 1
    assert int(left) == 0


# Dask warns of ports and loops that it closes late.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scheduler_that_does_not_answer_is_named(recipe, tmp_path, monkeypatch, capsys):
    pytest.importorskip("distributed")
    monkeypatch.setattr("sampler.jobs.executors.CONNECT_SECONDS", 1)
    arguments = (*OVER, "--scheduler", "tcp://127.0.0.1:1", "--out", tmp_path / "out")
    assert in_process("sweep", recipe, *arguments) == ExitCode.BAD_INPUT
    assert "--scheduler = " in capsys.readouterr().err
