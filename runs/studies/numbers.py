"""Numbers of studies: with their error and its kind, of comparisons, and as they are kept."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np


def estimate(value: float, error: float, kind: str) -> dict:
    """A number with its error and its kind: "MCSE", "binomial", "over test examples", …"""
    return {"value": float(value), "error": float(error), "kind": kind}


def mean_over(values: Iterable[float], what: str) -> dict:
    """Mean with its standard error over data sets, trainings, … as they are called."""
    numbers = [float(value) for value in values]
    error = math.nan
    if len(numbers) > 1:
        error = statistics.stdev(numbers) / math.sqrt(len(numbers))
    return estimate(statistics.fmean(numbers), error, f"over {len(numbers)} {what}")


def share(value: float, count: int) -> dict:
    """A share of right answers with its binomial error."""
    value = float(value)
    return estimate(value, math.sqrt(value * (1.0 - value) / count), "binomial")


def told(compared, quantity: str, predictors: Sequence[str], times: float = 1.0) -> dict:
    """A number of a comparison by predictor, where one has it, and that of the samples."""
    rows = compared.rows
    sampled = (times * rows[quantity, "sampled"][part] for part in ("value", "error"))
    known = [who for who in predictors if (quantity, who) in rows]
    return {
        **{who: times * rows[quantity, who]["value"] for who in known},
        "sampled": estimate(*sampled, "MCSE"),
    }


def told_diagonal(compared, predictors: Sequence[str]) -> list[dict]:
    """The diagonal of U₁ in a comparison, path by path: by predictor, and of the samples."""
    elements = compared.elements("order_parameter")
    predicted = elements["predicted"]
    means, errors = (np.diagonal(elements[name]) for name in ("sampled", "error"))
    found = [{"sampled": estimate(*one, "MCSE")} for one in zip(means, errors, strict=True)]
    for who in set(predictors) & {*predicted["predictor"].values}:
        for row, value in zip(found, np.diagonal(predicted.sel(predictor=who)), strict=True):
            row[who] = value
    return found


def of_kind(rows: Mapping[str, dict], kind: str, mark: str = "/") -> dict[str, dict]:
    """Rows whose names begin with a kind and a mark, by what follows."""
    start = f"{kind}{mark}"
    return {name.removeprefix(start): row for name, row in rows.items() if name.startswith(start)}


def rounded(content: object) -> object:
    """Numbers to seven digits; None for what is not finite."""
    if isinstance(content, Mapping):
        return {str(key): rounded(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [rounded(value) for value in content]
    if hasattr(content, "tolist"):
        return rounded(content.tolist())
    if content is None or isinstance(content, str | int):
        return content
    return float(f"{content:.7g}") if math.isfinite(content) else None


def in_lines(content: object, depth: int = 0) -> str:
    """JSON with a line for everything that is short enough."""
    line = json.dumps(content, ensure_ascii=False)
    if len(line) + depth <= 110 or not isinstance(content, Mapping):
        return line
    pad = " " * (depth + 1)
    inner = (f'{pad}"{key}": {in_lines(value, depth + 1)}' for key, value in content.items())
    return "{\n" + ",\n".join(inner) + f"\n{' ' * depth}}}"
