"""`python -m tests.benchmarks.gpu`: what an accelerator gives, and whether its numbers are right.

Prints every row as soon as it is measured, so that a run cut short still says something; runs on a
processor too, with `--chains 1 4 --examples 100`.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from arviz_stats.base import array_stats

from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.chunks import Chunk, sample_in_chunks
from sampler.mcmc.hamiltonian import NUTS
from sampler.posterior.importance import single
from sampler.posterior.order_parameters import OrderParameterPosterior, factors_at, find_mode
from sampler.posterior.spaces import make_density
from tests.benchmarks.outsiders import ENDLESS
from tests.problems import problem_of_many_paths
from tests.reference_data import load_reference, reference_problem
from theory import LearningProblem
from theory.bartlett import WishartChain

HEADS = {4: (2, 2), 16: (4, 4)}
WARMUP = {"order_parameters": 60, "upper_weights": 30, "weights": 10}
PRECISION = {"order_parameters": "float64", "upper_weights": "float32", "weights": "float32"}
# Differences in float64 between two devices: rounding, magnified by the condition number.
AGREEMENT = 1e-8


def main() -> None:
    """Rates of the device, correctness, chains, importance draws."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("--width", type=int, default=100, metavar="N")
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 4, 16, 64, 256, 1024])
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 64, 256, 1024, 4096])
    parser.add_argument("--examples", type=int, nargs="+", default=[100, 600])
    parser.add_argument("--paths", type=int, nargs="+", default=[4, 16], choices=sorted(HEADS))
    parser.add_argument("--spaces", nargs="+", default=list(WARMUP), choices=list(WARMUP))
    parser.add_argument("--seconds", type=float, default=4.0, help="of sampling per row")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds; then no new row")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}\n")
    ends = time.monotonic() + arguments.budget
    for line in rows(arguments):
        print(line, flush=True)
        if time.monotonic() > ends:
            print("the budget is spent; what is missing was not measured")
            return


def rows(arguments) -> Iterator[str]:
    """All lines, in the order of their importance."""
    cases = [(paths, examples) for paths in arguments.paths for examples in arguments.examples]
    rates = {}
    yield "| matrix | products, GFLOP/s | batched Cholesky, GFLOP/s |"
    yield "|---|---|---|"
    for examples in arguments.examples:
        product, cholesky = rates[examples] = (product_rate(examples), cholesky_rate(examples))
        yield f"| {examples} × {examples}, float64 | {product:.0f} | {cholesky:.0f} |"
    yield "\n| problem | ln p, relative difference to a processor | gradient | verdict |"
    yield "|---|---|---|---|"
    for paths, examples in cases:
        density, gradient = disagreement(problem(paths, examples, arguments.width))
        verdict = "agree" if max(density, gradient) <= AGREEMENT else "DISAGREE"
        name = f"{paths} paths, P = {examples}"
        yield f"| {name} | {density:.1e} | {gradient:.1e} | {verdict} |"
    yield (
        "\n| importance draws | batch | densities per second | share of Cholesky rate | "
        "efficiency | effective draws per second |"
    )
    yield "|---|---|---|---|---|---|"
    for paths, examples in cases:
        yield from importance_rows(paths, examples, arguments, rates[examples][1])
    yield (
        "\n| space | problem | chains | leapfrog steps per draw | gradients per second | share of "
        "Cholesky rate | share of product rate | effective draws per second |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for space in arguments.spaces:
        for paths, examples in cases:
            for chains in arguments.chains:
                yield chain_row(space, paths, examples, chains, arguments, rates[examples])


def problem(paths: int, examples: int, width: int) -> LearningProblem:
    """The published data where they have this size, random ones elsewhere."""
    if (paths, examples) == (4, 100):
        return reference_problem(load_reference(), width)
    rng = np.random.default_rng(1)
    return problem_of_many_paths(rng, width, examples=examples, heads=HEADS[paths])


def timed(function, *arrays, least: float = 0.3) -> float:
    """Seconds per call, compiled, over at least `least` seconds."""
    function(*arrays).block_until_ready()
    calls, started = 0, time.perf_counter()
    while time.perf_counter() - started < least:
        function(*arrays).block_until_ready()
        calls += 1
    return (time.perf_counter() - started) / calls


def batch_of(examples: int) -> int:
    """Matrices that fill a device: a gigabyte of them, fewer on a processor."""
    limit = 2**26 if jax.default_backend() == "cpu" else 2**30
    return max(1, limit // (8 * examples**2))


def product_rate(examples: int) -> float:
    """GFLOP/s of batched products of P × P matrices."""
    batch = batch_of(examples)
    matrices = jnp.ones((batch, examples, examples)) / examples
    seconds = timed(jax.jit(lambda a: a @ a), matrices)
    return 2e-9 * batch * examples**3 / seconds


def cholesky_rate(examples: int) -> float:
    """GFLOP/s of batched Cholesky factors of P × P matrices."""
    batch = batch_of(examples)
    matrix = jnp.eye(examples) + 0.5 / examples
    seconds = timed(jax.jit(jnp.linalg.cholesky), jnp.tile(matrix, (batch, 1, 1)))
    return 1e-9 / 3 * batch * examples**3 / seconds


def disagreement(learning: LearningProblem) -> tuple[float, float]:
    """Largest relative differences between this device and a processor, at 8 points."""
    mode = find_mode(learning, OrderParameterPosterior.of(learning))
    points = single(mode.point, mode.covariance).draw(8, np.random.default_rng(2))
    unflatten, chain = mode.coordinates.unflatten, WishartChain.of(learning.architecture)

    def energy_at(point, energy):
        return energy(factors_at(unflatten(point), chain)[0])

    both = jax.jit(jax.vmap(jax.value_and_grad(energy_at), in_axes=(0, None)))
    found = []
    for device in (jax.devices()[0], jax.devices("cpu")[0]):
        energy = jax.device_put(learning.energy, device)
        found.append(jax.device_get(both(jax.device_put(points, device), energy)))
    (value, gradient), (exact_value, exact_gradient) = found
    return (
        float(np.max(np.abs(value - exact_value) / np.abs(exact_value))),
        float(np.max(np.abs(gradient - exact_gradient)) / np.max(np.abs(exact_gradient))),
    )


def importance_rows(paths: int, examples: int, arguments, cholesky: float) -> Iterator[str]:
    """Densities of the first proposal at every batch size: no adaptation, so that rows compare."""
    learning = problem(paths, examples, arguments.width)
    posterior = OrderParameterPosterior.of(learning)
    mode = find_mode(learning, posterior)
    proposal = single(mode.point, mode.covariance)
    stored = posterior.for_batches
    for batch in arguments.batches:
        density = partial(stored.log_densities, batch_size=batch)
        points = proposal.draw(32 * batch, np.random.default_rng(3))
        density(points)
        started = time.perf_counter()
        log_weights = density(points) - proposal.log_density(points)
        seconds = time.perf_counter() - started
        weights = np.exp(log_weights - log_weights.max())
        efficiency = weights.sum() ** 2 / np.sum(weights**2) / len(weights)
        rate = len(points) / seconds
        share = rate * examples**3 / 3e9 / cholesky
        yield (
            f"| {paths} paths, P = {examples} | {batch} | {rate:.3g} | {share:.2f} | "
            f"{efficiency:.2g} | {efficiency * rate:.3g} |"
        )


class Enough(Exception):
    """Raised by a callback to end the chains."""


@dataclass
class Clock:
    """Collects overlaps, and ends the chains once they have sampled so many seconds."""

    limit: float
    drawing_since: float | None = None
    overlaps: list[np.ndarray] = field(default_factory=list)
    steps: list[np.ndarray] = field(default_factory=list)

    def __call__(self, chunk: Chunk) -> None:
        now = time.perf_counter()
        if chunk.phase == "warmup":
            return
        if self.drawing_since is None:  # the first draws were compiled for
            self.drawing_since = now
            return
        self.overlaps.append(chunk.observables["order_parameter"])
        self.steps.append(chunk.statistics["n_steps"])
        if now - self.drawing_since > self.limit:
            raise Enough


def chain_row(
    name: str, paths: int, examples: int, chains: int, arguments, rates: tuple[float, float]
) -> str:
    """NUTS for a few seconds after a short warm-up; the worst element of U_1."""
    settings = ChainSettings(chains=chains, warmup=WARMUP[name], draws=ENDLESS, seed=0)
    clock = Clock(arguments.seconds)
    with jax.enable_x64(PRECISION[name] == "float64"):
        learning = problem(paths, examples, arguments.width).astype(PRECISION[name])
        space = make_density(name, learning, learning.attended[:2], False)
        with suppress(Enough):
            sample_in_chunks(space, NUTS, settings, clock)
    seconds = time.perf_counter() - clock.drawing_since
    overlap = np.concatenate(clock.overlaps, axis=1).astype(float)
    steps = np.concatenate(clock.steps, axis=1)
    gradients = steps.sum() / seconds
    case = f"| {name} | {paths} paths, P = {examples} | {chains} | {steps.mean():.0f} "
    # One gradient: a Cholesky factor, a triangular inverse and its product, beside the assembly.
    factor, product = gradients * examples**3 / 3e9, gradients * examples**3 * 2e-9
    shares = f"{factor / rates[1]:.2g} | {product / rates[0]:.2g}"
    if name == "weights":
        shares = "– | –"
    effective = "– (too few draws)"
    if overlap.shape[1] >= 4:
        rows, columns = np.tril_indices(overlap.shape[-1])
        draws = overlap[..., rows, columns]
        ess = array_stats.ess(draws, chain_axis=0, draw_axis=1, method="mean")
        effective = f"{np.min(ess) / seconds:.3g}"
    return f"{case}| {gradients:.3g} | {shares} | {effective} |"


if __name__ == "__main__":
    main()
