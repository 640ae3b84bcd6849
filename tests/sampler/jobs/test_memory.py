"""Memory: its limits, wherever they are set, and what a plan takes, before anything is built."""

import os
import resource
import tracemalloc

import numpy as np
import pytest

from sampler.data.make import build_task
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
from tests.recipes import DIGITS, learned_recipe

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


def test_outputs_have_rows_of_their_own_in_the_kernel():
    """Of three classes; inputs of two heads and one are read along two paths."""
    recipe = learned_recipe(DIGITS, (("random", "uniform"), ("random",)))
    task = build_task(recipe)
    parts = memory_parts(recipe, task, Sizes.of(recipe, task))
    sizes, rows = {part.name: part.bytes for part in parts}, 3 * DIGITS["examples_train"]
    assert sizes["kernel K and its inverse"] == 8 * rows**2
    assert sizes["features of all outputs"] == 8 * rows * 3 * 2 * task.channels


LEARNED = ('attention.heads=[["learned", "random"]]', "sampler.algorithm=split_hmc")


@pytest.fixture
def held(load):
    """A function from settings to the bytes of all arrays by name."""

    def held(*settings: str) -> dict[str, float]:
        recipe, task = load("sampler.space=weights", *settings)
        parts = memory_parts(recipe, task, Sizes.of(recipe, task))
        return {part.name.partition(",")[0]: part.held() for part in parts}

    return held


OF_CHAINS = ("weights of all chains", "logit weights of all chains", "attention in a gradient")
LABELS, LIMITS = "training labels in every draw", "kernels at infinite width"
RELU = ("network.values=relu", "sampler.algorithm=hmc")


@pytest.mark.parametrize(
    ("names", "shared", "few", "many", "ratio"),
    [
        (OF_CHAINS, LEARNED, "sampler.chains=2", "sampler.chains=6", 3),
        ((LABELS,), RELU, "sampler.chains=2", "sampler.chains=6", 3),
        ((LABELS,), RELU, "sampler.draws=20", "sampler.draws=80", 4),
        ((LABELS,), RELU, "task.examples_train=4", "task.examples_train=8", 2),
        # Among training examples, and between these and ten test examples.
        ((LIMITS,), RELU, "task.examples_train=4", "task.examples_train=8", 8 * 18 / (4 * 14)),
    ],
)
def test_arrays_grow_with_what_they_are_made_for(names, shared, few, many, ratio, held):
    for name in names:
        more, less = held(*shared, many)[name], held(*shared, few)[name]
        assert more / less == pytest.approx(ratio)


def test_attention_is_held_of_a_block_of_examples_and_of_one_at_least(held, monkeypatch):
    found = []
    for block in (1.0, 1e4, 1e18):
        monkeypatch.setattr(memory, "BLOCK_BYTES_OF_ATTENTION", block)
        found.append(held(*LEARNED, "sampler.chains=2", "task.examples_train=90")[OF_CHAINS[2]])
    one, some, every = found
    assert every == 90 * one
    assert one < some == 2 * 1e4 < every


def test_weights_and_logits_of_draws_are_held_in_double_precision(load):
    """While they are thinned, twice the weights that are asked for, and no more than all."""

    def kept(*settings: str) -> tuple[float, Sizes]:
        few = "sampler.draws=100", "sampler.space=weights", "sampler.algorithm=hmc"
        recipe, task = load(*few, "sampler.chains=3", *settings)
        sizes = Sizes.of(recipe, task)
        return draw_bytes(recipe, sizes), sizes

    none, sizes = kept()
    for asked, held in ((5, 10), (80, 100)):
        more = kept(f"sampler.weight_draws={asked}")[0] - none
        assert more == 8 * 3 * held * sizes.weight_count
    (fixed, _), (learned, sizes) = (
        kept(f'attention.heads=[["{kind}", "random"]]') for kind in ("random", "learned")
    )
    assert learned - fixed == 8 * 3 * 100 * sizes.logits


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
