# %% [markdown]
# # Are tempered particles right, and what do they cost?
#
# The log evidence of tempered particles, from the modes and from the prior alone, beside that of
# importance draws and of bridge sampling, on the problems of the gallery whose order parameters
# have few coordinates. Then what an effective draw costs beside that of chains.
#
#     python runs/tempered_evidence.py [FOLDER] [PROBLEM …]
#
# by default into runs/results/tempered_evidence, all problems; 20 minutes of one core. What
# is in the folder is not sampled again.

# %%
import json
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
from renew import RUNS, estimate, record

import sampler
from sampler.analysis.estimate import mean_of
from sampler.api.posterior import task_and_network
from sampler.jobs.stages import diagnose_stage
from sampler.mcmc.tempered import log_mean, repetition_weights
from sampler.presentation import style
from sampler.recipes.recipe import load_recipe

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/tempered_evidence")
only = sys.argv[2:]
FEW = ("task.examples_test=20", "task.examples_validation=0")
NINE = 'attention.heads=[["good", "uniform", "random"], ["uniform", "good", "random"]]'
# Recipe of the gallery, and what is changed in it: the evidence does not depend on the test set.
PROBLEMS = {
    "smoke": ("smoke", ()),
    "two paths, N = 10": ("quickstart", FEW),
    "two paths, N = 2": ("finite_size", (*FEW, "network.widths=2")),
    "four paths, N = 10": ("markov_four_paths", (*FEW, "network.widths=10")),
    "four paths, 16 repetitions": ("markov_four_paths", (*FEW, "network.widths=10")),
    "temperature and variances sampled": ("temperature_sampled", FEW),
    "time series, N = 10": ("time_series", (*FEW, "network.widths=10")),
    "published sequences, N = 10": ("markov_published", ("network.widths=10",)),
    "nine paths, N = 10": ("markov_four_paths", (*FEW, "network.widths=10", NINE)),
}
# Heads that are learned: no other way to the evidence, and chains begin from the prior.
LEARNED = {
    "learned heads, P = 60": ("teacher_student", FEW),
    "copy head, P = 24": ("copy_head", (*FEW, "task.examples_train=24")),
    "copy head, P = 35": ("copy_head", FEW),
}
# Problem and chains.
COSTS = {
    "two paths, N = 10": ("split_hmc", "nuts"),
    "four paths, N = 10": ("split_hmc", "nuts"),
    "copy head, P = 24": ("nuts", "split_hmc"),
    "copy head, P = 35": ("nuts", "split_hmc"),
    "learned heads, P = 60": ("nuts", "split_hmc"),
}
SAMPLERS = {
    "tempered": {"particles": 256, "repetitions": 4, "until": "draws"},
    "importance": {"draws": 500},
    "split_hmc": {"draws": 1000, "evidence": True},
    "nuts": {"draws": 1000},
}
METHODS = ("modes", "prior", "importance", "bridge")


def kept(name: str, algorithm: str) -> dict:
    """What a sampler found on a problem, computed now or before."""
    file = folder / f"{name.replace(' ', '').replace(',', '_')}-{algorithm}.json"
    if not file.is_file():
        settings = SAMPLERS[algorithm]
        if name in LEARNED:
            settings = {**settings, "attention_theories": 0, "evidence": False}
            if algorithm != "tempered":
                settings["draws"] = 300
        if name.endswith("16 repetitions") and algorithm == "tempered":
            settings = {**settings, "repetitions": 16}
        recipe, changes = (PROBLEMS | LEARNED)[name]
        found = sampled(recipe, changes, {"algorithm": algorithm, **settings})
        file.write_text(json.dumps(found), encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8"))


def sampled(recipe: str, changes: tuple[str, ...], settings: dict) -> dict:
    """Log evidences with their errors, cost, and effective draws of the worst quantity."""
    task, network = task_and_network(load_recipe(RUNS / f"{recipe}.toml", [*changes, "sweep={}"]))
    draws = sampler.sample(task, network, progress=False, **settings)
    known = draws["sample_stats"].attrs
    statistics = {name: np.asarray(one) for name, one in draws["sample_stats"].items()}
    evidence = {}
    if settings["algorithm"] == "tempered":
        for start, key in (("modes", "log_evidence"), ("prior", "log_evidence_prior")):
            values = statistics[key][:, 0]
            if not np.isnan(values).any():  # four alone begin at the prior
                evidence[start] = log_mean(values)
    elif known.get("log_evidence_trusted"):
        evidence[known["log_evidence_method"]] = known["log_evidence"], known["log_evidence_error"]
    judged = diagnose_stage(draws)
    quantities = judged.quantities.values()
    if "order_parameter" in draws["posterior"]:
        traces = np.trace(np.asarray(draws["posterior"]["order_parameter"]), axis1=-2, axis2=-1)
        mean = mean_of(traces, repetition_weights(statistics))
        shown = float(mean.value), float(mean.mcse)
    else:
        numbers_of_heads = {one.quantity: one for one in sampler.attention_found(draws).numbers}
        copied = numbers_of_heads["overlap with copied token"]
        shown = copied.value, copied.error
    return {
        "evidence": evidence,
        "gradients": int(known["gradients"]),
        "seconds": float(known["seconds"]),
        "effective draws": float(min(min(one.ess_bulk, one.ess_tail) for one in quantities)),
        "r_hat": float(max((one.r_hat or 1.0) for one in quantities)),
        "trusted": int(judged.passed),
        "warned": int(bool(judged.warning)),
        "mean": shown,
    }


def apart(one: list, other: list) -> float:
    """Difference of two estimates in errors of the difference."""
    return (one[0] - other[0]) / float(np.hypot(one[1], other[1]))


# %%
folder.mkdir(parents=True, exist_ok=True)
numbers: dict = {"evidence": {}, "cost": {}}
for name in PROBLEMS:
    if only and name not in only:
        continue
    made = [kept(name, algorithm) for algorithm in SAMPLERS if algorithm != "nuts"]
    found = {method: pair for one in made for method, pair in one["evidence"].items()}
    entry = {method: estimate(*pair, "MCSE") for method, pair in found.items()}
    differences = {f"{a} - {b}": apart(found[a], found[b]) for a, b in combinations(found, 2)}
    entry |= {
        "in errors": differences,
        "most apart": max(map(abs, differences.values())),
    }
    numbers["evidence"][name] = entry
    text = ", ".join(f"{a} {value:.3f} ± {error:.3f}" for a, (value, error) in found.items())
    print(f"{name}: {text}; at most {entry['most apart']:.1f} errors", flush=True)

# %%
for name, chains in COSTS.items():
    if only and name not in only:
        continue
    numbers["cost"][name], means = {}, {}
    for algorithm in ("tempered", *chains):
        found = kept(name, algorithm)
        means[algorithm] = found.pop("mean")
        found.pop("evidence")
        effective = found["effective draws"]
        numbers["cost"][name][algorithm] = found | {
            "mean": estimate(*means[algorithm], "MCSE"),
            "gradients each": found["gradients"] / effective,
            "seconds each": found["seconds"] / effective,
        }
        print(name, algorithm, json.dumps(numbers["cost"][name][algorithm]), flush=True)
        if algorithm != "tempered":
            away = apart(means[algorithm], means["tempered"])
            numbers["cost"][name][algorithm]["from tempered"] = away
record(folder, "tempered_evidence", numbers, made_by="python runs/tempered_evidence.py", seeds=[0])

# %%
with style.figure_style():
    figure = style.new_figure(style.WIDTH, 3.4, "Log evidence by other means, less that of tempered"
                              " particles from the modes")  # fmt: skip
    axes = figure.subplots()
    colours = dict(zip(METHODS[1:], (style.VERMILLION, style.GREEN, style.BLUE), strict=True))
    for row, entry in enumerate(numbers["evidence"].values()):
        for place, method in enumerate(METHODS[1:]):
            if method in entry:
                away = entry[method]["value"] - entry["modes"]["value"]
                error = np.hypot(entry[method]["error"], entry["modes"]["error"])
                marks = {"color": colours[method], "label": None if row else method}
                axes.errorbar(away, row + 0.2 * (place - 1), xerr=error, fmt="o", **marks)
    axes.axvline(0.0, color=style.GREY, linewidth=0.8)
    axes.set_yticks(range(len(numbers["evidence"])), list(numbers["evidence"]))
    axes.invert_yaxis()
    axes.set_xlabel("difference of ln p(y), one standard error")
    axes.legend(fontsize="small")
    written = style.save_figure(figure, folder, "tempered_evidence")
print("figure:", *written)
