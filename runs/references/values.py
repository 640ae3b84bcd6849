"""What is stored of a reference problem: values with their errors, agreement, diagnostics."""

import json
import math
from datetime import date
from importlib.metadata import version

import numpy as np

from sampler.analysis.functionals import (
    ACCURACY,
    POWERS,
    PREDICTOR,
    PROBABILITIES,
    deviations,
    expectations_of_chains,
    expectations_of_predictor,
    expectations_of_weighted,
    given_moments,
    quantile_errors,
    weighted_quantiles,
)
from sampler.api.references import JUDGED, expected_of
from sampler.mcmc.convergence import autocovariance, rank_diagnostics
from sampler.mcmc.hamiltonian import bfmi_of

# More of the draws than this at a quantile, beyond its probability, are no rounding.
ATOM = 1e-3
PACKAGES = ("jax", "jaxlib", "numpyro", "numpy", "scipy")
# Digits of numbers that need more than others, or fewer.
DIGITS = {"value": 10, "mean": 8, "quantiles": 8, "sd": 6, "moments": 6}


def stored(values, name, exact):
    """Values of one functional with their errors, from chains or from an exact grid."""
    if exact:
        points, weights = values[name]
        centre = weights @ points
        quantiles = weighted_quantiles(points, weights)
        found = expectations_of_weighted(points, weights, centre, quantiles, exact=True)
        of_quantiles = np.zeros_like(quantiles)
    else:
        points = values[name]
        centre = points.mean(axis=(0, 1))
        quantiles = np.quantile(points, PROBABILITIES, axis=(0, 1))
        found = expectations_of_chains(points, centre, quantiles)
        of_quantiles = quantile_errors(points, found.errors[4:])
    sd, powers = np.sqrt(found.means[1]), len(POWERS)
    with np.errstate(divide="ignore", invalid="ignore"):
        sd_error = np.where(sd > 0, found.errors[1] / (2 * sd), 0.0)
    mcse = {"mean": found.errors[0], "sd": sd_error, "moments": found.errors[1:powers].T}
    values = {"mean": centre, "sd": sd, "moments": found.means[1:powers].T}
    if name != ACCURACY:
        reached = found.means[powers:]
        # A value that has a probability of its own, as a kernel of ReLU values has 0.
        if not exact and np.abs(reached.T - PROBABILITIES).max() > ATOM:
            values["probabilities"] = reached.T
        values["quantiles"] = quantiles.T
        mcse |= {"quantiles": of_quantiles.T, "probabilities": found.errors[powers:].T}
    return {**values, "mcse": mcse}


def stored_predictor(values, exact):
    """Moments of f(x), which follow from m(x) and v(x)."""
    if exact:
        (mean, weights), (variance, _) = values["predictor_mean"], values["predictor_variance"]
        centre = weights @ mean
        means = np.array([weights @ one for one in given_moments(mean, variance, centre)])
        errors = np.zeros_like(means)
    else:
        mean, variance = values["predictor_mean"], values["predictor_variance"]
        centre = mean.mean(axis=(0, 1))
        means, errors = expectations_of_predictor(mean, variance, centre)
    sd = np.sqrt(means[1])
    return {
        "mean": centre, "sd": sd, "moments": means[1:4].T,
        "mcse": {"mean": errors[0], "sd": errors[1] / (2 * sd), "moments": errors[1:4].T},
    }  # fmt: skip


def compared(reference, values, means_only):
    """z [statistic, element] of every functional of another method."""
    found = {}
    for name, known in reference.items():
        expected, centre = expected_of(known), np.array(known["mean"])
        quantiles = np.transpose(known["quantiles"]) if "quantiles" in known else []
        if name in values:
            points, weights = values[name]
            if weights is None:
                seen = expectations_of_chains(points, centre, quantiles)
            else:
                seen = expectations_of_weighted(points, weights, centre, quantiles, means_only)
        elif name == PREDICTOR:
            seen = predictor_seen(*values["predictor_mean"], *values["predictor_variance"], centre)
        else:
            continue
        z = deviations(seen, expected)
        found[name] = z[:1] if means_only else z
    return found


def predictor_seen(mean, weights, variance, _, centre):
    """Moments of f(x) by weighted draws or chains of m and v."""
    if weights is None:
        return expectations_of_predictor(mean, variance, centre)
    moments = given_moments(mean, variance, centre)
    means = [weights @ one for one in moments]
    errors = [np.sqrt(weights**2 @ (one - at) ** 2) for one, at in zip(moments, means, strict=True)]
    return expectations_of_weighted(mean, weights, centre, [])._replace(
        means=np.array(means), errors=np.array(errors)
    )


def agreement(found):
    """Shares of |z| beyond 2 and 3, the largest, where it is, and all z in bins of 0.5."""
    rows = [(name, [r for r in JUDGED if r < len(z)]) for name, z in found.items()]
    joined = np.concatenate([found[name][r].ravel() for name, r in rows])
    joined = joined[np.isfinite(joined)]
    sizes = {name: np.nanmax(np.abs(found[name][r]), initial=0.0) for name, r in rows}
    counts, _ = np.histogram(np.clip(joined, -5.99, 5.99), np.arange(-6, 6.5, 0.5))
    return {
        "values": int(joined.size), "within_2": float((np.abs(joined) <= 2).mean()),
        "within_3": float((np.abs(joined) <= 3).mean()), "largest": float(np.abs(joined).max()),
        "largest_of": max(sizes, key=sizes.get), "histogram": counts.tolist(),
    }  # fmt: skip


def diagnostics(values, tree):
    """Worst numbers of each functional, and of the chains."""
    found = {"names": [], "r_hat": [], "bulk": [], "tail": [], "lag": []}
    for name, points in values.items():
        if np.ptp(points) == 0:
            continue
        r_hat, bulk, tail = rank_diagnostics(points)
        covariance = autocovariance(points).mean(axis=0)
        with np.errstate(invalid="ignore"):
            lag = covariance[1] / covariance[0]
        found["names"].append(name)
        for key, worst in (
            ("r_hat", np.nanmax(r_hat)), ("bulk", np.nanmin(bulk)), ("tail", np.nanmin(tail)),
            ("lag", lag[np.nanargmax(np.abs(lag))]),
        ):  # fmt: skip
            found[key].append(float(worst))
    return found


def information(name, recipe, values, tree):
    """The info of posteriordb, under its names."""
    found, stats = diagnostics(values, tree), tree["sample_stats"]
    bfmi = bfmi_of(stats["energy"].values)
    settings, chains = recipe.sampler, stats.sizes["chain"]
    ndraws = chains * stats.sizes["draw"]
    return {
        "name": name,
        "inference": {
            "method": f"attention-posterior {settings.algorithm} in {settings.space}",
            "method_arguments": {
                "chains": chains, "draws": stats.sizes["draw"], "thin": settings.thinning,
                "seed": settings.seed, "gradients": int(tree["posterior"].attrs["gradients"]),
                "seconds": round(tree["posterior"].attrs["seconds"], 1),
            },
        },
        "diagnostics": {
            "diagnostic_information": {"names": found["names"]},
            "ndraws": ndraws, "nchains": chains,
            "effective_sample_size_bulk": [round(n) for n in found["bulk"]],
            "effective_sample_size_tail": [round(n) for n in found["tail"]],
            "r_hat": found["r_hat"],
            "lag_1_autocorrelation": found["lag"],
            "divergent_transitions": stats["diverging"].values.sum(axis=1).tolist(),
            "expected_fraction_of_missing_information": bfmi,
        },
        "checks_made": {
            "ndraws_is_10k": ndraws == 10_000, "nchains_is_gte_4": chains >= 4,
            "ess_within_bounds": all(8000 <= n <= 12_500 for n in found["bulk"]),
            "r_hat_below_1_01": max(found["r_hat"]) < 1.01,
            "efmi_above_0_2": min(bfmi) > 0.2,
            "no_divergences": not stats["diverging"].values.any(),
            "lag_1_autocorrelation_below_0_05": max(map(abs, found["lag"])) < 0.05,
        },
        "comments": None,
        "added_by": "attention-posterior", "added_date": date.today().isoformat(),
        "versions": {package: version(package) for package in PACKAGES},
    }  # fmt: skip


# --- as text


def shortened(content, digits=7):
    """Numbers to seven digits, means to eight, errors to two; None for what is not finite."""
    if isinstance(content, dict):
        return {
            key: shortened(value, 2 if key == "mcse" or digits == 2 else DIGITS.get(key, 7))
            for key, value in content.items()
        }
    if isinstance(content, list | tuple | np.ndarray):
        return [shortened(value, digits) for value in content]
    if content is None or isinstance(content, str | bool | int):
        return content
    number = float(content)
    return float(f"{number:.{digits}g}") if math.isfinite(number) else None


def write(target, record):
    """One line for every key; check values and temperatures are kept to the last digit."""
    kept = {key: record[key] for key in ("checks", "network") if key in record}
    lines = (
        f'"{key}": {json.dumps(value, ensure_ascii=False, separators=(",", ":"))}'
        for key, value in (shortened(record) | kept).items()
    )
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
