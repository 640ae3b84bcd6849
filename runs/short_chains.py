# %% [markdown]
# # Many short chains beside four long ones: bias, coverage, serial length
#
# 256 chains in 16 groups of one start, ended by nested R-hat, and four long chains ended by their
# rule, on three problems: one path, whose posterior has two coordinates and is integrated on a
# grid; two paths at the published settings; ReLU values, outside the theory, in hidden weights.
# Each is repeated with other seeds; the reference is exact, or a longer run. Nothing is timed:
# gradients one after another are what a GPU is bound by.
#
#     python runs/short_chains.py [FOLDER] [REPETITIONS [PROBLEM …]]
#
# by default into runs/results/short_chains, 16 repetitions, all problems; 25 minutes of one core.
# What is in the folder is not sampled again.

# %%
import json
import sys
from pathlib import Path

import jax
import numpy as np
from renew import RUNS, estimate, mean_over, record
from scipy.stats import norm, t

import sampler
from sampler.analysis.draws_table import stored_draws
from sampler.analysis.estimate import mean_of, variance_of
from sampler.api.posterior import posed as pose
from sampler.api.posterior import task_and_network
from sampler.api.results import problem_of
from sampler.jobs.stages import diagnose_stage
from sampler.mcmc.tempered import repetition_weights
from sampler.presentation import style
from sampler.recipes.recipe import load_recipe

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/short_chains")
REPETITIONS = int(sys.argv[2]) if len(sys.argv) > 2 else 16
only = sys.argv[3:]
FEW = ("task.examples_test=10", "task.examples_validation=0", "sweep={}")
ONE_PATH = ('attention.heads=[["good"]]', "theory.subnetworks=[]", "task.examples_train=30", *FEW)
# Recipe of the gallery, changes, and the space.
PROBLEMS = {
    "one path": ("markov_two_paths", ONE_PATH, "order_parameters"),
    "two paths": ("markov_two_paths", FEW, "order_parameters"),
    "ReLU values": ("relu_values", FEW, "hidden_weights"),
}
CHAINS, GROUPS = 256, 16
WARMUP = {"one path": 20, "two paths": 20, "ReLU values": 100}
COMMON = {"algorithm": "split_hmc", "until": "trusted"}
# Warm-up of long chains is the one by default.
DESIGNS = {
    "short": {**COMMON, "chains": CHAINS, "superchains": GROUPS},
    "long": {**COMMON, "chains": 4},
}
REFERENCE = {"algorithm": "split_hmc", "chains": 4, "draws": 20_000, "seed": 10_000}
LEVEL = 0.95
GRID, WIDTH = 161, 8.0


def posed(name: str):
    """Task and network of a problem."""
    recipe, changes, _ = PROBLEMS[name]
    return task_and_network(load_recipe(RUNS / f"{recipe}.toml", list(changes)))


def numbers_of(draws) -> np.ndarray:
    """Quantities whose means are estimated, [chain, draw, number]: f at test examples, tr U₁."""
    known = stored_draws(draws)
    values = known["predictor_mean"]
    found = [values.reshape(*values.shape[:2], -1)]
    if "order_parameter" in known:
        found.append(np.trace(known["order_parameter"], axis1=-2, axis2=-1)[..., None])
    return np.concatenate(found, axis=2)


def sampled(name: str, seed: int, settings: dict) -> dict:
    """Estimates of one run, by both kinds of error where chains are in groups, and its cost."""
    task, network = posed(name)
    space = PROBLEMS[name][2]
    draws = sampler.sample(task, network, progress=False, space=space, seed=seed, **settings)
    statistics = {key: np.asarray(one) for key, one in draws["sample_stats"].items()}
    weights, known = repetition_weights(statistics), draws["sample_stats"].attrs
    values = numbers_of(draws)
    found, chains = mean_of(values, weights), values.shape[0]
    by_chain = found if weights is None else mean_of(values, np.full(chains, 1.0 / chains))
    judged = diagnose_stage(draws)
    return {
        "mean": found.value.tolist(),
        "error": found.mcse.tolist(),
        "error by chains": by_chain.mcse.tolist(),
        "deviation": np.sqrt(variance_of(values, weights).value).tolist(),
        "draws": int(known["draws_per_chain"]),
        "warm-up": draws["warmup_sample_stats"].sizes["draw"],
        "gradients": int(known["gradients"]),
        "r_hat": max(one.r_hat for one in judged.quantities.values()),
        "limit": judged.r_hat_limit,
        "trusted": int(judged.passed),
    }


def exact(name: str) -> dict:
    """Means by the trapezoidal rule over two coordinates, and what the doubled spacing changes."""
    with jax.enable_x64(True):
        problem = problem_of(*pose(*posed(name), "order_parameters", None))
        density = problem.flat_density("order_parameters")
        fit = problem.density("order_parameters", "float64", False).mode
        reach = WIDTH * np.sqrt(np.diagonal(np.asarray(fit.covariance)))
        axes = np.linspace(np.asarray(fit.point) - reach, np.asarray(fit.point) + reach, GRID).T
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
        logs = np.asarray(jax.lax.map(density, points, batch_size=64)).reshape(GRID, GRID)
        seen = density.observables(points, jax.random.key(0))
    values = np.concatenate([
        np.reshape(seen["predictor_mean"], (GRID, GRID, -1)),
        np.reshape(seen["order_parameter"], (GRID, GRID, -1)),
    ], axis=2)  # fmt: skip
    weights = np.exp(logs - logs.max())
    edge = max(weights[[0, -1]].max(), weights[:, [0, -1]].max())
    assert edge < 1e-9, f"the grid ends where the posterior is {edge:.1g} of its largest"
    fine, coarse = (
        np.tensordot(w, v, axes=2) / w.sum()
        for w, v in ((weights, values), (weights[::2, ::2], values[::2, ::2]))
    )
    return {"mean": fine.tolist(), "error": np.abs(fine - coarse).tolist()}


def kept(name: str, design: str, seed: int = 0) -> dict:
    """What was found on a problem, computed now or before."""
    file = folder / f"{name.replace(' ', '_')}-{design}-{seed}.json"
    if not file.is_file():
        if design == "reference" and name == "one path":
            found = exact(name)
        elif design == "reference":
            found = sampled(name, 10_000, {k: v for k, v in REFERENCE.items() if k != "seed"})
        else:
            warmup = {"warmup": WARMUP[name]} if design == "short" else {}
            found = sampled(name, seed, {**DESIGNS[design], **warmup})
        file.write_text(json.dumps(found), encoding="utf-8")
        print(name, design, seed, found.get("draws"), found.get("gradients"), flush=True)
    return json.loads(file.read_text(encoding="utf-8"))


def coverage(away: np.ndarray, error: np.ndarray, degrees: float) -> dict:
    """Share of intervals [repetition, number] that contain the reference, over repetitions."""
    limit = t.ppf(0.5 + LEVEL / 2, degrees) if np.isfinite(degrees) else norm.ppf(0.5 + LEVEL / 2)
    return mean_over((np.abs(away) <= limit * error).mean(axis=1), "repetitions")


def summary(runs: list[dict], reference: dict, design: str) -> dict:
    """Bias, coverage, and what repetitions of one design cost."""
    mean, error, by_chain, deviation = (
        np.array([run[key] for run in runs])
        for key in ("mean", "error", "error by chains", "deviation")
    )
    away, unsure = mean - np.array(reference["mean"]), np.array(reference["error"])
    scale, count = deviation.mean(axis=0), len(runs)
    bias = (away / scale).mean(axis=0)
    spread = (away / scale).std(axis=0, ddof=1) / np.sqrt(count)
    errors = np.hypot(spread, unsure / scale)
    worst = int(np.argmax(np.abs(bias / errors)))
    chains, grouped = DESIGNS[design]["chains"], design == "short"
    serial = [run["gradients"] / chains for run in runs]
    found = {
        "coverage": coverage(away, np.hypot(error, unsure), GROUPS - 1 if grouped else np.inf),
        "largest bias": estimate(bias[worst], errors[worst], "over repetitions and reference"),
        "bias in errors": float(bias[worst] / errors[worst]),
        "root mean square bias": float(np.sqrt(np.mean(bias**2))),
        "expected of none": float(np.sqrt(np.mean(errors**2))),
        "error of a mean": mean_over((error / scale).mean(axis=1), "repetitions"),
        "gradients": mean_over([run["gradients"] for run in runs], "repetitions"),
        "gradients of a chain": mean_over(serial, "repetitions"),
        "draws of a chain": mean_over([run["draws"] for run in runs], "repetitions"),
        "warm-up": runs[0]["warm-up"],
        "largest R-hat": max(run["r_hat"] for run in runs),
        "limit": runs[0]["limit"],
        "trusted": sum(run["trusted"] for run in runs),
        "repetitions": count,
    }
    if grouped:
        found["coverage by chains"] = coverage(away, np.hypot(by_chain, unsure), chains - 1)
    return found


# %%
folder.mkdir(parents=True, exist_ok=True)
numbers: dict = {}
for name in only or PROBLEMS:
    reference = kept(name, "reference")
    runs = {design: [kept(name, design, seed) for seed in range(REPETITIONS)] for design in DESIGNS}
    numbers[name] = {design: summary(runs[design], reference, design) for design in DESIGNS}
    of_chain = [numbers[name][design]["gradients of a chain"]["value"] for design in DESIGNS]
    of_all = [numbers[name][design]["gradients"]["value"] for design in DESIGNS]
    numbers[name] |= {"shorter by": of_chain[1] / of_chain[0], "more": of_all[0] / of_all[1]}
    print(name, json.dumps(numbers[name]), flush=True)
record(folder, "short_chains", numbers, made_by="python runs/short_chains.py",
       seeds=list(range(REPETITIONS)))  # fmt: skip

# %%
PANELS = {
    "coverage": f"coverage of {LEVEL:.0%}",
    "gradients of a chain": "gradients of a chain",
    "gradients": "gradients in all",
}
with style.figure_style():
    figure = style.new_figure(style.WIDTH, 3.2, "256 short chains and four long ones")
    axes = figure.subplots(1, 3, sharey=True)
    colours = dict(zip(DESIGNS, (style.BLUE, style.VERMILLION), strict=True))
    for ax, (key, label) in zip(axes, PANELS.items(), strict=True):
        for place, design in enumerate(DESIGNS):
            shown = [entry[design][key] for entry in numbers.values()]
            ax.errorbar(
                [one["value"] for one in shown],
                np.arange(len(shown)) + 0.16 * (2 * place - 1),
                xerr=[one["error"] for one in shown],
                fmt="o",
                color=colours[design],
                label=design,
            )
        ax.set_xlabel(label)
        if key != "coverage":
            ax.set_xscale("log")
    axes[0].axvline(LEVEL, color=style.GREY, linewidth=0.8)
    axes[0].set_yticks(range(len(numbers)), list(numbers))
    axes[0].invert_yaxis()
    axes[1].legend(fontsize="small")
    written = style.save_figure(figure, folder, "short_chains")
print("figure:", *written)
