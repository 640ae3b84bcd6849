"""The tables of a report."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from sampler.mcmc.diagnostics import ESS_LIMIT, R_HAT_LIMIT
from sampler.mcmc.hamiltonian import BFMI_LIMIT, DIVERGENCE_LIMIT
from sampler.presentation.report.elements import Content, Html, Number, count, percent, table
from sampler.presentation.report.verdict import Difference, largest_by_chance, place, quantity_name
from sampler.presentation.summary import named_hyper_parameters
from sampler.storage.results import RunResults
from theory.observables import binomial_error

ACCURACY_CAPTION = (
    "Accuracy on the test set. Monte Carlo error: of the samples. Test set: binomial error of so "
    "many examples, common to all rows, so that differences between rows are known better."
)
VARIANTS = {
    "accuracy_diagonal_only": "theory, U₁ diagonal only",
    "accuracy_equal_diagonal": "theory, U₁ with equal diagonal",
    "accuracy_trained": "network trained by gradient descent",
    "accuracy_nearest_neighbour": "nearest neighbour in pixels",
}


def accuracy_rows(run: RunResults) -> list[tuple[str, float, float | None]]:
    """Name, accuracy and Monte Carlo error (None where nothing is sampled) of every predictor."""
    rows: list[tuple[str, float, float | None]] = []
    sampled = sampled_accuracy(run)
    if run.theory is not None:
        rows = [("theory", theory_accuracy(run, "theory"), None)]
    if sampled:
        rows.append(("exact posterior, sampled", float(sampled["value"]), sampled["mcse"]))
    if run.theory is not None:
        rows.append(("infinite width (GP)", theory_accuracy(run, "gp"), None))
        if "accuracy_gp_subnetwork" in run.theory:
            limits = run.theory["accuracy_gp_subnetwork"]
            for name, value in zip(limits["subnetwork"].values, limits.values, strict=True):
                rows.append((f"infinite width, only {name}", float(value), None))
        rows += [
            (label, float(run.theory[name]), None)
            for name, label in VARIANTS.items()
            if name in run.theory
        ]
    return [row for row in rows if math.isfinite(row[1])]


def accuracy_table(run: RunResults) -> Html | None:
    """The table of these accuracies; None where the labels are no classes."""
    rows = accuracy_rows(run)
    if not rows:
        return None
    cells: list[list[Content]] = []
    for name, value, mcse in rows:
        on_test_set = test_set_error(run, value)
        if mcse is not None:
            on_test_set = sampled_accuracy(run).get("binomial_error")
        monte_carlo = "" if mcse is None else percent(mcse, digits=2)
        shown = percent(value, mcse if mcse is not None else on_test_set)
        cells.append([name, shown, monte_carlo, percent(on_test_set, digits=2)])
    return table(
        ACCURACY_CAPTION, ("predictor", "accuracy", "Monte Carlo error", "test set error"), cells
    )


def accuracy_sentence(run: RunResults) -> str | None:
    """Theory, exact posterior and infinite width in one sentence, and what finite width gains."""
    if run.theory is None:
        return None
    theory, limit = (theory_accuracy(run, name) for name in ("theory", "gp"))
    if not (math.isfinite(theory) and math.isfinite(limit)):
        return None
    sampled = sampled_accuracy(run)
    parts = [f"theory {percent(theory, test_set_error(run, theory))}"]
    if sampled:
        parts.append(f"exact posterior {percent(sampled['value'], sampled['mcse'])}")
    parts.append(f"infinite width {percent(limit, test_set_error(run, limit))}")
    errors = "Errors: Monte Carlo for the exact posterior, of the test set for the others."
    gain = Number(theory - limit, None, 100.0, digits=3)
    return (
        f"Accuracy: {', '.join(parts)}. {errors if sampled else ''} By the theory finite width "
        f"changes it by {gain} percentage points."
    )


def sampled_accuracy(run: RunResults) -> dict | None:
    """The sampled accuracy with its errors, None where there is none."""
    found = ((run.comparison or {}).get("accuracy") or {}).get("sampled")
    return found if found and found.get("value") is not None else None


def theory_accuracy(run: RunResults, name: str) -> float:
    """An accuracy of `theory.nc`, NaN where it is undefined."""
    column = f"accuracy_{name}"
    if run.theory is None or column not in run.theory:
        return float("nan")
    return float(run.theory[column])


def test_set_error(run: RunResults, accuracy: float) -> float | None:
    """√(a(1 − a)/tests), None where the number of test examples is not stored."""
    if run.theory is None or "test_example" not in run.theory.sizes:
        return None
    return binomial_error(accuracy, run.theory.sizes["test_example"])


MOST_ROWS = 15


def differences_table(found: Mapping[str, Difference]) -> Html | None:
    """Median and largest difference of every quantity, in both units."""
    if not found:
        return None
    rows = [
        [
            one.name,
            count(one.elements),
            percent(one.whole, one.whole_error),
            Number(one.median_in_mcse, digits=3),
            Number(one.worst_in_mcse, digits=3),
            Number(largest_by_chance(one.elements), digits=2),
            percent(one.median_relative, digits=2),
            percent(one.worst_relative, digits=2),
            one.at,
        ]
        for one in found.values()
    ]
    header = (
        "quantity", "elements", "as a whole", "median, MCSE", "largest, MCSE",
        "largest by chance, MCSE", "median, relative", "largest, relative", "largest in MCSE at",
    )  # fmt: skip
    caption = (
        "Sampled minus theory. As a whole: norm of the difference over norm of the samples. By "
        "element: absolute value, in Monte Carlo standard errors (MCSE) and relative to the "
        "sampled element; an element close to zero has a large relative difference of no weight."
    )
    return table(caption, header, rows)


def order_parameter_table(run: RunResults) -> Html | None:
    """Elements of U₁: theory, sampled, difference; the diagonal alone where there are many."""
    compared = run.compared("order_parameter")
    if compared is None:
        return None
    theory, sampled, mcse = (compared[key] for key in ("theory", "sampled", "mcse"))
    pairs, left_out = shown_elements(len(theory))
    rows = []
    for i, j in pairs:
        gap = sampled[i, j] - theory[i, j]
        with np.errstate(divide="ignore", invalid="ignore"):
            in_mcse, relative = float(gap / mcse[i, j]), float(gap / abs(sampled[i, j]))
        rows.append(
            [
                place("order_parameter", (i, j), run.path_names),
                Number(float(theory[i, j])),
                Number(float(sampled[i, j]), float(mcse[i, j])),
                Number(in_mcse, digits=2),
                percent(relative, digits=2),
            ]
        )
    caption = f"Order parameter U₁, path by path: theory and posterior mean ± MCSE.{left_out}"
    header = ("paths", "theory", "sampled ± MCSE", "difference, MCSE", "difference, relative")
    return table(caption, header, rows)


def shown_elements(paths: int) -> tuple[Sequence[tuple[int, int]], str]:
    """Places of the elements that are shown, and a remark on those that are not."""
    pairs = [(i, j) for i in range(paths) for j in range(i, paths)]
    if len(pairs) <= MOST_ROWS:
        return pairs, ""
    diagonal = [(i, i) for i in range(min(paths, MOST_ROWS))]
    return diagonal, f" {len(diagonal)} of {len(pairs)} elements; all are in comparison.json."


def head_score_table(comparison: Mapping) -> Html | None:
    """Head scores of the posterior mean of U₁ beside the theory's."""
    entry = comparison.get("head_score")
    if not entry:
        return None
    theory, sampled, mcse = (np.array(entry[k], dtype=float) for k in ("theory", "sampled", "mcse"))
    rows = [
        [
            f"layer {layer + 1}, head {head + 1}",
            Number(float(theory[layer, head])),
            Number(float(sampled[layer, head]), float(mcse[layer, head])),
        ]
        for layer, head in np.argwhere(np.isfinite(theory))
    ]
    caption = "Head scores: the share of |U₁| on paths through a head; sampled ± MCSE."
    return table(caption, ("head", "theory", "sampled ± MCSE"), rows) if rows else None


def diagnostics_table(diagnostics: Mapping) -> Html | None:
    """The worst R-hat and effective sample sizes of every quantity."""
    quantities = diagnostics.get("quantities")
    if not quantities:
        return None
    rows = [
        [
            quantity_name(key),
            Number(one["r_hat"], digits=5),
            place(key, one["at"]),
            count(one["ess_bulk"]),
            count(one["ess_tail"]),
            "within limits" if _within(one) else "misses a limit",
        ]
        for key, one in quantities.items()
    ]
    caption = (
        f"Worst element of every quantity: rank-normalised split R-hat (limit {R_HAT_LIMIT}), "
        f"effective sample sizes (limit {ESS_LIMIT:.0f})."
    )
    return table(caption, ("quantity", "R-hat", "at", "bulk ESS", "tail ESS", "verdict"), rows)


def _within(one: Mapping) -> bool:
    """A number that is undefined misses its limit."""
    values = (one["r_hat"], one["ess_bulk"], one["ess_tail"])
    if any(value is None for value in values):
        return False
    return values[0] <= R_HAT_LIMIT and min(values[1:]) >= ESS_LIMIT


def sampler_table(diagnostics: Mapping, cost: Mapping) -> Html | None:
    """How the sampler ran, and what it cost."""
    if not diagnostics.get("draws"):
        return None
    rows = [
        ["chains", count(diagnostics["chains"]), ""],
        ["draws of each chain", count(diagnostics["draws"]), ""],
    ]
    if diagnostics.get("bfmi"):
        share = diagnostics["divergences"] / (diagnostics["chains"] * diagnostics["draws"])
        rows += [
            [
                "smallest E-BFMI",
                Number(min(diagnostics["bfmi"]), digits=3),
                f"at least {BFMI_LIMIT}",
            ],
            ["divergences", count(diagnostics["divergences"]), ""],
            [
                "divergences, share of draws",
                percent(share),
                f"at most {100 * DIVERGENCE_LIMIT:g} %",
            ],
            ["leapfrog steps per draw", Number(diagnostics["leapfrog_steps_per_draw"]), ""],
            ["at the maximal tree depth", percent(diagnostics["saturated_share"]), ""],
        ]
    names = {
        "seconds": "seconds, compilation and warm-up included",
        "seconds_warmup": "seconds of warm-up",
        "seconds_draws": "seconds of drawing",
        "gradients": "gradients",
        "effective_draws": "effective draws of the slowest element of U₁",
        "effective_draws_per_second": "effective draws per second",
    }
    rows += [[label, Number(cost[key]), ""] for key, label in names.items() if key in cost]
    return table("The sampler, and what it cost.", ("what", "value", "limit"), rows)


EVIDENCE_CAPTION = (
    "Log evidence ln p(y) of the training labels, with its Monte Carlo error. Between two networks "
    "or temperatures on the same data the larger one is supported, without any test example."
)


def evidence_table(evidence: Mapping) -> Html | None:
    """ln p(y) of theory, samples and infinite width; None where samples do not know it."""
    sampled = evidence.get("sampled")
    if not sampled:
        return None
    doubt = "" if sampled.get("trusted") else ", not to be trusted"
    rows = [
        [
            f"exact posterior, by {sampled['method']}{doubt}",
            Number(sampled["value"], sampled["mcse"]),
        ],
        ["theory: Laplace's form at the saddle point", Number(evidence.get("theory"))],
        ["infinite width (GP)", Number(evidence.get("gp"))],
    ]
    return table(EVIDENCE_CAPTION, ("log evidence of", "ln p(y)"), rows)


HYPER_PARAMETER_CAPTION = (
    "What is listed here was sampled, its prior log-normal about the median, at which the theory "
    "is solved."
)


def hyper_parameter_table(found: Mapping) -> Html | None:
    """Prior median, posterior mean ± MCSE and standard deviation; None if nothing was sampled."""
    rows = [
        [name, Number(median), Number(sampled, mcse), Number(deviation, digits=3)]
        for name, median, sampled, mcse, deviation in named_hyper_parameters(dict(found))
    ]
    header = ("what", "prior median", "sampled ± MCSE", "posterior standard deviation")
    return table(HYPER_PARAMETER_CAPTION, header, rows) if rows else None


SECTION = "predictive_quality"
PREDICTORS = {
    "theory": "theory",
    "sampled": "exact posterior, sampled",
    "gp": "infinite width (GP)",
}


def quality_tables(comparison: Mapping) -> list[Html]:
    """Scores of theory, samples and GP limit side by side, and the reliability of each.

    Every score is shown that has a value and an error, whatever its name.
    """
    quality = comparison.get(SECTION) or {}
    order = [who for who in PREDICTORS if who in quality]
    order += [who for who in quality if who not in PREDICTORS]
    found = {PREDICTORS.get(who, who): quality[who] for who in order}
    found = {who: entry for who, entry in found.items() if isinstance(entry, Mapping)}
    scores = dict.fromkeys(
        name
        for entry in found.values()
        for name, score in entry.items()
        if isinstance(score, Mapping) and "value" in score
    )
    tables = []
    if scores:
        rows = []
        for name in scores:
            label, entries = name.replace("_", " "), [entry.get(name) for entry in found.values()]
            rows.append([label, *map(_score, entries)])
            monte_carlo = [(entry or {}).get("mcse") for entry in entries]
            if any(error is not None for error in monte_carlo):
                errors = (Number(error, digits=2) for error in monte_carlo)
                rows.append([f"{label}, Monte Carlo error", *errors])
        caption = "Quality of the predictive distribution, ± the error of a finite test set."
        tables.append(table(caption, ("score", *found), rows))
    for who, entry in found.items():
        if isinstance(entry.get("reliability"), list) and entry["reliability"]:
            tables.append(_reliability(who, entry["reliability"]))
    return tables


def _score(score: Mapping | None) -> Number:
    return Number((score or {}).get("value"), (score or {}).get("error"))


def _reliability(who: str, bins: list[Mapping]) -> Html:
    rows = [
        [
            f"{Number(one.get('low'), digits=2)} to {Number(one.get('high'), digits=2)}",
            count(one.get("count")),
            percent(one.get("mean_probability")),
            percent(one.get("fraction"), one.get("error")),
        ]
        for one in bins
    ]
    caption = f"Reliability, {who}: the share of labels +1 where a probability of +1 was predicted."
    header = ("probability between", "labels", "mean probability", "share of labels +1")
    return table(caption, header, rows)
