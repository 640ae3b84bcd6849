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
