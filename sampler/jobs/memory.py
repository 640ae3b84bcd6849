"""Memory that a run needs, counted from its sizes before anything is built, and what there is.

Arrays are counted to leading order. Free of JAX: recipes in these functions have space and
algorithm named.
"""

import os
import re
import resource
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sampler.attention.learned import BLOCK_BYTES as BLOCK_BYTES_OF_ATTENTION
from sampler.data.split import BLOCK_BYTES, StreamedSplit
from sampler.data.task import Task
from sampler.errors import InputError, Verbatim, Words
from sampler.jobs.sizes import Sizes
from sampler.mcmc.kept import (
    KEPT_BYTES,
    LOGIT_BYTES,
    MOST_POINTWISE,
    POINTWISE,
    PREDICTOR_BYTES,
    PREDICTOR_DRAWS,
    SELECTED,
)
from sampler.posterior.spaces import OF_TOKENS, WEIGHTS
from sampler.settings.recipe import Recipe
from sampler.settings.task import TaskSection
from theory.architecture import stored_bytes, storing_pays

FLOAT, SINGLE = 8.0, 4.0  # bytes of a number in float64 and in float32
STATISTICS = 8  # numbers that an algorithm keeps of a draw, about


@dataclass(frozen=True)
class Part:
    """Arrays that grow with what the recipe asks for.

    copies  how many of them there are at the same time
    remedy  what makes them smaller: text, or words of a recipe and of Python
    """

    name: str
    bytes: float
    remedy: str | Words
    copies: int = 1


# Python, its libraries and the functions that are compiled for a run, whatever its sizes.
BASE_BYTES = 1.0 * 2**30
LOW_RANK = Words(
    'use attention.learned.form = "low_rank"', 'use attention={"learned": {"form": "low_rank"}}'
)
PROGRAM = Part("the program and what it compiles", BASE_BYTES, "give it more, whatever the recipe")


def memory_parts(recipe: Recipe, task: Task, sizes: Sizes, sampled: bool = True) -> list[Part]:
    """The arrays of one run, largest copies counted."""
    parts = [Part("data", data_bytes(task), "use fewer examples, or give attended inputs (.h5)")]
    if task.learned is not None:
        parts += parts_of_attention(recipe, task, sizes)
    if recipe.fits_theory:
        parts += parts_of_theory(task, sizes)
    elif sampled:
        tokens = FLOAT * task.train.examples * token_numbers(recipe, task, sizes)
        parts.append(Part("tokens in all layers", tokens, "use fewer examples or tokens", 3))
    if recipe.has_value_theories:
        parts.append(kernels_of_values(task))
    if not sampled:
        return parts
    if recipe.sampler.space in OF_TOKENS:
        chains = FLOAT * sizes.weight_count * recipe.sampler.chain_count
        parts.append(Part("weights of all chains", chains, "use a smaller width", 8))
    draws = recipe.sampler.draws_per_chain  # about as many where they are not named
    remedy = "use fewer draws or test examples, or a smaller weight_draws"
    size = draw_bytes(recipe, sizes, draws)
    parts.append(Part(f"draws, {draws:,} a chain", size, remedy, 2))
    labels = SINGLE * recipe.sampler.chain_count * draws * task.train.examples * task.outputs
    if task.train.examples < MOST_POINTWISE:
        whole = FLOAT * task.train.examples * sizes.architecture.path_count * task.channels
        size = len(POINTWISE) * min(labels, KEPT_BYTES) + whole
        parts.append(Part("training labels in every draw", size, "use fewer draws", 2))
    return parts


def parts_of_theory(task: Task, sizes: Sizes) -> list[Part]:
    """Arrays of a network that is a sum over attention paths."""
    paths = sizes.architecture.path_count
    examples = sum(
        sizes.examples if split is task.train else split.examples for split in task.splits
    )
    attended = FLOAT * examples * paths * task.channels
    rows = sizes.examples * task.outputs
    features = sizes.architecture.order_parameter_sizes[0] * task.channels
    fewer = "use fewer training examples, paths or channels"
    found = [
        Part("attended inputs", attended, "use fewer examples, paths or channels", 2),
        Part("kernel K and its inverse", FLOAT * rows**2, fewer, 6),
        Part("features of all outputs", FLOAT * rows * features, fewer, 3),
    ]
    if task.learned is not None:  # features differ in every draw: nothing can be stored of them
        return found
    if storing_pays(sizes.examples, None, sizes.architecture):
        paths, outputs = sizes.architecture.path_count, sizes.architecture.outputs
        stored = float(stored_bytes(sizes.examples, None, paths, outputs))
        found.append(Part("path kernels", stored, fewer))
    if sizes.architecture.is_dense or sizes.architecture.has_next_order:
        second = FLOAT * max(features**2, sizes.architecture.order_parameter_sizes[0] ** 4)
        found.append(Part("second derivatives", second, "use fewer paths", 4))
    return found


def kernels_of_values(task: Task) -> Part:
    """Kernels of nonlinear values at infinite width, of all examples with the training examples."""
    pairs = task.train.examples * (task.train.examples + task.test.examples)
    return Part("kernels at infinite width", FLOAT * pairs, "use fewer examples", 3)


def parts_of_attention(recipe: Recipe, task: Task, sizes: Sizes) -> list[Part]:
    """Arrays of attention that is sampled: a block of examples of every chain, and logit weights.

    Attention of one example is made at least; where more fit into a block they are one.
    """
    chains, split = recipe.sampler.chain_count, task.train
    one = FLOAT * task.learned.numbers(split.tokens, task.channels)
    block = min(one * split.examples, max(one, BLOCK_BYTES_OF_ATTENTION))
    logits = FLOAT * sizes.logits * chains
    return [
        Part("attention in a gradient", block * chains, "use fewer tokens or heads"),
        Part("logit weights of all chains", logits, LOW_RANK, 8),
    ]


def data_bytes(task: Task) -> float:
    """Bytes of the splits that are held, and of one block of those that are not."""
    return FLOAT * sum(
        BLOCK_BYTES // 8 if isinstance(split, StreamedSplit) else sum(a.size for a in split.arrays)
        for split in task.splits
    )


def token_numbers(recipe: Recipe, task: Task, sizes: Sizes) -> int:
    """Numbers of one example that is followed token by token, in all layers."""
    heads, mlp = (1, *task.heads), recipe.network.mlp
    numbers = sum(h * n for h, n in zip(heads, sizes.architecture.widths, strict=True))
    numbers += 0 if mlp is None else mlp.width * len(task.pairs)
    return task.train.tokens * numbers


def draws_kept_whole(recipe: Recipe, sizes: Sizes) -> int:
    """Draws of each chain up to which all are kept, or those asked for if more."""
    tests = sizes.observed * sizes.architecture.outputs
    whole = PREDICTOR_BYTES // (SINGLE * tests * recipe.sampler.chain_count)
    return max(int(whole) + 1, recipe.sampler.draws_per_chain)


def draw_bytes(recipe: Recipe, sizes: Sizes, draws_of_chain: int) -> float:
    architecture, whole = sizes.architecture, STATISTICS
    settings, tests = recipe.sampler, sizes.observed * architecture.outputs
    if recipe.fits_theory:
        whole += sum(p * p for p in architecture.order_parameter_sizes)
    logits = FLOAT * settings.chain_count * draws_of_chain * sizes.logits
    # f, and where weights are integrated out its mean and variance given the rest
    large = 3 if settings.space != WEIGHTS else 1
    draws = settings.chain_count * draws_of_chain
    of_large = SINGLE * draws * tests
    if of_large > PREDICTOR_BYTES:
        fewest = min(PREDICTOR_DRAWS * SINGLE * settings.chain_count * tests, KEPT_BYTES)
        of_large = max(PREDICTOR_BYTES, fewest) + SINGLE * draws * min(SELECTED, tests)
    weights = sizes.weight_count * min(2 * settings.weight_draws, draws_of_chain)
    whole = draws * whole + settings.chain_count * weights
    return FLOAT * whole + large * of_large + min(logits, LOGIT_BYTES)


def peak_bytes(parts: Iterable[Part]) -> float:
    return BASE_BYTES + sum(part.copies * part.bytes for part in parts)


def refuse_what_does_not_fit(parts: Sequence[Part]) -> None:
    """Raise InputError where the arrays of a run exceed the memory."""
    available, wanted = available_bytes(), peak_bytes(parts)
    if wanted > available:
        worst = max([PROGRAM, *parts], key=lambda part: part.copies * part.bytes)
        size = byte_text(worst.copies * worst.bytes)
        raise InputError(
            "memory",
            Verbatim(f"{byte_text(wanted)} needed of {byte_text(available)}"),
            f"most of it, {size}, for {worst.name}; {{}}",
            worst.remedy,
        )


def refuse_too_large(
    recipe: Recipe, task: Task, *, sampled: bool = False, more: Sequence[Part] = ()
) -> None:
    """Raise InputError where theory, or also draws, of a task exceed the memory.

    more  further arrays that are held
    """
    parts = memory_parts(recipe, task, Sizes.of(recipe, task), sampled)
    refuse_what_does_not_fit([*parts, *more])


def refuse_too_large_data(task: TaskSection) -> None:
    """Raise InputError where data exceed the memory, whatever is made of them; nothing is made."""
    part = Part("data", FLOAT * task.least_numbers, "use fewer examples, tokens or features")
    refuse_what_does_not_fit([part])


def byte_text(size: float) -> str:
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.3g} {units[0]}" if size < 1e4 else f"{size:.1e} {units[0]}"


# --- what there is
#
# A scheduler or a container limits the group of a process, or one of those around it. Where each
# is: the file `cgroup` of a process has its path in every hierarchy, `mountinfo` where a hierarchy
# is mounted, and which part of it.

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
