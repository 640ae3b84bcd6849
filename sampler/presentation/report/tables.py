"""The tables of a report: the comparison table, and what stands beside it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress

from sampler.analysis.compared import Compared, Row, SampledAccuracy
from sampler.analysis.difference import SAYING_NOTHING, Difference, largest_by_chance
from sampler.analysis.labels import NEXT_ORDER, element_name, own_key, quantity_name
from sampler.analysis.numbers import Number, count, percent
from sampler.analysis.predictive_quality import PredictiveQuality, Quality, ReliabilityBin
from sampler.analysis.results import RunResults
from sampler.mcmc.diagnostics import ESS_LIMIT, R_HAT_LIMIT, Diagnostics, QuantityDiagnostics
from sampler.mcmc.hamiltonian import BFMI_LIMIT, DIVERGENCE_LIMIT
from sampler.presentation.report.elements import Cell, Table
from sampler.presentation.style import EXACT, LEADING, LIMIT, NEXT
from sampler.presentation.summary import own_names, shown_rows

VARIANTS = {
    "accuracy_diagonal_only": f"{LEADING}, U₁ diagonal only",
    "accuracy_equal_diagonal": f"{LEADING}, U₁ with equal diagonal",
    "accuracy_trained": "network trained by gradient descent",
    "accuracy_nearest_neighbour": "nearest neighbour in pixels",
}


def accuracy_rows(run: RunResults) -> list[tuple[str, float, float | None]]:
    """Name, accuracy and Monte Carlo error (None where nothing is sampled) of every predictor."""
    rows: list[tuple[str, float, float | None]] = []
    sampled = sampled_accuracy(run)
    if run.theory is not None:
        rows = [
            (LEADING, theory_accuracy(run, "theory"), None),
            (NEXT, theory_accuracy(run, "next_order"), None),
        ]
    accuracies = run.compared("accuracy")
    own = {} if accuracies is None else accuracies.own or {}
    rows += [(name, value, None) for name, value in own.items()]
    if sampled:
        rows.append((EXACT, sampled.value, sampled.mcse))
    if run.theory is not None:
        rows.append((LIMIT, theory_accuracy(run, "gp"), None))
        if "accuracy_gp_subnetwork" in run.theory:
            limits = run.theory["accuracy_gp_subnetwork"]
            for name, value in zip(limits["subnetwork"].values, limits.values, strict=True):
                rows.append((f"{LIMIT}, only {name}", float(value), None))
        rows += [
            (label, float(run.theory[name]), None)
            for name, label in VARIANTS.items()
            if name in run.theory
        ]
    return [row for row in rows if math.isfinite(row[1])]


def summary_table(run: RunResults) -> Table | None:
    """Accuracy of every predictor, and how far theories are from the exact posterior."""
    accuracies = {name: (value, mcse) for name, value, mcse in accuracy_rows(run)}
    own = () if run.comparison is None else run.comparison.own
    endings = {LEADING: "", NEXT: NEXT_ORDER, **{name: own_key("", name) for name in own}}
    columns = {"order_parameter": "U₁ off by", "predictor_mean": "m(x) off by"}
    rows = []
    for name in (*endings, EXACT, LIMIT):
        value, mcse = accuracies.get(name, (math.nan, None))
        error = run.test_set_error(value) if mcse is None and math.isfinite(value) else mcse
        ending = endings.get(name)
        found = [
            None if ending is None else run.differences.get(f"{key}{ending}") for key in columns
        ]
        if math.isfinite(value) or any(one is not None for one in found):
            rows.append([name, percent(value, error), *map(difference_cell, found)])
    if not rows:
        return None
    caption = (
        "At a glance: accuracy on the test set (± Monte Carlo error of the exact posterior, else "
        "of the test set), and how far theories are from the exact posterior in U₁ and in the "
        "predictor mean m(x)."
    )
    header = ("", "accuracy", *columns.values())
    kept = [
        any(not isinstance(c, Number) or c.defined for c in column)
        for column in zip(*rows, strict=True)
    ]
    return Table(caption, [*compress(header, kept)], [[*compress(row, kept)] for row in rows])


def difference_cell(one: Difference | None) -> Cell:
    """A resolved difference with its error, or what it is below."""
    if one is None or one.state in SAYING_NOTHING:
        return Number(None)
    return one.shown(one.value, one.error) if one.resolved else f"< {one.shown(one.below)}"


def accuracy_table(run: RunResults) -> Table | None:
    """The table of these accuracies; None where the labels are no classes."""
    rows = accuracy_rows(run)
    if not rows:
        return None
    cells = []
    for name, value, mcse in rows:
        on_test_set = run.test_set_error(value)
        if mcse is not None:
            on_test_set = sampled_accuracy(run).binomial_error
        monte_carlo = "" if mcse is None else percent(mcse, digits=2)
        shown = percent(value, mcse if mcse is not None else on_test_set)
        cells.append([name, shown, monte_carlo, percent(on_test_set, digits=2)])
    caption = (
        "Accuracy on the test set. Monte Carlo error: of the samples. Test set: binomial error of "
        "so many examples, common to all rows, so that differences between rows are known better."
    )
    header = ("predictor", "accuracy", "Monte Carlo error", "test set error")
    return Table(caption, header, cells)


def accuracy_sentence(run: RunResults) -> str | None:
    """Theory, next order, exact posterior and infinite width, and what finite width gains."""
    if run.theory is None:
        return None
    theory, limit = (theory_accuracy(run, name) for name in ("theory", "gp"))
    if not (math.isfinite(theory) and math.isfinite(limit)):
        return None
    sampled = sampled_accuracy(run)
    parts = [f"{LEADING} {percent(theory, run.test_set_error(theory))}"]
    beyond = theory_accuracy(run, "next_order")
    if math.isfinite(beyond):
        parts.append(f"{NEXT} {percent(beyond, run.test_set_error(beyond))}")
    if sampled:
        parts.append(f"{EXACT} {percent(sampled.value, sampled.mcse)}")
    parts.append(f"{LIMIT} {percent(limit, run.test_set_error(limit))}")
    errors = "Errors: Monte Carlo for the exact posterior, of the test set for the others."
    gain = Number(theory - limit, None, 100.0, digits=3)
    return (
        f"Accuracy: {', '.join(parts)}. {errors if sampled else ''} By the theory finite width "
        f"changes it by {gain} percentage points."
    )


def sampled_accuracy(run: RunResults) -> SampledAccuracy | None:
    """The sampled accuracy with its errors, None where there is none."""
    found = run.compared("accuracy")
    return None if found is None else found.sampled


def theory_accuracy(run: RunResults, name: str) -> float:
    """An accuracy of `theory.nc`, NaN where it is undefined."""
    column = f"accuracy_{name}"
    if run.theory is None or column not in run.theory:
        return float("nan")
    return float(run.theory[column])


def differences_table(found: Mapping[str, Difference]) -> Table | None:
    """What may be said of every quantity as a whole, and its median and largest element."""
    if not found:
        return None
    rows = [
        [
            one.name,
            count(one.elements),
            one.statement,
            interval_text(one),
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
        "quantity", "elements", "as a whole", "95 % interval", "median, MCSE", "largest, MCSE",
        "largest by chance, MCSE", "median, relative", "largest, relative", "largest in MCSE at",
    )  # fmt: skip
    caption = (
        "Sampled minus theory. As a whole: size of the difference over size of the quantity (of "
        "accuracy and log predictive density, the difference itself). By element: absolute value, "
        "in Monte Carlo standard errors (MCSE) and relative to the sampled element; an element "
        "close to zero has a large relative difference of no weight."
    )
    return Table(caption, header, rows)


def interval_text(one: Difference) -> str:
    """Both ends of the interval; empty where nothing can be said."""
    if one.state in SAYING_NOTHING:
        return ""
    low, high = (one.shown(end) for end in one.interval)
    return f"{low} to {high}"


def order_parameter_table(run: RunResults) -> Table | None:
    """Elements of U₁: theories, exact posterior, difference of the leading order.

    The diagonal alone where there are many.
    """
    compared = run.compared("order_parameter")
    if compared is None or compared.theory is None:
        return None
    rows = compared.rows("order_parameter", run.path_names)
    shown, left_out = shown_rows(rows)
    note = f" {len(shown)} of {len(rows)} elements; all are in comparison.json." if left_out else ""
    caption = f"Order parameter U₁, path by path: theory and posterior mean ± MCSE.{note}"
    named = [replace(row, name=row.name.removeprefix("U₁ ")) for row in shown]
    return compared_table(caption, "paths", named)


SAMPLED = f"{EXACT} ± MCSE"
COMPARED = (LEADING, NEXT, SAMPLED, "difference, MCSE", "difference, relative")
# What has a table of its own.
IN_OTHER_TABLES = ("order_parameter", "predictor_mean", "predictor_variance")


def compared_table(
    caption: str, what: str, rows: Sequence[Row], columns: Sequence[str] = COMPARED
) -> Table:
    """Lines of the comparison table; next order and own theories where one of them has it."""
    if not any(math.isfinite(row.next_order) for row in rows):
        columns = [name for name in columns if name != NEXT]
    place = columns.index(SAMPLED)
    columns = [*columns[:place], *own_names(rows), *columns[place:]]
    return Table(caption, (what, *columns), [compared_cells(row, columns) for row in rows])


def compared_cells(row: Row, columns: Sequence[str]) -> list[Cell]:
    """A line of the comparison table."""
    numbers = {
        **{name: Number(value) for name, value in row.own.items()},
        LEADING: Number(row.theory),
        NEXT: Number(row.next_order),
        SAMPLED: Number(row.sampled, row.mcse),
        "difference, MCSE": Number(row.difference_in_mcse, digits=2),
        "difference, relative": percent(row.relative_difference, digits=2),
    }
    return [row.name, *(numbers.get(name, Number(None)) for name in columns)]


def further_table(run: RunResults) -> Table | None:
    """Compared quantities that were added to those of this program."""
    rows = [
        row
        for key, one in ([] if run.comparison is None else run.comparison.compared)
        if key not in IN_OTHER_TABLES
        for row in one.rows(key, run.path_names)
    ]
    caption = "Further quantities: theory and posterior mean ± MCSE."
    return compared_table(caption, "quantity", rows) if rows else None


def head_score_table(run: RunResults) -> Table | None:
    """Head scores of the posterior mean of U₁ beside the theory's."""
    compared: Compared | None = run.compared("head_score")
    if compared is None or compared.theory is None:
        return None
    rows = compared.element_rows("head_score", run.path_names)
    caption = "Head scores: the share of |U₁| on paths through a head; sampled ± MCSE."
    return compared_table(caption, "head", rows, COMPARED[:3]) if rows else None


def diagnostics_table(diagnostics: Diagnostics) -> Table | None:
    """The worst R-hat and effective sample sizes of every quantity."""
    rows = [
        [
            quantity_name(key),
            Number(one.r_hat, digits=5),
            element_name(key, one.at),
            count(one.ess_bulk),
            count(one.ess_tail),
            "within limits" if _within(one) else "misses a limit",
        ]
        for key, one in diagnostics.quantities.items()
    ]
    caption = (
        f"Worst element of every quantity: rank-normalised split R-hat (limit {R_HAT_LIMIT}), "
        f"effective sample sizes (limit {ESS_LIMIT:.0f})."
    )
    header = ("quantity", "R-hat", "at", "bulk ESS", "tail ESS", "verdict")
    return Table(caption, header, rows) if rows else None


def _within(one: QuantityDiagnostics) -> bool:
    """A number that is undefined misses its limit."""
    return one.r_hat <= R_HAT_LIMIT and one.ess_bulk >= ESS_LIMIT and one.ess_tail >= ESS_LIMIT


def sampler_table(diagnostics: Diagnostics, cost: Mapping[str, float]) -> Table | None:
    """How the sampler ran, and what it cost."""
    if not diagnostics.draws:
        return None
    rows = [
        ["chains", count(diagnostics.chains), ""],
        ["draws of each chain", count(diagnostics.draws), ""],
    ]
    found = diagnostics.numbers
    if found.get("bfmi"):
        share = found["divergences"] / (diagnostics.chains * diagnostics.draws)
        limit = f"at most {100 * DIVERGENCE_LIMIT:g} %"
        rows += [
            ["smallest E-BFMI", Number(min(found["bfmi"]), digits=3), f"at least {BFMI_LIMIT}"],
            ["divergences", count(found["divergences"]), ""],
            ["divergences, share of draws", percent(share), limit],
            ["leapfrog steps per draw", Number(found["leapfrog_steps_per_draw"]), ""],
            ["at the maximal tree depth", percent(found["saturated_share"]), ""],
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
    return Table("The sampler, and what it cost.", ("what", "value", "limit"), rows)


def evidence_table(run: RunResults) -> Table | None:
    """ln p(y) of samples, both orders, infinite width; None where samples do not know it."""
    evidence = run.compared("log_evidence")
    sampled = None if evidence is None else evidence.sampled
    if sampled is None:
        return None
    doubt = "" if sampled.trusted else ", not to be trusted"
    rows = [
        [f"{EXACT}, by {sampled.method}{doubt}", Number(sampled.value, sampled.mcse)],
        [f"{LEADING}: Laplace's approximation at the saddle point", Number(evidence.theory)],
        *([name, Number(value)] for name, value in (evidence.own or {}).items()),
        [LIMIT, Number(evidence.gp)],
    ]
    if math.isfinite(evidence.next_order):
        rows.insert(2, [NEXT, Number(evidence.next_order)])
    caption = (
        "Log evidence ln p(y) of the training labels, with its Monte Carlo error. Between two "
        "networks or temperatures on the same data the larger one is supported, without any test "
        "example."
    )
    return Table(caption, ("log evidence of", "ln p(y)"), rows)


def sampled_settings_table(run: RunResults) -> Table | None:
    """Prior median, posterior mean ± MCSE and standard deviation; None if nothing was sampled."""
    found = run.compared("hyper_parameters")
    rows = [
        [r.name, Number(r.theory), Number(r.sampled, r.mcse), Number(r.spread, digits=3)]
        for r in ([] if found is None else found.rows("hyper_parameters", ()))
    ]
    header = ("what", "prior median", "sampled ± MCSE", "posterior standard deviation")
    caption = (
        "What is listed here was sampled, its prior log-normal about the median, at which the "
        "theory is solved."
    )
    return Table(caption, header, rows) if rows else None


def qualities(quality: PredictiveQuality | None) -> dict[str, Quality]:
    """Name → quality of theories, exact posterior and infinite width, as far as they are known."""
    if quality is None:
        return {}
    known = {
        LEADING: quality.theory,
        NEXT: quality.next_order,
        **(quality.own or {}),
        EXACT: quality.sampled,
        LIMIT: quality.gp,
    }
    return {name: one for name, one in known.items() if one is not None}


def quality_table(quality: PredictiveQuality | None) -> Table | None:
    """Scores of theories, exact posterior and infinite width side by side."""
    found, rows = qualities(quality), []
    for name in dict.fromkeys(name for one in found.values() for name in one.scores):
        label, scores = name.replace("_", " "), [one.scores.get(name) for one in found.values()]
        rows.append([label, *(Number(s and s.value, s and s.error) for s in scores)])
        if any(score is not None and score.mcse is not None for score in scores):
            errors = [Number(s and s.mcse, digits=2) for s in scores]
            rows.append([f"{label}, Monte Carlo error", *errors])
    caption = "Quality of the predictive distribution, ± the error of a finite test set."
    return Table(caption, ("score", *found), rows) if rows else None


def reliability_tables(quality: PredictiveQuality | None) -> list[Table]:
    """The reliability of each, bin by bin."""
    found = qualities(quality).items()
    return [_reliability(who, one.reliability) for who, one in found if one.reliability]


def _reliability(who: str, bins: Sequence[ReliabilityBin]) -> Table:
    rows = [
        [
            f"{Number(one.low, digits=2)} to {Number(one.high, digits=2)}",
            count(one.count),
            percent(one.mean_probability),
            percent(one.fraction, one.error),
        ]
        for one in bins
    ]
    caption = f"Reliability, {who}: the share of labels +1 where a probability of +1 was predicted."
    header = ("probability between", "labels", "mean probability", "share of labels +1")
    return Table(caption, header, rows)
