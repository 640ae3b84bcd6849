"""Samplers of other libraries on the posteriors that this package exports.

Each returns coordinates [chain, draw, coordinate] of a `FlatDensity`. The table has them on the
published four-path posterior at N = 10, beside NumPyro's NUTS on the exported model and the
package's own draws. Seconds are of the processor, all threads, compilation and warm-up included.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from arviz_stats.base import array_stats

import sampler
from sampler.posterior.exported import FlatDensity
from tests.reference_data import PUBLISHED_DATA

CHAINS = 4
AXES = {"chain_axis": 0, "draw_axis": 1}


def starts(flat: FlatDensity, key: jax.Array) -> jax.Array:
    """Starts of all chains, drawn from the prior."""
    return jax.vmap(flat.start)(jax.random.split(key, CHAINS))


def blackjax_nuts(flat: FlatDensity, warmup: int, draws: int, seed: int) -> np.ndarray:
    """BlackJAX's NUTS, after its window adaptation of a dense mass matrix."""
    import blackjax

    adapt = blackjax.window_adaptation(blackjax.nuts, flat, is_mass_matrix_diagonal=False)

    def chain(arguments):
        start, key = arguments
        key, own = jax.random.split(key)
        (state, tuned), _ = adapt.run(own, start, warmup)
        kernel = blackjax.nuts(flat, **tuned)

        def step(state, key):
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key, draws))[1]

    first, *keys = jax.random.split(jax.random.key(seed), CHAINS + 1)
    # One chain after the other: side by side each waits for the longest trajectory of all.
    return np.asarray(jax.jit(partial(jax.lax.map, chain))((starts(flat, first), jnp.stack(keys))))


def blackjax_mclmc(flat: FlatDensity, warmup: int, draws: int, seed: int) -> np.ndarray:
    """BlackJAX's microcanonical sampler with accepted or refused trajectories, tuned by itself."""
    import blackjax
    from blackjax.mcmc.adjusted_mclmc_dynamic import make_random_trajectory_length_fn

    lengths = make_random_trajectory_length_fn(True)
    kernel = blackjax.adjusted_mclmc_dynamic.build_kernel(integration_steps_fn=lengths)

    def chain(arguments):
        start, key = arguments
        first, second, third, key = jax.random.split(key, 4)
        # Without refusals first, which takes the chain to the bulk of the posterior.
        free = blackjax.mclmc.build_kernel()
        state = blackjax.mclmc.init(start, flat, first)
        state, rough, _ = blackjax.mclmc_find_L_and_step_size(
            free, 10 * warmup, state, second, logdensity_fn=flat
        )
        state = blackjax.adjusted_mclmc_dynamic.init(state.position, flat, third)
        state, tuned, _ = blackjax.adjusted_mclmc_find_L_and_step_size(
            kernel, flat, warmup, state, third, target=0.9, params=rough
        )

        def step(state, key):
            state, _ = kernel(
                key,
                state,
                flat,
                tuned.step_size,
                integration_steps_params=(tuned.L / tuned.step_size,),
                inverse_mass_matrix=tuned.inverse_mass_matrix,
            )
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key, draws))[1]

    first, *keys = jax.random.split(jax.random.key(seed), CHAINS + 1)
    return np.asarray(jax.jit(partial(jax.lax.map, chain))((starts(flat, first), jnp.stack(keys))))


def nutpie_nuts(flat: FlatDensity, warmup: int, draws: int, seed: int) -> np.ndarray:
    """The NUTS of nutpie, written in Rust, which adapts masses from gradients."""
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc

    slope = jax.jit(jax.value_and_grad(flat))

    def make_density():
        def density(point):
            value, gradient = slope(point)
            return float(value), np.asarray(gradient)

        return density

    model = from_pyfunc(
        flat.dimension,
        make_density,
        lambda *seeds: lambda point: {"point": np.array(point)},
        [np.dtype("float64")],
        [(flat.dimension,)],
        ["point"],
        make_initial_point_fn=lambda seed: np.asarray(flat.start(jax.random.key(seed % 2**32))),
    )
    settings = {"chains": CHAINS, "cores": 1, "seed": seed, "progress_bar": False}
    found = nutpie.sample(model, tune=warmup, draws=draws, **settings)
    return np.asarray(found["posterior"]["point"].values)


def flowmc(flat: FlatDensity, warmup: int, draws: int, seed: int) -> np.ndarray:
    """The sampler of flowMC: Langevin steps, and proposals from a flow that learns from them."""
    from flowMC.resource_strategy_bundle.RQSpline_MALA import RQSpline_MALA_Bundle
    from flowMC.Sampler import Sampler

    first, second, third = jax.random.split(jax.random.PRNGKey(seed), 3)
    each = {"n_local_steps": 50, "n_global_steps": 50, "n_epochs": 3, "rq_spline_n_layers": 2}
    bundle = RQSpline_MALA_Bundle(
        first,
        CHAINS,
        flat.dimension,
        lambda point, data: flat(point),
        n_training_loops=max(1, warmup // 100),
        n_production_loops=max(1, draws // 100),
        **each,
    )
    runs = Sampler(
        n_dim=flat.dimension,
        n_chains=CHAINS,
        rng_key=second,
        resource_strategy_bundles=bundle,
        checkpoint_interval=0,
    )
    runs.sample(starts(flat, third), {})
    return np.asarray(runs.resources["positions_production"].data)


# --- the published posterior


def by_numpyro(task, network) -> np.ndarray:
    """U_1 by NumPyro's NUTS, with its defaults, on the exported model."""
    from numpyro import infer

    model, kwargs = sampler.numpyro_model(task, network, "order_parameters")
    mcmc = infer.MCMC(
        infer.NUTS(model), num_warmup=500, num_samples=1000, num_chains=CHAINS,
        chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.PRNGKey(0), **kwargs)
    return np.asarray(mcmc.get_samples(group_by_chain=True)["order_parameter"])


def by_ours(task, network) -> np.ndarray:
    """U_1 by the package, as it samples where nothing is asked of it."""
    draws = sampler.sample(task, network, progress=False)
    return draws["posterior"]["order_parameter"].values


def by_other(draw: Callable, warmup: int, draws: int, task, network) -> np.ndarray:
    """U_1 by a sampler of another library."""
    flat = sampler.log_density(task, network)
    points = draw(flat, warmup, draws, 1)
    return flat.observables(points, jax.random.key(0))["order_parameter"]


COMPETITORS = {
    "the package, by default": by_ours,
    "NumPyro, `MCMC(NUTS(model))`": by_numpyro,
    "BlackJAX, NUTS": partial(by_other, blackjax_nuts, 500, 1000),
    "BlackJAX, MCLMC": partial(by_other, blackjax_mclmc, 2000, 2000),
    "nutpie": partial(by_other, nutpie_nuts, 500, 1000),
    "flowMC": partial(by_other, flowmc, 4000, 4000),
}


def moments(overlaps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, its Monte Carlo error and the effective draws of every entry of U_1 on and below."""
    rows, columns = np.tril_indices(overlaps.shape[-1])
    entries = overlaps[..., rows, columns]
    error = array_stats.mcse(entries, method="mean", **AXES)
    return entries.mean(axis=(0, 1)), error, array_stats.ess(entries, method="bulk", **AXES)


def measure_own_samplers() -> Iterator[str]:
    """The table of all samplers on the published posterior, those that are installed."""
    jax.config.update("jax_enable_x64", True)
    task = sampler.arrays_task(PUBLISHED_DATA)
    network = sampler.make_network(widths=10, temperature=0.01)
    yield (
        "| sampler | CPU seconds | effective draws of U₁, worst entry | a CPU second | U₁[0,0] "
        "| largest difference, in combined errors |"
    )
    yield "|---|---|---|---|---|---|"
    reference = None
    for name, draw in COMPETITORS.items():
        began = time.process_time()
        try:
            overlaps = draw(task, network)
        except ModuleNotFoundError as missing:
            yield f"| {name} | {missing.name} is not installed | | | | |"
            continue
        seconds = time.process_time() - began
        mean, error, ess = moments(overlaps)
        if reference is None:
            reference, apart = (mean, error), "–"
        else:
            errors = np.abs(mean - reference[0]) / np.hypot(error, reference[1])
            apart = f"{errors.max():.1f}"
        yield (
            f"| {name} | {seconds:.1f} | {ess.min():.0f} | {ess.min() / seconds:.1f} "
            f"| {mean[0]:.3f} ± {error[0]:.3f} | {apart} |"
        )
