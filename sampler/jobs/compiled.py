"""Programs of a run, compiled from shapes: memory, operations and bytes by XLA's own analysis.

Nothing is run, and no array of the run's size is made. XLA counts the body of a loop once: passes
of loops of known length are added here, and trajectories are counted by their gradients. It does
not count calls of LAPACK: their operations follow from their shapes.
"""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import Array, Float

from sampler.devices import OF_ACCELERATOR, in_layout
from sampler.jobs.cards import Card
from sampler.jobs.choice import Sizes
from sampler.jobs.work import SamplingWork, sampling_work
from sampler.mcmc.algorithm import Algorithm, ChainSettings, algorithm_named
from sampler.mcmc.chunks import programs_of_chains
from sampler.mcmc.kept import MOST_POINTWISE
from sampler.mcmc.split_hmc import FEWEST_NUMBERS
from sampler.mcmc.tempering import TOGETHER
from sampler.posterior.density import BATCHES, Density, Mode
from sampler.posterior.order_parameters import OrderParameterPosterior
from sampler.posterior.pointwise import LabelledExamples
from sampler.posterior.spaces import make_density
from sampler.problem import build_problem, hyper_priors_of
from sampler.recipes.recipe import Recipe
from sampler.tasks.task import Task
from theory.architecture import HESSIAN_COORDINATES, Architecture
from theory.energy import Compressed, LearningProblem

# Machine code is never run, so that none is optimised.
COMPILED_SOON = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

# --- one program


@dataclass(frozen=True)
class Cost:
    """Floating-point operations of a program, and bytes that it reads and writes."""

    operations: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.operations + other.operations, self.bytes + other.bytes)

    def __mul__(self, times: float) -> "Cost":
        return Cost(times * self.operations, times * self.bytes)


@dataclass(frozen=True)
class Analysis:
    """Bytes of a compiled program's arguments, results and temporary arrays, and its cost.

    cost  loops of unknown length count as one pass
    """

    arguments: int
    results: int
    temporaries: int
    cost: Cost


def analysed(function: Callable, *arguments: Any) -> Analysis:
    """Compile a function for arguments of these shapes, and read XLA's analysis."""
    traced = jax.jit(function).trace(*arguments)
    compiled = traced.lower().compile(COMPILED_SOON)
    memory = compiled.memory_analysis()
    return Analysis(
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.temp_size_in_bytes,
        cost_of(traced.jaxpr, compiled),
    )


def cost_of(jaxpr: core.ClosedJaxpr, compiled: jax.stages.Compiled) -> Cost:
    """Cost of a program, every pass of its loops of known length counted."""
    known = compiled.cost_analysis()
    cost = Cost(known["flops"], known["bytes accessed"]) + cost_of_calls(compiled.as_text())
    for body, passes in loops_in(jaxpr.jaxpr):
        shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in body.in_avals]
        once = jax.jit(core.jaxpr_as_fun(body)).lower(*shapes).compile(COMPILED_SOON)
        cost += cost_of(body, once) * (passes - 1)
    return cost


def loops_in(jaxpr: core.Jaxpr) -> Iterator[tuple[core.ClosedJaxpr, int]]:
    """Bodies of all loops of known length, and their passes in one of what is around them."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            yield equation.params["jaxpr"], equation.params["length"]
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if isinstance(inner, core.ClosedJaxpr):
                    yield from loops_in(inner.jaxpr)
                elif isinstance(inner, core.Jaxpr):
                    yield from loops_in(inner)


# Operations of LAPACK's functions, leading order, from the rows of the last matrix axis of the
# first argument and the numbers of the last argument: Cholesky factor, triangular solve, LU and
# eigenvalues.
CALLS: dict[str, Callable[[int, int], float]] = {
    "potrf": lambda size, numbers: numbers * size / 3.0,
    "trsm": lambda size, numbers: numbers * size,
    "getrf": lambda size, numbers: numbers * size * 2.0 / 3.0,
    "syevd": lambda size, numbers: numbers * size * 9.0,
}
CALL = re.compile(
    r'= (?P<results>.*?) custom-call\(.*custom_call_target="(?:lapack|blas)_[sd](?P<name>[a-z]+)'
)
ARGUMENTS = re.compile(r"operand_layout_constraints=\{(?P<shapes>.*?\})\}")
SHAPE = re.compile(r"\b(?P<kind>[fsu])(?P<bits>\d+)\[(?P<sizes>[\d,]*)\]")


def cost_of_calls(text: str) -> Cost:
    """Cost of all calls of LAPACK in the text of a compiled program.

    Raises ValueError for a function whose operations are not known here.
    """
    cost = Cost()
    for line in text.splitlines():
        if (call := CALL.search(line)) is None:
            continue
        if call["name"] not in CALLS:
            raise ValueError(
                f"LAPACK's {call['name']}: its operations are not known; add it to CALLS"
            )
        arguments = [sizes_in(one) for one in SHAPE.finditer(ARGUMENTS.search(line)["shapes"])]
        results = [sizes_in(one) for one in SHAPE.finditer(call["results"])]
        size, numbers = arguments[0][0][-1], math.prod(arguments[-1][0])
        moved = sum(width * math.prod(sizes) for sizes, width in (*arguments, *results))
        cost += Cost(CALLS[call["name"]](size, numbers), moved)
    return cost


def sizes_in(shape: re.Match) -> tuple[list[int], float]:
    """Sizes of an array, and bytes of a number in it."""
    return [int(one) for one in shape["sizes"].split(",") if one], int(shape["bits"]) / 8


# --- the density of a run


def density_of_shapes(recipe: Recipe, sizes: Sizes, examples: int) -> Density:
    """The posterior of a network with fixed attention in the theory, with shapes for arrays.

    examples  P, training examples, for which `sizes.examples` rows may stand
    """
    settings, space = recipe.sampler, recipe.sampler.space
    whole = examples if examples < MOST_POINTWISE else 0

    def made(attended, labels, test, inputs, targets) -> Density:
        training = LabelledExamples(inputs, targets, sizes.examples < examples) if whole else None
        learning = problem_of_shapes(recipe, sizes, examples, attended, labels)
        density = make_density(
            space, learning, test, settings.keep_weights, whitened=False, training=training
        )
        if space == "order_parameters":
            density = replace(density, mode=mode_like(density))
        return density if whole or space != "weights" else replace(density, passing=())

    arrays = partial(arrays_of, sizes.architecture, settings.precision)
    test, _ = arrays(sizes.observed)
    return jax.eval_shape(made, *arrays(sizes.examples), test, *arrays(whole))


def arrays_of(
    one: Architecture, precision: str, examples: int
) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Attended inputs and labels of so many examples."""
    inputs, labels = (examples, one.path_count, one.channels), (examples, one.outputs)
    return jax.ShapeDtypeStruct(inputs, precision), jax.ShapeDtypeStruct(labels, precision)


def problem_of_shapes(
    recipe: Recipe, sizes: Sizes, examples: int, attended: Array, labels: Array
) -> LearningProblem:
    """The learning problem of rows that are being traced."""
    folded = None
    if sizes.examples < examples:
        folded = Compressed(examples, 0.0, np.ones(sizes.examples))
    temperature, priors = recipe.posterior.temperature, hyper_priors_of(recipe)
    return LearningProblem(sizes.architecture, attended, labels, temperature, priors, folded)


def mode_like(density: Density) -> Mode:
    """A mode of the size of that which chains are whitened at."""
    count, dtype = density.coordinates.size, density.gradient_precision
    shape = (count, count) if count <= HESSIAN_COORDINATES else (count,)
    scale = jnp.zeros(shape, dtype)
    return Mode(jnp.zeros(count, dtype), scale, scale, density.coordinates, True)


def in_gradient_precision(density: Density, algorithm: Algorithm) -> Density:
    """The density with gradients in the precision that a run will have.

    By "auto" it is single where arrays are large, as it is found to be unless rounding costs
    acceptance, which only arrays can tell.
    """
    asked = getattr(algorithm, "gradient_precision", "float64")
    numbers = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(density.arguments))
    double = density.gradient_precision == "float32" or asked == "float64"
    if double or (asked == "auto" and numbers < FEWEST_NUMBERS):
        return density
    return jax.eval_shape(Density.with_single_gradients, density)


# --- the programs of a run


@dataclass(frozen=True)
class Program:
    """One compiled program of a run.

    analysis   of the whole program
    cost       of one call, trajectories counted by their gradients
    precision  floating-point type of most of its operations
    """

    name: str
    analysis: Analysis
    cost: Cost
    precision: str

    @classmethod
    def of(cls, name: str, precision: str, function: Callable, *arguments: Any) -> "Program":
        """Compile a function for arguments of these shapes."""
        found = analysed(function, *arguments)
        return cls(name, found, found.cost, precision)

    def seconds(self, card: Card) -> float:
        """Seconds of one call at the roofline of a card."""
        return card.roofline(self.cost.operations, self.cost.bytes, self.precision)


@dataclass(frozen=True)
class RunPrograms:
    """Programs that a run spends its time in.

    gradient   of all chains or particles that are advanced together
    draw       one draw read off, with all its observables and predictors
    others     chunks of draws, their completion, the evidence
    together   chains or particles of `gradient`
    gradients  of the whole run, as forecast
    draws      of the whole run, as forecast, warm-up included
    resident   bytes of all arrays of the density, which stay on the device
    """

    one: Program
    gradient: Program
    draw: Program
    others: tuple[Program, ...]
    together: int
    gradients: float
    draws: float
    resident: int

    @property
    def all(self) -> tuple[Program, ...]:
        return self.one, self.gradient, self.draw, *self.others

    def sampling_seconds(self, card: Card) -> float:
        """Seconds of all gradients and draws of the run at the roofline of a card."""
        steps = self.gradients / self.together
        return steps * self.gradient.seconds(card) + self.draws * self.draw.seconds(card)

    @property
    def peak(self) -> int:
        """Bytes of the arrays of the density, and of the largest program beside them."""
        most = max(one.analysis.results + one.analysis.temporaries for one in self.all)
        return self.resident + most


def value_and_gradient(point: Float[Array, " coordinate"], density: Density):
    """ln p(x, y) and its gradient in the precision of gradients."""
    rough = density.for_gradients
    here = point.astype(density.gradient_precision)
    return jax.value_and_grad(lambda x: rough.log_density(density.coordinates.unflatten(x)))(here)


def programs_of_run(recipe: Recipe, task: Task, sizes: Sizes) -> RunPrograms:
    """Compile the programs of a run with space and algorithm named, as an accelerator runs them.

    Chains stand side by side. The compiler is that of a processor, whatever devices there are.
    """
    if recipe.fits_theory and task.learned is None:
        return programs_of_sizes(recipe, sizes, task.train.examples)
    settings, work = recipe.sampler, sampling_work(recipe, sizes, task.learned)
    with as_on_accelerator(recipe):
        # The tokens are held anyway, and nothing but them is made.
        problem = build_problem(recipe, task)
        density = problem.density(settings.space, settings.precision, settings.keep_weights)
        density = jax.eval_shape(lambda one: one, density)
        return _programs(recipe, sizes, task.train.examples, density, work)


def programs_of_sizes(recipe: Recipe, sizes: Sizes, examples: int) -> RunPrograms:
    """Compile the programs of a run with fixed attention in the theory, from its sizes alone.

    examples  P, training examples, for which `sizes.examples` rows may stand
    """
    with as_on_accelerator(recipe):
        density = density_of_shapes(recipe, sizes, examples)
        return _programs(recipe, sizes, examples, density, sampling_work(recipe, sizes))


@contextmanager
def as_on_accelerator(recipe: Recipe) -> Iterator[None]:
    """Compile on a processor, in the precision of a recipe, what an accelerator would run."""
    double = recipe.sampler.precision == "float64"
    layout = {"side_by_side": True, "batch_bytes": OF_ACCELERATOR.batch_bytes}
    processor = jax.default_device(jax.devices("cpu")[0])
    with jax.enable_x64(double), processor, in_layout(**layout):
        yield


def _programs(
    recipe: Recipe, sizes: Sizes, examples: int, density: Density, work: SamplingWork
) -> RunPrograms:
    settings = recipe.sampler
    algorithm = algorithm_named(settings.algorithm, dict(settings))
    density = in_gradient_precision(density, algorithm)
    count = min(TOGETHER, settings.particles) if algorithm.repeated else settings.chain_count
    what = "particles" if algorithm.repeated else "chains"
    one, gradient = gradient_programs(density, settings.precision, count, what)
    draw = draw_program(density, settings.precision)
    others = []
    if not algorithm.repeated and algorithm.fallback is None:
        chains = ChainSettings(count, settings.warmup_steps, thinning=settings.thinning)
        per_draw = work.gradients / work.draws
        others += chunk_programs(density, algorithm, chains, gradient, draw, per_draw)
    if settings.evidence or settings.algorithm == "importance":
        others.append(densities_program(recipe, sizes, examples))
    resident = sum(leaf.dtype.itemsize * math.prod(leaf.shape) for leaf in jax.tree.leaves(density))
    found = one, gradient, draw, tuple(others)
    return RunPrograms(*found, count, work.gradients, work.draws, resident)


def gradient_programs(
    density: Density, precision: str, count: int, what: str
) -> tuple[Program, Program]:
    """Log density and gradient of one chain or particle, and of so many side by side."""
    kind, title = density.gradient_precision, "log density and gradient"
    flat = jax.ShapeDtypeStruct((density.coordinates.size,), precision)
    flats = jax.ShapeDtypeStruct((count, *flat.shape), precision)
    one = Program.of(f"{title}, one of the {what}", kind, value_and_gradient, flat, density)
    every = jax.vmap(value_and_gradient, in_axes=(0, None))
    together = Program.of(f"{title}, {count} {what}", kind, every, flats, density)
    # Side by side XLA may take other calls, which it counts otherwise.
    cost = replace(together.cost, operations=count * one.cost.operations)
    return one, replace(together, cost=cost)


def draw_program(density: Density, precision: str) -> Program:
    """Everything that is read off one draw of a chain."""
    flat = jax.ShapeDtypeStruct((density.coordinates.size,), precision)
    draw = density, jax.random.key(0), jax.eval_shape(density.coordinates.unflatten, flat)
    return Program.of("observables and predictors of a draw", precision, Density.observables, *draw)


def chunk_programs(
    density: Density,
    algorithm: Algorithm,
    chains: ChainSettings,
    gradient: Program,
    draw: Program,
    per_draw: float,
) -> Iterator[Program]:
    """A chunk of draws of all chains, by its gradients, and what completes them, by its draws.

    per_draw  gradients of a draw, as forecast
    """
    length, programs = programs_of_chains(density, algorithm, chains)
    name = f"chunk of {length} draws a chain, {per_draw:.3g} gradients each"
    chunk = Program.of(name, gradient.precision, *programs["chunk"])
    yield replace(chunk, cost=gradient.cost * (length * chains.thinning * per_draw))
    if "completion" in programs:
        _, _, numbers, *_ = programs["completion"]
        name = f"observables of {len(numbers)} draws a chain"
        completion = Program.of(name, draw.precision, *programs["completion"])
        yield replace(completion, cost=draw.cost * (len(numbers) * chains.chains))


def densities_program(recipe: Recipe, sizes: Sizes, examples: int) -> Program:
    """Log densities of many draws, for the evidence or for importance."""

    def made(attended, labels) -> tuple[OrderParameterPosterior, Array]:
        learning = problem_of_shapes(recipe, sizes, examples, attended, labels)
        posterior = OrderParameterPosterior.of(learning).for_batches
        return posterior, jnp.zeros(posterior.coordinates.size)

    arrays = arrays_of(sizes.architecture, "float64", sizes.examples)
    posterior, point = jax.eval_shape(made, *arrays)
    batch = posterior.default_batch
    points = jax.ShapeDtypeStruct((BATCHES * batch, *point.shape), "float64")

    def densities(points, posterior):
        return posterior.batched_log_densities(points, batch=batch)

    name = f"{BATCHES * batch:,} log densities, {batch} at a time"
    return Program.of(name, "float64", densities, points, posterior)
