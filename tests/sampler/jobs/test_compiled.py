"""Sizes of compiled programs against operations counted by hand."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from jax.scipy.linalg import solve_triangular

from sampler.errors import InputError
from sampler.jobs.cards import CARDS, card_named
from sampler.jobs.check import check_recipe
from sampler.jobs.choice import Sizes
from sampler.jobs.compiled import (
    Cost,
    RunPrograms,
    analysed,
    cost_of_calls,
    density_of_shapes,
    programs_of_run,
    value_and_gradient,
)
from sampler.jobs.plan import Point, make_plan
from sampler.recipes.recipe import Recipe, load_recipe
from theory import Architecture

# Shapes stand where annotations want arrays.
pytestmark = pytest.mark.usefixtures("without_annotation_checks")
LOADED = load_recipe("runs/quickstart.toml", [])


def of(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float64")


def in_space(space: str, **settings) -> Recipe:
    """A recipe that samples there, whatever its data."""
    settings |= {"space": space, "algorithm": "split_hmc", "precision": "float64", "warmup": 50}
    sampler = LOADED.sampler.model_copy(update=settings)
    return LOADED.model_copy(update={"sampler": sampler})


def gradient(space: str, one: Architecture, examples: int, chains: int = 0):
    """Analysis of one gradient in a space, or of those of many chains side by side."""
    density = density_of_shapes(in_space(space), Sizes(one, examples, 3), examples)
    size = density.coordinates.size
    if not chains:
        return analysed(value_and_gradient, of(size), density)
    every = jax.vmap(value_and_gradient, in_axes=(0, None))
    return analysed(every, of(chains, size), density)


# --- calls of LAPACK and loops


@pytest.mark.parametrize("batch", [(), (3,)])
def test_factorisations_and_solves_are_counted_by_their_shapes(batch):
    """Of LAPACK's n³/3 and n² m operations, and of what it reads and writes, with a status each."""
    count, n, m = int(np.prod(batch)), 24, 5

    def solve(lower, right):
        return solve_triangular(lower, right, lower=True)

    def calls(function, *arguments) -> Cost:
        for _ in batch:
            function = jax.vmap(function)
        shapes = [of(*batch, *shape) for shape in arguments]
        return cost_of_calls(jax.jit(function).lower(*shapes).compile().as_text())

    factor = calls(jnp.linalg.cholesky, (n, n))
    assert factor == Cost(count * n**3 / 3, count * (2.0 * 8 * n**2 + 4))
    assert calls(solve, (n, n), (n, m)) == Cost(
        float(count * n**2 * m), 8.0 * count * (n**2 + 2 * n * m)
    )


def test_an_unknown_call_is_refused():
    with pytest.raises(ValueError, match="geqrf"):
        analysed(jnp.linalg.qr, of(4, 3))


def test_every_pass_of_a_loop_of_known_length_is_counted_and_one_of_any_other():
    """A pass costs its product, and less than one operation a number for the loop itself."""
    n = 32
    product, rest = 2 * n**3, n**2

    def each(stack):
        return jax.lax.map(lambda one: one @ one, stack)

    few, many = (analysed(each, of(count, n, n)).cost.operations for count in (3, 13))
    assert 10 * product <= many - few < 10 * (product + rest)
    assert 3 * product <= few < 3 * (product + rest)

    def nested(stack):
        return jax.lax.map(each, stack)

    assert 15 * product <= analysed(nested, of(5, 3, n, n)).cost.operations < 15 * (product + rest)

    def trajectory(length, matrix):
        return jax.lax.fori_loop(0, length, lambda _, one: one @ one, matrix)

    steps = jax.ShapeDtypeStruct((), "int64")
    assert product <= analysed(trajectory, steps, of(n, n)).cost.operations < product + rest


# --- gradients by hand


def test_a_gradient_of_order_parameters_has_the_operations_counted_by_hand():
    """By differences in P, to which everything but matrices P × P is of lower order.

    Cholesky factor P³/3, triangular inverse P³, and its square 2 P³: the third derivative of all
    operations is 6 times the sum.
    """
    one = Architecture((2,), (7, 6), (1.4, 0.8, 1.2), channels=4)
    places = np.array([32, 64, 96, 128])
    found = [gradient("order_parameters", one, int(p)).cost.operations for p in places]
    third = np.diff(found, 3)[0] / 32**3
    assert third == pytest.approx(6 * (1 / 3 + 1 + 2), rel=1e-12)


def test_a_gradient_of_all_weights_has_the_operations_counted_by_hand():
    """By differences in N and O: the readout meets H N² weights for each output.

    Once forwards, and backwards for either factor: 6 H N² O operations.
    """
    heads, widths, outputs = 2, (32, 64, 96), (3, 5)

    def operations(width: int, count: int) -> float:
        one = Architecture((heads,), (width, width), (1.4, 0.8, 1.2), channels=3, outputs=count)
        return gradient("weights", one, 6).cost.operations

    found = np.array([[operations(width, count) for width in widths] for count in outputs])
    mixed = np.diff(np.diff(found, 2, axis=1), axis=0)[0, 0] / (32**2 * 2)
    assert mixed == pytest.approx(2 * 6 * heads, rel=1e-12)


def test_temporary_arrays_grow_with_the_chains():
    """By at least the kernel of each, and by as much for every one."""
    one, examples = Architecture((2,), (7, 6), (1.4, 0.8, 1.2), channels=4), 64
    found = [gradient("order_parameters", one, examples, c).temporaries for c in (4, 8, 16)]
    grown = np.diff(found) / [4, 8]
    assert grown[0] >= 8 * examples**2
    assert grown[1] == pytest.approx(grown[0], rel=0.01)


# --- a whole run


def programs_of_first(recipe: Recipe) -> RunPrograms:
    """The programs of the first run that a recipe asks for."""
    plan = make_plan("run", Point(recipe, None), here=False)
    one = plan.runs[0]
    return programs_of_run(one.recipe, plan.task, one.sizes)


@pytest.fixture(scope="module")
def run() -> RunPrograms:
    jaxtyping.config.update("jaxtyping_disable", True)  # as `without_annotation_checks`
    found = programs_of_first(LOADED)
    jaxtyping.config.update("jaxtyping_disable", False)
    return found


def test_a_run_at_a_tenth_of_the_bandwidth_takes_ten_times_longer(run):
    """Where bytes bind in both programs, as they do on a card with ever so many operations."""
    text = "float64=1e9 PFLOP/s,float32=1e9 PFLOP/s,memory=80GB,bandwidth="
    fast, slow = (card_named(f"{text}{number}TB/s") for number in ("3.35", "0.335"))
    assert run.sampling_seconds(slow) == pytest.approx(10 * run.sampling_seconds(fast), rel=1e-12)
    assert run.sampling_seconds(CARDS["h100"]) >= run.sampling_seconds(fast)


def test_a_run_has_the_operations_of_its_gradients(run):
    chunk = run.others[0]
    length = int(chunk.name.split()[2])
    each = run.gradients / run.draws
    wanted = length * each * run.together * run.one.cost.operations
    assert chunk.cost.operations == pytest.approx(wanted, rel=1e-12)


LEARNED = 'attention.heads=[["learned", "learned"], ["uniform"]]'
KINDS = {
    "evidence": ("smoke", ["sampler.evidence=true"], "chains", ["chunk", "observables", "131,072"]),
    "importance": ("smoke", ["sampler.algorithm=importance"], "chains", ["131,072"]),
    "tempered, learned heads": ("copy_head", [], "particles", []),
    "learned heads": ("smoke", [LEARNED], "chains", ["chunk", "observables"]),
    "outside the theory": ("relu_values", [], "chains", ["chunk"]),
}


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_the_programs_of_every_kind_of_run(kind):
    recipe, overrides, what, others = KINDS[kind]
    found = programs_of_first(load_recipe(f"runs/{recipe}.toml", overrides))
    assert found.one.name.endswith(f"one of the {what}")
    assert found.gradient.name.endswith(f"{found.together} {what}")
    assert [each.name.split()[0] for each in found.others] == others
    # A gradient of many takes their positions, and the arrays that one of them takes. Beside a
    # gradient, of the size of a position, are results the value and the addresses of the two.
    position = found.one.analysis.results - 3 * 8
    more = found.gradient.analysis.arguments - found.one.analysis.arguments
    assert more == (found.together - 1) * position


def test_nothing_of_the_size_of_a_run_is_made():
    """Kernels of this one would take 80 GB each."""
    one = Architecture.uniform((2, 2), 512, channels=100_000)
    sizes = Sizes(one, 100_000, 1000, 1.0)
    density = density_of_shapes(in_space("order_parameters", chains=64), sizes, 100_000)
    assert sum(np.prod(leaf.shape) for leaf in jax.tree.leaves(density.arguments)) >= 4 * 10**10


@pytest.mark.parametrize(("memory", "said"), [("80GB", ": fits"), ("1MB", ": does not fit")])
def test_check_says_whether_a_run_fits(run, memory, said, monkeypatch):
    monkeypatch.setattr("sampler.jobs.compiled.programs_of_run", lambda *_: run)
    card = f"bandwidth=1TB/s,float64=1TFLOP/s,float32=2TFLOP/s,memory={memory}"
    text = " ".join(check_recipe(LOADED, card).split())
    assert said in text
    assert "An estimate, never seen on a GPU" in text
    assert all(one.name in text for one in run.all)


def test_a_run_too_large_for_this_machine_is_checked_for_another(run, monkeypatch):
    """Without a device it is refused, by the same memory."""
    monkeypatch.setattr("sampler.jobs.compiled.programs_of_run", lambda *_: run)
    monkeypatch.setattr("sampler.jobs.forecast.available_bytes", lambda: 2.0**20)
    assert "On h100" in check_recipe(LOADED, "h100")
    with pytest.raises(InputError, match="memory"):
        check_recipe(LOADED)
