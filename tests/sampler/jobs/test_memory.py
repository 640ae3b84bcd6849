"""Memory: its limits, wherever they are set, and what a plan takes, before anything is built."""

import os
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.jobs import memory, plan
from sampler.jobs.memory import (
    UNTOUCHED_BYTES,
    Part,
    available_bytes,
    draw_bytes,
    group_limits,
    memory_parts,
)
from sampler.jobs.plan import Plan, make_plan
from sampler.jobs.sizes import Sizes
from sampler.mcmc.collected_draws import PREDICTOR_BYTES
from sampler.storage.manifest import most_memory
from tests import ROOT
from tests.commands import TINY, environment, loader

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


MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("option", "mapped", "expected"),
    [("AS", UNTOUCHED_BYTES, 2**28), ("DATA", 0, 2**28), ("CORE", 0, MACHINE)],
)
def test_limits_of_a_shell_count(option, mapped, expected, monkeypatch, tmp_path):
    """What is only mapped counts for `ulimit -v`; without a limit it is that of the machine."""
    assert not list(group_limits(tmp_path / "no file"))
    most = {getattr(resource, f"RLIMIT_{option}"): mapped + 2**28}
    limit = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda each: (most.get(each, limit),) * 2)
    monkeypatch.setattr(memory, "group_limits", lambda: [])
    assert available_bytes() == expected


# --- plans

GIB = 2**30


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """The small recipe with some settings, and its data."""
    return loader(tmp_path_factory.mktemp("memory"), TINY)


def planned(recipe) -> Plan:
    """The plan of `run`."""
    return make_plan("run", recipe)


def test_draws_beyond_what_is_kept_take_less(load):
    """Of three predictors all draws of few numbers, every eighth of many, up to a limit."""

    def predictors(draws: int, examples: int) -> tuple[float, int]:
        """Bytes without eight statistics and 4 + 1 + 1 order parameters; draws of all chains."""
        size = f"task.examples_test={examples}", f"sampler.draws={draws}"
        recipe, task = load("sampler.space=order_parameters", "sampler.weight_draws=0", *size)
        every = recipe.sampler.chain_count * draws
        return draw_bytes(recipe, Sizes.of(recipe, task)) - every * (8 + 6) * 8, every

    kept, every = predictors(100, 60)
    assert kept == 3 * every * 60 * 4
    kept, every = predictors(100_000, 1000)
    assert every // 8 * 1000 * 4 > PREDICTOR_BYTES
    assert kept == 3 * PREDICTOR_BYTES
    kept, every = predictors(1000, 1000)
    assert kept == 3 * every // 8 * 1000 * 4


def test_memory_grows_with_what_is_asked_for(load):
    """The kernel with the square of examples while they are fewer than features, then no more."""

    def kernel(examples):
        recipe, task = load(f"task.examples_train={examples}")
        parts = memory_parts(recipe, task, Sizes.of(recipe, task))
        sizes = {part.name: part.bytes for part in parts}
        return sizes["kernel K and its inverse"], task

    few, task = kernel(5)
    features = len(task.path_names) * task.channels
    assert few == 8 * 5**2
    assert kernel(4 * features)[0] == kernel(8 * features)[0] == 8 * features**2


def test_what_does_not_fit_is_refused_with_sizes_and_remedy(load, monkeypatch):
    recipe, _ = load()
    monkeypatch.setattr(memory, "available_bytes", lambda: 2.0 * GIB)
    large = Part("kernel K", 3.0 * GIB, "use fewer examples", 2)
    monkeypatch.setattr(plan, "memory_parts", lambda *_: [large, Part("data", 5.0, "")])
    with pytest.raises(InputError) as refused:
        planned(recipe)
    assert refused.value.field == "memory"
    assert refused.value.remedy.endswith(large.remedy)


def test_paths_of_a_network_without_a_theory_take_no_memory(load):
    """Of eight layers of eight heads there are 16.7 million; the network follows tokens."""
    recipe, _ = load("network.values=relu")
    heads = (("good", "random") * 4,) * 8
    attention = recipe.attention.model_copy(update={"heads": heads})
    deep = recipe.model_copy(update={"attention": attention})
    tracemalloc.start()
    try:
        plan = planned(deep)
        assert plan.sizes.architecture.path_count == 8**8
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
        assert memory.peak_bytes(plan.arrays) - memory.BASE_BYTES < 64 * 2**20
    finally:
        tracemalloc.stop()


def test_less_memory_than_the_program_takes_is_no_fault_of_the_recipe(load, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 400.0 * 2**20)
    with pytest.raises(InputError) as refused:
        planned(load()[0])
    assert refused.value.remedy.endswith(memory.PROGRAM.remedy)


def test_the_most_memory_of_a_process_is_in_bytes():
    """At least what an array holds, of which every page was written."""
    held = np.ones(2**23)
    assert held.nbytes < most_memory() < 2**20 * held.nbytes


def test_every_copy_counts_to_the_peak():
    parts = [memory.Part("features", 1e6, "", copies=3), memory.Part("draws", 5e5, "")]
    assert memory.peak_bytes(parts) - memory.peak_bytes([]) == 3.5e6


@pytest.mark.slow
def test_check_needs_little_whatever_the_recipe_asks(tmp_path):
    """A recipe of 20,000 sequences, whose kernel takes 3.2 GB, in seconds and below 1 GiB."""
    file = tmp_path / "large.toml"
    file.write_text(
        'name = "large"\ntask = {kind = "markov_chain", examples_train = 20000, tokens = 50}\n'
        'attention = {heads = [["good", "uniform", "random"], ["good", "uniform", "random"]]}\n'
        "network = {widths = 100}\nposterior = {temperature = 0.1}\n"
    )
    program = (
        "import sys; from sampler.cli import main; code = main(sys.argv[1:]); "
        "from sampler.storage.manifest import most_memory; print(most_memory()); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, "check", str(file)]
    done = subprocess.run(command, cwd=ROOT, env=environment(None), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < GIB
