"""Values of reference problems: drawn by one method, held against another, written as JSON.

    python -m runs.references.make [NAME …]

A problem is a recipe of this folder, whose comments name its tags and its second method, or say why
it is open: nothing is drawn then. What is
drawn is kept in runs/results/references, so that the same command goes on where it was
interrupted. A problem whose JSON file has values of this recipe is left as it is.
"""

import argparse
import json
import math
import os
import re
import time
import traceback
import warnings
from pathlib import Path

import jax
import numpy as np

import sampler
from runs.references import truths
from runs.references.values import (
    agreement,
    compared,
    diagnostics,
    information,
    shortened,
    stored,
    stored_predictor,
    write,
)
from sampler.analysis.functionals import PREDICTOR, slowest_directions
from sampler.api.references import BEYOND, Reference, arrays_of, plain_density
from sampler.errors import RequeueError
from sampler.mcmc.marginal_likelihood import bridge_evidence
from sampler.posterior.order_parameters import stored_sites
from theory.architecture import order_parameter_names

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parent / "results" / "references"
TESTS, CHECKS, SEEDS = 20, 5, (0, 1)
# Of the draws that say which directions are slow; values of these directions come from other ones.
SEED_OF_DIRECTIONS = 300
# Share of z within 2 below which a problem is repeated, and then open. 95 % are expected over all
# problems, not of each: where U_1 is a number all functionals are functions of it, so that one of
# the seven statistics beyond 2, which three in ten problems have, is beyond it in all of them. Two
# of them are in one problem of twenty, twice in one of five hundred.
FEWEST_WITHIN = 0.75
# Tempered particles further off than so many errors are repeated, with four times as many.
FAR_EVIDENCE = 3.0


# --- methods: functionals by name as (values, weights), of chains without weights


def sampled(recipe, folder, **settings):
    """The tree of a recipe with these settings, whatever its diagnostics say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sampler.ReliabilityWarning)
        return sampler.sample(recipe, out=folder, progress=False, **settings)


def drawn(recipe, folder, one, **settings):
    """Functionals of chains, and their tree."""
    tree = sampled(recipe, folder, **settings)
    values = one.functionals(tree)
    predictor = tree["predictions"].get(PREDICTOR)
    if predictor is not None and values["energy"].shape[:2] == predictor.shape[:2]:
        chosen = predictor.values[:, :, one.record["test_inputs"]]
        values[PREDICTOR] = chosen.reshape(*chosen.shape[:2], -1).astype(float)
    return values, tree


def directions_of(recipe, folder, layers):
    """Slowest directions of the order parameters, by draws that nothing else is taken from."""
    settings = {"seed": SEED_OF_DIRECTIONS, "evidence": False, "draws": 300}
    posterior = sampled(recipe, folder / "directions", **settings)["posterior"]
    names = order_parameter_names(layers)
    return slowest_directions({name: posterior[name].values for name in names})


def second_method(kind, one, folder, seed):
    """Functionals by a second method, ln p(y) by it where it knows it, and its costs."""
    recipe, arrays = one.recipe, one.plain["arrays"]
    layers = len(one.record["network"]["heads"])
    widths, variances = recipe.network.layer_widths(layers), recipe.network.layer_variances(layers)
    if kind == "scalars":
        posterior = recipe.posterior
        values, evidence = truths.scalars(
            widths, variances, arrays["attended_train"][:, 0], arrays["labels_train"][:, 0],
            arrays["attended_test"][:, 0], arrays["labels_test"][:, 0],
            posterior.temperature, posterior.temperature_spread,
        )  # fmt: skip
        return values, evidence, {"exact": True}
    if kind == "closed form":
        values, evidence = truths.closed_form(one.data, variances, one.record["network"]["heads"])
        return values, evidence, {"exact": True, "means_only": True}
    if kind == "prior draws":
        inputs = np.concatenate([arrays["inputs_train"], arrays["inputs_test"]])
        scale = one.record["network"]["logits"]
        return *truths.prior_draws(one.data, inputs, scale, 300_000, 20_000, seed), {}
    if kind == "importance":
        found = sampler.weighted_draws(sampler.make_problem(recipe), 20_000, seed + 100)
        flat = recipe.log_density("order_parameters")
        seen = flat.observables(found.points, jax.random.key(seed))
        draws = {n: value[None] for n, value in seen.items() if "order_parameter" in n}
        values = {n: value[0] for n, value in one.data.of_order_parameters(draws).items()}
        evidence = {
            "value": found.log_evidence,
            "mcse": found.log_evidence_error,
            "method": "importance",
        }
        beside = {"pareto_k": found.pareto_k, "effective_draws": found.effective_sample_size}
        return {n: (value, found.weights) for n, value in values.items()}, evidence, beside
    settings = {"space": "weights", "algorithm": "nuts", "evidence": False, "seed": seed + 100}
    settings |= {"chains": 10, "draws": 500, "thinning": 1}
    if recipe.sampler.weight_draws:
        settings["weight_draws"] = settings["draws"]
    values, tree = drawn(recipe, folder / f"weights_{seed}", one, **settings)
    score = diagnostics(values, tree)
    beside = {
        "seconds": round(tree["posterior"].attrs["seconds"]),
        "gradients": int(tree["posterior"].attrs["gradients"]),
        "worst_r_hat": max(score["r_hat"]), "fewest_effective": min(score["bulk"]),
        "divergent": int(tree["sample_stats"]["diverging"].sum()),
    }  # fmt: skip
    return {name: (value, None) for name, value in values.items()}, None, beside


def bridged_evidence(recipe, tree, seed):
    """ln p(y) by bridge sampling of the chains of order parameters; None where it is uncertain."""
    problem = sampler.make_problem(recipe)
    space = problem.space("order_parameters")
    groups = (tree["posterior"], tree["unconstrained_posterior"])
    draws = {name: group[name].values for group in groups for name in group.data_vars}
    sites = stored_sites(draws, problem.temperature)
    points = np.concatenate([sites[name] for name in space.shapes], axis=2)
    found = bridge_evidence(space, points, seed)
    known = {"value": found.value, "mcse": found.error, "method": "bridge"}
    return known if found.trusted else None


def tempered_evidence(recipe, folder, space, particles=128):
    """ln p(y) by tempered particles, which no chain has been near."""
    settings = {"space": space, "algorithm": "tempered", "particles": particles, "repetitions": 4}
    only = {"sampler": {**settings, "seed": 200, "until": "draws"}}
    sections = ("name", "task", "attention", "network", "posterior")
    plain = sampler.Recipe(**{key: getattr(recipe, key) for key in sections}, **only)
    return evidence_in(sampled(plain, folder / f"tempered_{space}_{particles}"))


def evidence_in(tree):
    found = tree["posterior"].attrs
    if "log_evidence" not in found:
        return None
    method = found.get("log_evidence_method", "tempered")
    return {
        "value": float(found["log_evidence"]), "mcse": float(found["log_evidence_error"]),
        "method": str(method),
    }  # fmt: skip


def evidences(recipe, folder, tree, second, seed):
    """ln p(y) by all methods, the most accurate first: one entry of each method.

    second  by the second method, where that knows it
    """
    if recipe.has_theory:
        found = [evidence_in(tree)]
        if second is None or second["mcse"] > 0:
            found.append(bridged_evidence(recipe, tree, seed))
            best = min((one for one in found if one), key=lambda one: one["mcse"])
            tempered = tempered_evidence(recipe, folder, "order_parameters")
            away = abs(tempered["value"] - best["value"])
            # The logarithm of few noisy weights is too low, by more than repetitions scatter.
            if away > FAR_EVIDENCE * np.hypot(tempered["mcse"], best["mcse"]):
                tempered = tempered_evidence(recipe, folder, "order_parameters", 512)
            found.append(tempered)
    else:
        spaces = ("attention",) if recipe.network.is_infinite else ("hidden_weights", "weights")
        found = [tempered_evidence(recipe, folder, space) for space in spaces]
        for space, one in zip(spaces, found, strict=True):
            one["method"] = f"tempered in {space}"
    known = {one["method"]: one for one in (second, *found) if one is not None}
    return sorted(known.values(), key=lambda each: each["mcse"])


# --- one problem


def described(name, recipe):
    """What is known before anything is drawn: sizes, network, data, tags."""
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    said = dict(re.findall(r"^# (tags|second|open): *(.*)$", text, re.MULTILINE))
    arrays, posterior, network = arrays_of(recipe), recipe.posterior, recipe.network
    path = getattr(recipe.task, "path", None)
    data = f"{name}.npz" if path is None else os.path.relpath(path, FOLDER)
    if path is None:
        np.savez_compressed(FOLDER / data, **arrays)
    with_heads = "heads" in arrays
    heads = arrays["heads"].tolist() if with_heads else [len(h) for h in recipe.attention.heads]
    infinite = network.is_infinite
    labels = arrays["labels_train"].reshape(len(arrays["labels_train"]), -1)
    tests = len(arrays["labels_test"])
    learned = "inputs_train" in arrays and recipe.learns_attention
    return {
        "name": name, "recipe": recipe.hash8, "open": said.get("open"),
        "title": text.splitlines()[0].removeprefix("# "),
        "tags": [tag for tag in said["tags"].split(", ") if tag], "second": said.get("second"),
        "sizes": {
            "N": [] if infinite else list(network.layer_widths(len(heads))),
            "P": len(labels), "depth": len(heads), "paths": math.prod(heads),
            "outputs": labels.shape[1], "temperature": posterior.temperature,
        },
        "network": {
            "heads": heads, "widths": [] if infinite else list(network.layer_widths(len(heads))),
            "variances": list(network.layer_variances(len(heads))),
            "temperature": posterior.temperature,
            "temperature_spread": posterior.temperature_spread, "values": network.values,
            "readout": network.readout,
            "logits": recipe.attention.inverse_temperature if learned else None,
        },
        "data": data,
        "test_inputs": np.linspace(0, tests - 1, min(tests, TESTS)).astype(int).tolist(),
        "checks": [],
    }  # fmt: skip


def check_values(name, record):
    """The log density of all weights at five points, by NumPy."""
    if max(record["sizes"]["N"], default=0) > 10_000:
        return []
    density = plain_density()
    problem = density.load(name)
    record["sizes"]["weights"] = sum(math.prod(s) for s in density.shapes(problem).values())
    points = [density.check_point(problem, seed) for seed in range(CHECKS)]
    values = [float(density.log_density(problem, point)) for point in points]
    return [{"seed": seed, "log_density": value} for seed, value in enumerate(values)]


def make(name):
    """Draw, compare, and write the JSON of a problem."""
    started = time.perf_counter()
    recipe = sampler.Recipe.load(FOLDER / f"{name}.toml")
    target = FOLDER / f"{name}.json"
    if target.is_file():
        known = json.loads(target.read_text(encoding="utf-8"))
        # An interrupted command leaves a record without values.
        if known["recipe"] == recipe.hash8 and (known["open"] or "values" in known):
            return
    record = described(name, recipe)
    write(target, record)
    record["checks"] = check_values(name, record)
    if record["open"]:
        write(target, record)
        return
    folder, sizes = RESULTS / f"{name}-{recipe.hash8}", record["sizes"]
    if recipe.has_theory and sizes["N"] and sizes["paths"] * sizes["outputs"] > 1:
        record["directions"] = directions_of(recipe, folder, sizes["depth"])
    one = Reference(name, record)
    for seed in SEEDS:
        first, tree = drawn(recipe, folder / f"first_{seed}", one, seed=seed)
        second, evidence, beside = second_method(record["second"], one, folder, seed)
        exact = beside.pop("exact", False)
        means_only = beside.pop("means_only", False)
        chains = {n: (points, None) for n, points in first.items() if n != PREDICTOR}
        truth = exact and not means_only
        source = second if truth else {n: points for n, (points, _) in chains.items()}
        values = {group: stored(source, group, truth) for group in source if group != PREDICTOR}
        values[PREDICTOR] = stored_predictor(source, truth)
        z = compared(values, chains if truth else second, means_only)
        found = agreement(z)
        agrees = found["largest"] <= BEYOND and found["within_2"] >= FEWEST_WITHIN
        if agrees:
            break
        record["repeated"] = "with seed 1, as methods disagreed with seed 0"
    known = evidences(recipe, folder, tree, evidence, seed)
    record |= {
        "info": information(name, recipe.changed({"sampler.seed": seed}), first, tree),
        "reference_is": record["second"] if truth else "the chains of the recipe",
        "log_evidence": {**known[0], "others": known[1:]} if known else None,
        "values": values, "agreement": {"second": record.pop("second"), **beside, **found},
    }  # fmt: skip
    if not agrees:
        record["open"] = (
            f"two methods disagree: |z| ≤ 2 in {found['within_2']:.0%} of the values, up to "
            f"{found['largest']:.1f} ({found['largest_of']})"
        )
    if recipe.is_solved:
        record["theories"] = Reference(name, record).score(sampler.solve(recipe))
    record["minutes"] = round((time.perf_counter() - started) / 60, 1)
    write(target, record)
    print(name, json.dumps(shortened(record["agreement"])), record["info"]["checks_made"])
    print(name, shortened(record["log_evidence"]), record["minutes"], "minutes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="problems; all by default")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for name in given.names or sorted(path.stem for path in FOLDER.glob("*.toml")):
        try:
            make(name)
        except RequeueError:  # a signal asked the command to stop
            (FOLDER / f"{name}.json").unlink(missing_ok=True)
            raise
        except Exception:
            (FOLDER / f"{name}.json").unlink(missing_ok=True)
            print(name, "failed", traceback.format_exc(), flush=True)


if __name__ == "__main__":
    main()
