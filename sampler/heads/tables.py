"""Tables of removed heads, for the terminal, notebooks and pandas."""

from collections.abc import Mapping

import numpy as np

from sampler.analysis.estimate import RankCorrelation
from sampler.analysis.labels import EXACT, LEADING, NEXT, head_label
from sampler.analysis.text import MISSING, wrapped
from sampler.heads.measures import PREDICTIONS, REMOVED, REMOVED_EXACT, REMOVED_NEXT
from sampler.heads.removal import MODEL, SOLVED_AGAIN, ZEROED, Numbers, RemovedHeads
from sampler.presentation.table import Column, Table

# What is measured: the model loses a head that sends nothing, or its mean; the theory loses it.
MEASURED = {
    "zero_loss": "loss, zero",
    "zero_accuracy": "accuracy, zero",
    "mean_loss": "loss, mean",
    "mean_accuracy": "accuracy, mean",
    "theory_loss": "loss of the theory, U₁ zeroed",
    "theory_accuracy": "accuracy of the theory, U₁ zeroed",
}
# Columns of the table of heads on a terminal, in the order in which they are kept there.
SHOWN = {
    "zero_loss": MEASURED["zero_loss"],
    "mean_loss": MEASURED["mean_loss"],
    "zero_accuracy": MEASURED["zero_accuracy"],
    REMOVED: LEADING,
    REMOVED_NEXT: NEXT,
    REMOVED_EXACT: EXACT,
    "score": "head score",
    "taylor": "Taylor",
    "patching": "attribution patching",
}
SHOWN_WITH_ORDERS = {
    "score": "head score",
    "zero_accuracy": "accuracy lost",
    "theory_accuracy": "lost in theory, U₁ zeroed",
    "solved_again_accuracy": "lost in theory, solved again",
    "zero_loss": "loss gained",
}
WHO = {MODEL: "model", ZEROED: "U₁ zeroed", SOLVED_AGAIN: "theory solved again"}
ORDERS = {
    "score": "by score",
    "taylor": "by Taylor importance",
    "magnitude": "by magnitude",
    "random": "at random",
}


def numbers_of(found: RemovedHeads) -> dict[str, Numbers]:
    """Return all that is known of each head by its key, what was measured first."""
    return {**found.measured, **found.predicted}


def order_shown(found: RemovedHeads) -> list[int]:
    """Return places of the heads in the order of tables: ascending score, or costliest first."""
    if found.orders:
        return np.argsort(found.predicted["score"].values, kind="stable").tolist()
    return np.argsort(found.measured["zero_loss"].values)[::-1].tolist()


def removal_table(
    found: RemovedHeads, headers: Mapping[str, str] = MEASURED | PREDICTIONS
) -> Table:
    """Return a row for each head.

    headers  of the columns by key; on a narrow terminal the last ones are left out first
    """
    numbers = numbers_of(found)
    keys = [key for key in headers if key in numbers]
    columns = [
        Column(
            header=headers[key] + (" (points)" if key.endswith("accuracy") else ""),
            key=key,
            error=f"{key}_error",
            meaning=PREDICTIONS.get(key, ""),
            scale=100.0 if key.endswith("accuracy") else 1.0,
            dropped=place,
        )
        for place, key in enumerate(keys)
    ]
    rows = [
        [head_label(*found.heads[at])]
        + [(numbers[key].values[at], numbers[key].errors[at] or None) for key in keys]
        for at in order_shown(found)
    ]
    title = f"without one head: {found.loss} loss gained or accuracy lost, ±1σ, and scores"
    return Table(title, ("", *columns), rows)


def correlation_table(found: RemovedHeads) -> Table:
    """Return Spearman's ρ of each prediction with each measure, and its interval over heads."""
    measured = sorted(found.measured, key=lambda key: bool(found.orders) and key.endswith("loss"))
    columns = [Column(MEASURED[key], key, dropped=at) for at, key in enumerate(measured)]
    rows = [
        [PREDICTIONS[name], *(correlation(one.spearman[key]) for key in measured)]
        for name, one in found.predicted.items()
    ]
    return Table("Spearman ρ with what removal costs, 95 % over heads", ("", *columns), rows)


def order_table(found: RemovedHeads) -> Table:
    """Return accuracies while heads are removed: a column for each order, and who loses them."""
    columns, curves = [], []
    for who, of_whom in WHO.items():
        for key, some in found.orders.items():
            if not some or who not in some[0].accuracy:
                continue
            values = np.array([one.accuracy[who].values for one in some])
            spread = values.std(axis=0, ddof=1) if len(some) > 1 else np.full(values.shape[1], None)
            header = f"{of_whom}, {ORDERS[key]}"
            columns.append(
                Column(header, f"{who}_{key}", scale=100.0, digits=3, dropped=len(columns))
            )
            curves.append(zip(values.mean(axis=0), spread, strict=True))
    rows = [[f"{count} removed", *row] for count, row in enumerate(zip(*curves, strict=True))]
    title = (
        "accuracy (%) while heads are removed one after the other, the lowest first; at random: "
        f"mean ± spread of {len(found.orders['random'])} orders"
    )
    return Table(title, ("", *columns), rows)


def tables_of(found: RemovedHeads) -> dict[str, Table]:
    """Return all tables by the method of `AblatedHeads` that gives all numbers of them."""
    shown = SHOWN_WITH_ORDERS if found.orders else SHOWN
    tables = {
        "to_dataframe()": removal_table(found, shown),
        "correlations()": correlation_table(found),
    }
    return tables | {"result.orders": order_table(found)} if found.orders else tables


def removal_text(found: RemovedHeads) -> str:
    """Return accuracies of the whole model, and all tables, as text for a terminal."""
    whole = [f"{key} {value:.3f} ± {error:.3f}" for key, (value, error) in found.unpruned.items()]
    stored = found.examples_validation is None
    examples = "these" if stored else f"{found.examples_validation} validation"
    first = wrapped(
        f"the model on {found.examples_test} test examples: {', '.join(whole)}; "
        f"predictions from {examples} examples"
    )
    tables = [
        table.text(elsewhere="pruning.json" if stored else where)
        for where, table in tables_of(found).items()
    ]
    return "\n\n".join([first, *tables])


def two_digits(value: float) -> str:
    """Return a correlation to two decimals."""
    return f"{value:.2f}".replace("-", "−")


def interval(bounds: tuple[float, float]) -> str:
    """Return both ends of an interval of correlations."""
    return f"{two_digits(bounds[0])} to {two_digits(bounds[1])}"


def correlation(rho: RankCorrelation) -> str:
    """Return ρ with its interval over heads, short enough for a column of text."""
    if not np.isfinite(rho.value):
        return MISSING
    low, high = map(two_digits, rho.interval_over_heads)
    return f"{two_digits(rho.value)} [{low}, {high}]"
