"""Quality of the predictive distributions, where `comparison.json` holds it."""

from collections.abc import Mapping

from sampler.presentation.report.elements import Html, table
from sampler.presentation.report.numbers import Number, count, percent

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
    found = {PREDICTORS.get(who, who): entry for who, entry in quality.items() if entry}
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
        caption = "Quality of the predictive distribution on the test set, ± the error of its finite size."
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
    caption = (
        f"Reliability, {who}: how often a class predicted with some probability is the right one."
    )
    header = ("probability between", "examples", "mean probability", "fraction right")
    return table(caption, header, rows)
