"""Memory: its limits, wherever they are set, and what a plan takes, before anything is built."""

import os
import resource
import tracemalloc

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.jobs import memory
from sampler.jobs.memory import (
    UNTOUCHED_BYTES,
    Part,
    available_bytes,
    draw_bytes,
    group_limits,
    memory_parts,
)
from sampler.jobs.plan import make_plan
from sampler.jobs.sizes import Sizes
from sampler.mcmc.collected_draws import PREDICTOR_BYTES
from sampler.storage.manifest import most_memory
from tests.commands import TINY, loader

MIB, GIB = 2**20, 2**30
# Version of control groups → where their hierarchy is mounted, file of a limit, text of none, and
# how /proc/self/cgroup names the group of a process.
KINDS = {
    1: ("groups/memory", "memory.limit_in_bytes", "9223372036854771712",
        "4:hugetlb,memory:{}\n2:cpu:/elsewhere\n"),
    2: ("groups", "memory.max", "max", "0::{}\n"),
}  # fmt: skip
JOB = ("slurm", "slurm/job_1", "slurm/job_1/step_0", "slurm/job_2")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("path", "limited"),
    [
        ("/slurm/job_1/step_0", "slurm/job_1"),
        ("/slurm/job_1/step_0", ""),
        ("/docker/abc", ""),  # a container that sees the paths of its host
        ("/../outside", ""),  # a process that was moved out of what it sees
    ],
)
def test_the_limit_of_any_group_around_a_process_counts(kind, path, limited, tmp_path):
    """And that of another job does not."""
    mounted, file, unlimited, described = KINDS[kind]
    limits = dict.fromkeys(("", *JOB), unlimited) | {"slurm/job_2": 1000, limited: 400 * MIB}
    for folder, limit in limits.items():
        (tmp_path / mounted / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / mounted / folder / file).write_text(f"{limit}\n")
    (tmp_path / "cgroup").write_text(described.format(path))
    assert min(group_limits(tmp_path / "cgroup", tmp_path / "groups")) == 400 * MIB


MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("option", "mapped", "expected"),
    [("AS", UNTOUCHED_BYTES, 2**28), ("DATA", 0, 2**28), ("CORE", 0, MACHINE)],
)
def test_limits_of_a_shell_count(option, mapped, expected, monkeypatch):
    """What is only mapped counts for `ulimit -v`; without a limit it is that of the machine."""
    most = {getattr(resource, f"RLIMIT_{option}"): mapped + 2**28}
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda each: (most.get(each, unlimited),) * 2)
    monkeypatch.setattr(memory, "group_limits", lambda: [])
    assert available_bytes() == expected


# --- plans


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """The small recipe with some settings, and its data."""
    return loader(tmp_path_factory.mktemp("memory"), TINY)


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
    kept, every = predictors(1000, 1000)
    assert kept == 3 * every // 8 * 1000 * 4
    kept, every = predictors(100_000, 1000)
    assert kept == 3 * PREDICTOR_BYTES < 3 * every // 8 * 1000 * 4


def test_the_kernel_grows_with_the_square_of_examples_until_they_are_more_than_features(load):
    def kernel(examples):
        recipe, task = load(f"task.examples_train={examples}")
        parts = memory_parts(recipe, task, Sizes.of(recipe, task))
        sizes = {part.name: part.bytes for part in parts}
        return sizes["kernel K and its inverse"], len(task.path_names) * task.channels

    few, features = kernel(5)
    assert few == 8 * 5**2
    assert kernel(4 * features)[0] == kernel(8 * features)[0] == 8 * features**2


def test_weights_and_attention_that_are_sampled_are_held_of_every_chain(load):
    def held(chains):
        learned, named = 'attention.heads=[["learned", "random"]]', "sampler.algorithm=split_hmc"
        recipe, task = load(learned, named, "sampler.space=weights", f"sampler.chains={chains}")
        parts = memory_parts(recipe, task, Sizes.of(recipe, task))
        return {part.name: part.held() for part in parts}

    few, many = held(2), held(6)
    for name in ("weights of all chains", "logit weights of all chains", "attention in a gradient"):
        assert many[name] == 3 * few[name]


@pytest.mark.parametrize(
    ("part", "available", "remedy"),
    [
        (Part("kernel K", 3.0 * GIB, "use fewer examples", 2), 6.0 * GIB, "use fewer examples"),
        # Less than the program takes is no fault of the recipe.
        (Part("kernel K", 5.0, "use fewer examples"), 400.0 * MIB, memory.PROGRAM.remedy),
    ],
)
def test_what_does_not_fit_is_refused_with_its_remedy(part, available, remedy, load, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: available)
    monkeypatch.setattr("sampler.jobs.plan.memory_parts", lambda *_: [part, Part("data", 5.0, "")])
    with pytest.raises(InputError) as refused:
        make_plan("run", load()[0])
    assert refused.value.field == "memory"
    assert refused.value.remedy.endswith(remedy)


def test_every_copy_counts_to_the_peak():
    parts = [Part("features", 1e6, "", copies=3), Part("draws", 5e5, "")]
    assert memory.peak_bytes(parts) - memory.peak_bytes([]) == 3.5e6


def test_paths_of_a_network_without_a_theory_take_no_memory(load):
    """Of eight layers of eight heads there are 16.7 million; the network follows tokens."""
    recipe, _ = load("network.values=relu")
    heads = (("good", "random") * 4,) * 8
    attention = recipe.attention.model_copy(update={"heads": heads})
    tracemalloc.start()
    try:
        plan = make_plan("run", recipe.model_copy(update={"attention": attention}))
        assert plan.sizes.architecture.path_count == 8**8
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
        assert memory.peak_bytes(plan.arrays) - memory.BASE_BYTES < 64 * MIB
    finally:
        tracemalloc.stop()


def test_the_most_memory_of_a_process_is_in_bytes():
    """At least what an array holds, of which every page was written."""
    held = np.ones(2**23)
    assert held.nbytes < most_memory() < 2**20 * held.nbytes
