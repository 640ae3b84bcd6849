"""Forecast of memory and minutes of a run, before anything is built.

Operations and arrays are counted from the sizes alone, to leading order. The speed of this machine
is measured by matrix operations of one small problem. Compilation, tables and figures, which take
as long for any sizes, are constants. `python -m tests.benchmarks gallery` compares all of it with
runs. Free of JAX: recipes in these functions have space and algorithm named.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sampler.attention.learned import BLOCK_BYTES as BLOCK_BYTES_OF_ATTENTION
from sampler.errors import InputError, Verbatim
from sampler.jobs.choice import Sizes, speed_of
from sampler.jobs.memory import available_bytes
from sampler.jobs.work import gradient_operations, sampling_work
from sampler.mcmc.kept import (
    KEPT_BYTES,
    LOGIT_BYTES,
    MOST_POINTWISE,
    POINTWISE,
    SELECTED,
    most_batches,
)
from sampler.recipes.limits import OF_ANY_NETWORK
from sampler.recipes.recipe import Recipe
from sampler.tasks.splits import BLOCK_BYTES, StreamedSplit
from sampler.tasks.task import Task
from theory.architecture import is_dense
from theory.kernel_sizes import kernel_form_pays, stored_bytes

FLOAT, SINGLE = 8.0, 4.0  # bytes of a number in float64 and in float32
STATISTICS = 8  # numbers that an algorithm keeps of a draw, about

# --- memory


@dataclass(frozen=True)
class Part:
    """Arrays that grow with what the recipe asks for.

    copies  how many of them there are at the same time
    remedy  what makes them smaller
    """

    name: str
    bytes: float
    remedy: str
    copies: int = 1


# Python, its libraries and the functions that are compiled for a run, whatever its sizes.
BASE_BYTES = 1.0 * 2**30
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
        parts.append(kernels_of_values(task, sizes))
    if not sampled:
        return parts
    if recipe.sampler.space in OF_ANY_NETWORK:
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
    if kernel_form_pays(sizes.examples, None, sizes.architecture):
        stored = float(stored_bytes(sizes.examples, sizes.architecture))
        found.append(Part("path kernels", stored, fewer))
    if is_dense(sizes.architecture) or sizes.has_next_order:
        second = FLOAT * max(features**2, sizes.architecture.order_parameter_sizes[0] ** 4)
        found.append(Part("second derivatives", second, "use fewer paths", 4))
    return found


def kernels_of_values(task: Task, sizes: Sizes) -> Part:
    """Kernels of networks with nonlinear values, of training and test examples with the former.

    What each layer leaves beside its linear part for every pair of paths above it, K with its slope
    in each scale, and K of all outputs.
    """
    one = sizes.architecture
    above = [(rows // one.outputs) ** 2 for rows in one.order_parameter_sizes[1:]]
    numbers = sum(above) + one.layers + 2 + one.outputs**2
    pairs = task.train.examples * (task.train.examples + task.test.examples)
    return Part("kernels of all layers", FLOAT * pairs * numbers, "use fewer examples or heads", 3)


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
        Part("logit weights of all chains", logits, 'use attention.learned.form = "low_rank"', 8),
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
    """Draws of each chain up to which nothing is reduced to moments, or those asked for if more."""
    tests = sizes.observed * sizes.architecture.outputs
    whole = KEPT_BYTES // (SINGLE * tests * recipe.sampler.chain_count)
    return max(int(whole) + 1, recipe.sampler.draws_per_chain)


def draw_bytes(recipe: Recipe, sizes: Sizes, draws_of_chain: int) -> float:
    architecture, whole = sizes.architecture, STATISTICS
    settings, tests = recipe.sampler, sizes.observed * architecture.outputs
    if recipe.fits_theory:
        whole += sum(p * p for p in architecture.order_parameter_sizes)
    logits = FLOAT * settings.chain_count * draws_of_chain * sizes.logits
    # f, and where weights are integrated out its mean and variance given the rest
    large = 3 if settings.space != "weights" else 1
    draws = settings.chain_count * draws_of_chain
    of_large = SINGLE * draws * tests
    if of_large > KEPT_BYTES:
        of_large = SINGLE * draws * min(SELECTED, tests)
        of_large += FLOAT * 2 * most_batches(settings.chain_count) * settings.chain_count * tests
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
            f"most of it, {size}, for {worst.name}; {worst.remedy}",
        )


def refuse_too_large(
    recipe: Recipe, task: Task, *, sampled: bool = False, more: Sequence[Part] = ()
) -> None:
    """Raise InputError where theory, or also draws, of a task exceed the memory.

    more  further arrays that are held
    """
    parts = memory_parts(recipe, task, Sizes.of(recipe, task), sampled)
    refuse_what_does_not_fit([*parts, *more])


def byte_text(size: float) -> str:
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.3g} {units[0]}" if size < 1e4 else f"{size:.1e} {units[0]}"


# --- time


@dataclass(frozen=True)
class Times:
    """Seconds of the stages of a recipe, all points together."""

    examples: float = 0.0
    theory: float = 0.0
    sampling: float = 0.0
    results: float = 0.0

    @property
    def whole(self) -> float:
        return sum(vars(self).values())

    def __add__(self, other: "Times") -> "Times":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Times(*(one + another for one, another in pairs))


# Seconds where the constants of `sampler.jobs.choice` were measured: to compile the theory, for a
# further point of it, and to compare and show a point that is sampled or only solved.
COMPILE_THEORY, POINT_OF_THEORY, SAMPLED_POINT, SOLVED_POINT = 5.0, 1.0, 16.0, 2.0
# Of networks with nonlinear values: to compile their theories, and one Gaussian mean.
COMPILE_VALUES, MEANS = 20.0, 3e-8
# Newton steps from a start, and Hessians of the next order.
NEWTON_STEPS, HESSIANS_NEXT_ORDER = 10, 8
# Where no Hessian is formed: products with it of all steps from one start, and in the search for
# its smallest eigenvalue. Layers above the first make both several times harder.
PRODUCTS_OF_START, PRODUCTS_OF_EIGENVALUE = {True: 50, False: 300}, {True: 80, False: 350}
PRODUCT_OVERHEAD = 0.01  # seconds of a product whatever its size
DENSE_RATE, PRODUCT_RATE = 1.5e10, 1.6e10  # operations of Hessians, and of products, per second
TWO_CORES = 1.6  # faster than one, of chains side by side
EARLIER_COMPILED = 0.15  # of a compilation is left where an earlier point had equal shapes
DATA_RATE = 2e8  # bytes of inputs and attention matrices made or read per second
AT_ONE_ATTENTION = 0.4  # seconds of all theories at one draw of attention
OUTSIDE_START = 12.0  # seconds of compilation of a network outside the theory
REFERENCE_SECONDS = 0.0064  # of the operations of `machine_seconds`


def machine_seconds(repetitions: int = 7) -> float:
    """Seconds of a gradient's matrix operations: 300 examples, four paths, 32 channels.

    On one thread, whatever was loaded before this package: where the machine is not idle, threads
    that wait for each other say nothing of its speed.
    """
    from threadpoolctl import threadpool_limits

    draw = np.random.default_rng(0).standard_normal
    features, labels, identity = draw((300, 128)), draw(300), np.eye(300)
    seconds = []
    with threadpool_limits(1, user_api="blas"):
        for _ in range(repetitions):
            started = time.perf_counter()
            inverse = np.linalg.inv(features @ features.T + identity)
            projected = features.T @ (inverse @ labels)
            _ = features.T @ (inverse @ features) - np.outer(projected, projected)
            seconds.append(time.perf_counter() - started)
    return min(seconds)


@dataclass(frozen=True)
class TimedRun:
    """Basis of the time of one run: its recipe, sizes, and the share that is sampled.

    share  1 for a run that is sampled, 0 for one that is not, 1/n for one temperature of n
    """

    recipe: Recipe
    sizes: Sizes
    share: float


def predicted_times(runs: Sequence[TimedRun], task: Task, seconds: float) -> Times:
    """Seconds of the stages of `run`, one point after the other.

    seconds  `machine_seconds` of this machine
    """
    total, compiled = Times(examples=pass_seconds(runs[0].recipe, task)), set()
    for place, run in enumerate(runs):
        sampling = 0.0
        if run.share:
            shapes = compiled_shapes(run.recipe, run.sizes)
            sampling = sampling_seconds(run.recipe, task, run.sizes, shapes not in compiled)
            compiled.add(shapes)
        theory = 0.0
        if run.recipe.has_theory:
            theory = theory_seconds(run.recipe, run.sizes, first=place == 0)
        elif run.recipe.has_value_theories:
            theory = value_theory_seconds(run.recipe, task, run.sizes)
        total += Times(
            theory=theory,
            sampling=run.share * sampling,
            results=run.share * SAMPLED_POINT + (1.0 - run.share) * SOLVED_POINT,
        )
    slower = seconds / REFERENCE_SECONDS
    return Times(*(slower * one for one in vars(total).values()))


def compiled_shapes(recipe: Recipe, sizes: Sizes) -> tuple:
    """Return what must be equal for a point to be sampled by what another one compiled."""
    settings, architecture = recipe.sampler, sizes.architecture
    shapes = architecture.widths
    if settings.space == "order_parameters":
        shapes = tuple(map(min, architecture.widths, architecture.order_parameter_sizes))
    return settings.space, settings.algorithm, architecture.heads, shapes


def pass_seconds(recipe: Recipe, task: Task) -> float:
    """Seconds of making and folding the examples that are not held."""
    split = task.train
    if not isinstance(split, StreamedSplit) or not recipe.has_theory:
        return 0.0
    columns = math.prod(task.heads) * task.channels + task.outputs + 1
    numbers = math.prod(split.shape[1:])
    if split.tokens:
        numbers += split.tokens**2 * sum(split.heads)
    folding = 2.5 * split.examples * columns**2 / DENSE_RATE
    return split.examples * FLOAT * numbers / DATA_RATE + folding


def hessian_operations(sizes: Sizes, coordinates: int) -> float:
    """Operations of one Hessian: of the label energy, then in coordinates, and its eigenvalues.

    n³ + n² r + n r² + r² p_1² products with r = p_1 D features give it in the entries of U_1, and
    c p_1⁴ + c² p_1² in c coordinates; 4 c³ operations its eigenvalues.
    """
    rows = sizes.examples * sizes.architecture.outputs
    first = sizes.architecture.order_parameter_sizes[0]
    features = sizes.path_operations
    energy = rows**3 + rows**2 * features + rows * features**2 + features**2 * first**2
    in_coordinates = coordinates * first**4 + coordinates**2 * first**2
    return 2.0 * (energy + in_coordinates + 2.0 * coordinates**3)


def product_seconds(sizes: Sizes) -> float:
    """Seconds of one product with the Hessian of the action.

    From features p_1 D (3 (P O)² + 2 P p_1) products, from stored path kernels two readings, which
    cost as much as four products for each number; and four of matrices of the size of K.
    """
    one, rows = sizes.architecture, sizes.examples * sizes.architecture.outputs
    first = one.order_parameter_sizes[0]
    assembly = sizes.path_operations * (3 * rows**2 + 2 * sizes.examples * first)
    if kernel_form_pays(sizes.examples, None, one):
        assembly = stored_bytes(sizes.examples, one) // 2 * one.outputs**2
    return PRODUCT_OVERHEAD + 2.0 * (assembly + 4 * rows**3) / PRODUCT_RATE


def saddle_point_seconds(sizes: Sizes, starts: int) -> float:
    """Seconds of one saddle point from so many starts, what is compiled aside."""
    one = sizes.architecture
    if is_dense(one):
        hessian = hessian_operations(sizes, one.coordinate_count)
        return NEWTON_STEPS * starts * hessian / DENSE_RATE
    single = one.layers == 1
    products = starts * PRODUCTS_OF_START[single] + PRODUCTS_OF_EIGENVALUE[single]
    return products * product_seconds(sizes)


def theory_seconds(recipe: Recipe, sizes: Sizes, first: bool) -> float:
    """Seconds of the saddle points of the network and its sub-networks, and of the next order."""
    settings = recipe.theory
    seconds = saddle_point_seconds(sizes, settings.starts)
    if settings.next_order and sizes.has_next_order:
        hessian = hessian_operations(sizes, sizes.bartlett_coordinates)
        seconds += HESSIANS_NEXT_ORDER * hessian / DENSE_RATE
    fixed = COMPILE_THEORY * (1.0 if first else 0.0) + POINT_OF_THEORY
    return (1 + 0.3 * len(settings.subnetworks)) * fixed + seconds


def value_theory_seconds(recipe: Recipe, task: Task, sizes: Sizes) -> float:
    """Seconds of the theories of nonlinear values.

    A pair of examples costs T² Gaussian means and 4 H T³ operations in each layer. Pairs of
    training examples are taken for each theory, and for values that are not homogeneous at every
    trial of one scale a layer, with its slopes; those with test examples for each theory.
    """
    one, tokens = sizes.architecture, task.train.tokens
    train, test = task.train.examples, task.test.examples
    each = sum(MEANS * tokens**2 + 4 * h * tokens**3 / PRODUCT_RATE for h in one.heads)
    scales = one.layers + 1
    trials = 0 if recipe.network.values == "relu" else NEWTON_STEPS * (2 * scales + 1)
    pairs = train**2 / 2 * (2 + trials * (scales + 1)) + 3 * train * test
    products = NEWTON_STEPS * recipe.theory.starts * one.coordinate_count
    return COMPILE_VALUES + pairs * each + products * product_seconds(sizes)


def sampling_seconds(recipe: Recipe, task: Task, sizes: Sizes, first: bool) -> float:
    """Seconds of chains by the settings in force, or of importance draws."""
    settings, operations = recipe.sampler, gradient_operations(recipe, task, sizes)
    speed = speed_of(settings.space, settings.algorithm)
    work = sampling_work(recipe, sizes, task.learned)
    seconds = work.gradients * speed.gradient_seconds(settings.space, sizes, operations)
    seconds += work.draws * speed.observation_seconds(settings.space, sizes)
    if settings.repeated and task.learned is not None:
        theories = 0 if recipe.network.is_infinite else settings.attention_theories
        return speed.start + seconds / TWO_CORES + theories * AT_ONE_ATTENTION
    start = speed.start if recipe.fits_theory else OUTSIDE_START
    start *= 1.0 if first else EARLIER_COMPILED
    return start + seconds / TWO_CORES


# --- both


@dataclass(frozen=True)
class Forecast:
    """Memory of the largest run and seconds of all of them, on this machine.

    parts      arrays of the largest run
    available  bytes that the process may have
    """

    parts: tuple[Part, ...]
    available: float
    times: Times

    def as_dict(self) -> dict[str, Any]:
        memory = {"peak": peak_bytes(self.parts), "available": self.available}
        return {"memory_bytes": memory, "seconds": {**vars(self.times), "all": self.times.whole}}


def forecast(runs: Sequence[TimedRun], task: Task) -> Forecast:
    """Forecast of these runs. Raises InputError where one exceeds the memory."""
    largest: list[Part] = []
    for run in runs:
        parts = memory_parts(run.recipe, task, run.sizes, run.share > 0.0)
        refuse_what_does_not_fit(parts)
        largest = max(largest, parts, key=peak_bytes)
    times = predicted_times(runs, task, machine_seconds())
    return Forecast(tuple(largest), available_bytes(), times)
