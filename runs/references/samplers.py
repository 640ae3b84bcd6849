"""Samplers of other libraries on all weights of reference problems, and Laplace's approximation.

    python -m runs.references.samplers [NAME …] [--samplers numpyro_nuts …]

A sampler is a function of at most twenty lines: density, starts and key to draws [chain, draw,
coordinate] and the number of gradients that these took, warm-up included. Scores are written into
the JSON file of each problem, and what is there is kept. Above 3,000 weights they may take hours.
"""

import argparse
import json
import traceback
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import sampler
from runs.references.page import BAD_R_HAT
from runs.references.values import write
from sampler.mcmc.convergence import bulk_ess, rank_diagnostics

FOLDER = Path(__file__).parent
CHAINS, WARMUP, DRAWS, KEPT = 4, 500, 500, 100


def numpyro_nuts(flat, starts, key):
    from numpyro.infer import MCMC, NUTS

    kernel = NUTS(potential_fn=lambda point: -flat(point))
    chains = {"num_chains": CHAINS, "chain_method": "sequential", "progress_bar": False}
    mcmc = MCMC(kernel, num_warmup=WARMUP, num_samples=DRAWS, **chains)
    mcmc.warmup(key, init_params=starts, extra_fields=("num_steps",), collect_warmup=True)
    gradients = int(mcmc.get_extra_fields()["num_steps"].sum())
    mcmc.run(key, extra_fields=("num_steps",))
    gradients += int(mcmc.get_extra_fields()["num_steps"].sum())
    return np.asarray(mcmc.get_samples(group_by_chain=True)), gradients


def blackjax_nuts(flat, starts, key):
    import blackjax

    adapt = blackjax.window_adaptation(blackjax.nuts, flat)

    def chain(arguments):
        start, own = arguments
        first, second = jax.random.split(own)
        (state, tuned), info = adapt.run(first, start, WARMUP)
        kernel = blackjax.nuts(flat, **tuned)

        def step(state, key):
            state, info = kernel.step(key, state)
            return state, (state.position, info.num_integration_steps)

        _, (points, steps) = jax.lax.scan(step, state, jax.random.split(second, DRAWS))
        return points, steps.sum() + info.info.num_integration_steps.sum()

    points, gradients = jax.jit(lambda *given: jax.lax.map(chain, given))(
        starts, jax.random.split(key, CHAINS)
    )
    return np.asarray(points), int(gradients.sum())


def blackjax_mclmc(flat, starts, key, steps=20_000, keep=40):
    """Unadjusted: its draws have a bias that its step size decides."""
    import blackjax

    def chain(arguments):
        start, own = arguments
        first, second, third = jax.random.split(own, 3)
        state = blackjax.mcmc.mclmc.init(position=start, logdensity_fn=flat, rng_key=first)
        kernel = blackjax.mcmc.mclmc.build_kernel()
        state, parameters, *_ = blackjax.mclmc_find_L_and_step_size(
            mclmc_kernel=kernel, num_steps=steps, state=state, rng_key=second, logdensity_fn=flat
        )
        algorithm = blackjax.mclmc(flat, L=parameters.L, step_size=parameters.step_size)

        def steps_between(state, keys):
            state = jax.lax.scan(lambda s, k: (algorithm.step(k, s)[0], None), state, keys)[0]
            return state, state.position

        keys = jax.random.split(third, steps).reshape(steps // keep, keep, -1)
        return jax.lax.scan(steps_between, state, keys)[1]

    points = jax.jit(lambda *given: jax.lax.map(chain, given))(
        starts, jax.random.split(key, CHAINS)
    )
    return np.asarray(points), 2 * CHAINS * 2 * steps  # two gradients a step, tuning as long


def nutpie_nuts(flat, starts, key):
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc

    size = flat.dimension
    both = jax.jit(lambda point: jnp.append(*jax.value_and_grad(flat)(point)))

    def density(point):
        value_and_gradient = np.asarray(both(point))
        return float(value_and_gradient[0]), value_and_gradient[1:]

    model = from_pyfunc(
        size, lambda: density, lambda *seeds: lambda point: {"point": np.array(point)},
        [np.dtype("float64")], [(size,)], ["point"],
        make_initial_point_fn=lambda seed: np.asarray(starts[seed % CHAINS]),
    )  # fmt: skip
    lengths = {"tune": WARMUP, "draws": DRAWS, "chains": CHAINS, "cores": 1}
    found = nutpie.sample(model, **lengths, seed=1, progress_bar=False, save_warmup=True)
    groups = found["sample_stats"], found["warmup_sample_stats"]
    gradients = sum(int(group["n_steps"].sum()) for group in groups)
    return found["posterior"]["point"].values, gradients


SAMPLERS = {
    "numpyro_nuts": (numpyro_nuts, "numpyro"),
    "blackjax_nuts": (blackjax_nuts, "blackjax"),
    "blackjax_mclmc": (blackjax_mclmc, "blackjax"),
    "nutpie_nuts": (nutpie_nuts, "nutpie"),
}


def judge(name, one):
    """The score of a sampler on a problem."""
    draw, library = SAMPLERS[name]
    space = "attention" if one.network.is_infinite else "weights"
    flat, (own, starting) = one.log_density(space), jax.random.split(jax.random.PRNGKey(1))
    starts = jax.vmap(flat.start)(jax.random.split(starting, CHAINS))
    points, gradients = draw(flat, starts, own)
    found = {"version": version(library), "gradients": gradients}
    if not np.isfinite(points).all():
        return found | {"failed": "draws that are no numbers"}
    values = one.functionals({"point": points})
    worst = max(np.nanmax(rank_diagnostics(v)[0]) for v in values.values() if np.ptp(v) > 0)
    score = one.score({"point": points}, gradients)
    found |= {
        "worst_r_hat": float(worst), "effective_draws": score.effective_draws,
        "gradients_per_draw": gradients / score.effective_draws,
        "root_mean_square": score.root_mean_square, "within_2": score.within,
        "largest": score.largest,
    }  # fmt: skip
    return found | ({"slowest": slowest(values)} if worst > BAD_R_HAT else {})


def slowest(values):
    """The functional with the fewest effective draws, as chains of at most a hundred of them."""
    sizes = {n: bulk_ess(v) for n, v in values.items() if np.ptp(v) > 0}
    name = min(sizes, key=lambda n: np.nanmin(sizes[n]))
    element = int(np.nanargmin(sizes[name]))
    step = max(1, DRAWS // KEPT)
    chains = [[float(f"{x:.4g}") for x in chain[::step, element]] for chain in values[name]]
    return {
        "name": name, "element": element,
        "draws": list(range(0, values[name].shape[1], step)), "chains": chains,
    }  # fmt: skip


def laplace(one):
    """A Gaussian at the mode of the Bartlett coordinates of U_1 … U_a, as a theory."""
    flat = one.log_density("order_parameters")
    slope = jax.jit(jax.value_and_grad(lambda x: -flat(x)))
    start = np.zeros(flat.dimension)
    found = minimize(lambda x: tuple(map(np.asarray, slope(x))), start, jac=True, method="BFGS")
    hessian = jax.hessian(lambda x: -flat(x))(jnp.asarray(found.x))
    mode = found.x - np.linalg.solve(hessian, np.asarray(slope(found.x)[1]))
    root = np.linalg.cholesky(np.linalg.inv(hessian))
    normal = np.random.default_rng(0).standard_normal((4000, flat.dimension))
    seen = flat.observables(jnp.asarray(mode + normal @ root.T), jax.random.key(0))
    theory = {n: v.mean(axis=0) for n, v in seen.items() if "order_parameter" in n}
    theory["predictor_mean"] = seen["predictor_mean"].mean(axis=0)
    spread = seen["predictor_mean"].var(axis=0)
    theory["predictor_variance"] = seen["predictor_variance"].mean(axis=0) + spread
    volume = np.log(np.diag(root)).sum() + flat.dimension / 2 * np.log(2 * np.pi)
    return one.score(theory | {"log_evidence": float(flat(mode)) + volume})


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="problems; all by default")
    parser.add_argument("--samplers", nargs="*", default=list(SAMPLERS), help="all by default")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    # nutpie calls a function of microseconds a million times: without a thread in between.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    for name in given.names or sampler.references():
        target = FOLDER / f"{name}.json"
        one = sampler.reference(name)
        if one.open and "values" not in one.record:
            continue
        if one.recipe.has_theory and "laplace" not in one.record["theories"]:
            try:
                one.record["theories"]["laplace"] = laplace(one)
                write(target, one.record)
            except np.linalg.LinAlgError as problem:  # no minimum, or a flat one
                print(name, "has no approximation of Laplace:", problem)
        for each in given.samplers:
            done = json.loads(target.read_text(encoding="utf-8")).get("samplers", {})
            if each in done or "weights" not in one.record["sizes"]:
                continue
            try:
                score = judge(each, one)
            except Exception as problem:
                print(traceback.format_exc())
                score = {"failed": type(problem).__name__}
            # Read again, as another process may have judged another sampler meanwhile.
            record = json.loads(target.read_text(encoding="utf-8"))
            record.setdefault("samplers", {})[each] = score
            write(target, record)
            print(name, each, score, flush=True)


if __name__ == "__main__":
    main()
