"""Memory that a run needs, counted from its sizes before anything is built, and available memory.

Arrays are counted to leading order. Free of JAX: recipes in these functions have space and
algorithm named.
"""

import os
import resource
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sampler.attention.learned import BLOCK_BYTES as BLOCK_BYTES_OF_ATTENTION
from sampler.data.examples import BLOCK_BYTES, StreamedExamples
from sampler.data.task import Task
from sampler.errors import InputError, Verbatim
from sampler.jobs.sizes import Sizes
from sampler.mcmc.collected_draws import (
    EVERY,
    KEPT_BYTES,
    LOGIT_BYTES,
    MANY_NUMBERS,
    MOST_POINTWISE,
    POINTWISE,
    PREDICTOR_BYTES,
)
from sampler.posterior.spaces import OF_TOKENS, ORDER_PARAMETERS, WEIGHTS, kind_of
from sampler.settings.recipe import Recipe
from sampler.settings.task_sections import TaskSettings
from theory.size_limits import hessian_fits, next_order_fits, stored_bytes, storing_pays

FLOAT, SINGLE = 8.0, 4.0  # bytes of a number in float64 and in float32
STATISTICS = 8  # numbers that an algorithm keeps of a draw, about


@dataclass(frozen=True)
class Part:
    """Arrays that grow with settings of the recipe.

    copies  how many of them there are at the same time
    remedy  a way to make them smaller
    """

    name: str
    bytes: float
    remedy: str
    copies: int = 1

    def held(self) -> float:
        """Bytes of all copies."""
        return self.copies * self.bytes


# Python, its libraries and the functions that are compiled for a run, whatever its sizes.
BASE_BYTES = 1.0 * 2**30
LOW_RANK = 'use attention.learned.form = "low_rank"'
PROGRAM = Part(
    "the program and what it compiles", BASE_BYTES, "free memory: no recipe needs less for it"
)


def memory_parts(recipe: Recipe, task: Task, sizes: Sizes, sampled: bool = True) -> list[Part]:
    """The arrays of one run, largest copies counted."""
    # Of splits that are not held there is one block.
    numbers = sum(
        BLOCK_BYTES // 8
        if isinstance(split, StreamedExamples)
        else sum(a.size for a in split.arrays)
        for split in task.splits
    )
    parts = [Part("data", FLOAT * numbers, "use fewer examples, or give attended inputs (.h5)")]
    if task.learned is not None:
        parts += parts_of_attention(recipe, task, sizes)
    if recipe.fits_theory:
        parts += parts_of_theory(task, sizes)
    if recipe.has_value_theories:
        pairs = task.train.examples * (task.train.examples + task.test.examples)
        parts.append(Part("kernels at infinite width", FLOAT * pairs, "use fewer examples", 3))
    return parts + (parts_of_draws(recipe, task, sizes) if sampled else [])


def parts_of_attention(recipe: Recipe, task: Task, sizes: Sizes) -> list[Part]:
    """Arrays of attention that is sampled: a block of examples of every chain, and logit weights.

    Attention of one example is made at least; where more fit into a block they are one.
    """
    chains, split = recipe.sampler.chain_count, task.train
    bytes_of_example = FLOAT * task.learned.numbers(split.tokens, task.channels)
    block = min(bytes_of_example * split.examples, max(bytes_of_example, BLOCK_BYTES_OF_ATTENTION))
    logits = FLOAT * sizes.logits * chains
    return [
        Part("attention in a gradient", block * chains, "use fewer tokens or heads"),
        Part("logit weights of all chains", logits, LOW_RANK, 8),
    ]


def parts_of_theory(task: Task, sizes: Sizes) -> list[Part]:
    """Arrays of a network that is a sum over attention paths."""
    network, paths, outputs = sizes.architecture, sizes.architecture.path_count, task.outputs
    examples = sum(
        sizes.examples if split is task.train else split.examples for split in task.splits
    )
    attended = FLOAT * examples * paths * task.channels
    rows, first = sizes.examples * outputs, network.order_parameter_sizes[0]
    features = first * task.channels
    fewer = "use fewer training examples, paths or channels"
    parts = [
        Part("attended inputs", attended, "use fewer examples, paths or channels", 2),
        Part("kernel K and its inverse", FLOAT * rows**2, fewer, 6),
        Part("features of all outputs", FLOAT * rows * features, fewer, 3),
    ]
    if task.learned is not None:  # features differ in every draw: nothing can be stored of them
        return parts
    if storing_pays(sizes.examples, None, network):
        stored = float(stored_bytes(sizes.examples, None, paths, outputs))
        parts.append(Part("path kernels", stored, fewer))
    if hessian_fits(network) or next_order_fits(network):
        second = FLOAT * max(features**2, first**4)
        parts.append(Part("second derivatives", second, "use fewer paths", 4))
    return parts


def parts_of_draws(recipe: Recipe, task: Task, sizes: Sizes) -> list[Part]:
    """Arrays of the sampler, and the draws."""
    parts, settings, examples = [], recipe.sampler, task.train.examples
    if not recipe.fits_theory:  # followed token by token
        network, mlp = sizes.architecture, recipe.network.mlp
        numbers = sum(h * n for h, n in zip((1, *task.heads), network.widths, strict=True))
        numbers += 0 if mlp is None else mlp.width * len(task.pairs)
        tokens = FLOAT * examples * task.train.tokens * numbers
        parts.append(Part("tokens in all layers", tokens, "use fewer examples or tokens", 3))
    if kind_of(settings.space) in OF_TOKENS:
        chains = FLOAT * sizes.weight_count * settings.chain_count
        parts.append(Part("weights of all chains", chains, "use a smaller width", 8))
    draws = settings.draws_per_chain  # about as many where they are not named
    remedy = "use fewer draws or test examples, or a smaller weight_draws"
    # Gathered, joined, and in the file that is put together in memory.
    parts.append(Part(f"draws, {draws:,} a chain", draw_bytes(recipe, sizes), remedy, 3))
    if examples < MOST_POINTWISE:
        labels = SINGLE * settings.chain_count * draws * examples * task.outputs
        size = len(POINTWISE) * min(labels, KEPT_BYTES)
        if recipe.fits_theory:  # attended inputs of the examples, of which there may be rows
            size += FLOAT * examples * sizes.architecture.path_count * task.channels
        parts.append(Part("training labels in every draw", size, "use fewer draws", 3))
    return parts


def draw_bytes(recipe: Recipe, sizes: Sizes) -> float:
    """Bytes of all draws, of predictors as far as they are kept."""
    architecture, whole = sizes.architecture, STATISTICS
    settings, tests = recipe.sampler, sizes.observed * architecture.outputs
    draws_of_chain = settings.draws_per_chain
    if recipe.fits_theory:
        whole += sum(p * p for p in architecture.order_parameter_sizes)
    logits = FLOAT * settings.chain_count * draws_of_chain * sizes.logits
    # f, and where weights are integrated out its mean and variance given the rest
    large = 3 if kind_of(settings.space) != WEIGHTS else 1
    draws = settings.chain_count * draws_of_chain
    of_large = SINGLE * draws * tests
    if tests >= MANY_NUMBERS and kind_of(settings.space) == ORDER_PARAMETERS:
        of_large /= EVERY
    of_large = min(of_large, PREDICTOR_BYTES)
    weights = sizes.weight_count * min(2 * settings.weight_draws, draws_of_chain)
    whole = draws * whole + settings.chain_count * weights
    return FLOAT * whole + large * of_large + min(logits, LOGIT_BYTES)


def peak_bytes(parts: Iterable[Part]) -> float:
    return BASE_BYTES + sum(map(Part.held, parts))


def parts_before_data(task: TaskSettings) -> list[Part]:
    """Least memory of the data, by the numbers of a recipe, before they are made."""
    return [Part("data", FLOAT * task.least_numbers, "use fewer examples, tokens or features")]


def require_memory(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The arrays of a run; InputError where they exceed the memory."""
    available, wanted = available_bytes(), peak_bytes(parts)
    if wanted > available:
        worst = max([PROGRAM, *parts], key=Part.held)
        raise InputError(
            "memory",
            Verbatim(f"{byte_text(wanted)} needed of {byte_text(available)}"),
            f"most of it, {byte_text(worst.held())}, for {worst.name}; {worst.remedy}",
        )
    return tuple(parts)


def byte_text(size: float) -> str:
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.3g} {units[0]}" if size < 1e4 else f"{size:.1e} {units[0]}"


# --- available memory

# The groups of this process, and where Linux mounts their hierarchies by convention.
GROUPS_OF_PROCESS, MOUNTED = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
# Mapped and untouched memory of a run on two cores: libraries, stacks, reserves of allocators.
UNTOUCHED_BYTES = 1.3 * 2**30


def available_bytes() -> float:
    """Memory that this process may have at most: of the machine, its groups, and its own limits.

    Its own are those of `ulimit -v` and `ulimit -d`.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *group_limits()]
    for kind, untouched in ((resource.RLIMIT_AS, UNTOUCHED_BYTES), (resource.RLIMIT_DATA, 0.0)):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY:
            limits.append(max(0.0, limit - untouched))
    return float(min(limits))


def group_limits(groups: Path = GROUPS_OF_PROCESS, mounted: Path = MOUNTED) -> Iterator[int]:
    """Limits of the control groups of a process, and of all groups around them that are seen.

    A scheduler sets them, or a container, in which a group may have the path of its host: then the
    limit is at the top.
    """
    try:
        lines = groups.read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, file = mounted, "memory.max"
        elif "memory" in controllers.split(","):
            top, file = mounted / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # no such file, or no limit
                yield int((folder / file).read_text(encoding="ascii"))
            if folder == top:
                break
