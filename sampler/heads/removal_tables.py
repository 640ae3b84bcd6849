"""Removed heads as tables and texts."""

from collections.abc import Mapping

import numpy as np

from sampler.analysis.names import head_label
from sampler.analysis.text import Number, wrapped
from sampler.heads.head_importance import (
    PREDICTIONS,
    SCORE,
    TAYLOR,
    Loss,
    Numbers,
)
from sampler.heads.path_sum import by_layer
from sampler.heads.removal import MODEL, RANDOM, ZEROED, LargestSet, Measure, RemovedHeads
from sampler.presentation.table import Column, Table

UNITS: Mapping[Loss, str] = {"likelihood": "nats", "squared": "squared loss"}
# What is measured: the model loses a head that sends its mean, or nothing; the theory loses it.
MEASURED = {
    "mean_loss": "loss, mean",
    "mean_accuracy": "accuracy, mean",
    "zero_loss": "loss, zero",
    "zero_accuracy": "accuracy, zero",
    "theory_loss": "loss of the theory, U₁ zeroed",
    "theory_accuracy": "accuracy of the theory, U₁ zeroed",
}
# Columns of the table of heads, short enough for a terminal, the last ones left out first.
SHORT = {
    "mean_loss": "loss, mean",
    "mean_accuracy": "acc., mean",
    TAYLOR: "Taylor",
    "zero_loss": "loss, zero",
    "zero_accuracy": "acc., zero",
    SCORE: "head score",
    "theory_accuracy": "lost in theory",
    "magnitude": "magnitude",
    "theory_loss": "loss of theory",
}
# Columns in the unit of the model's loss; what the theory loses is a squared loss.
OF_THE_MODEL = ("mean_loss", "zero_loss", TAYLOR)
WHO = {MODEL: "model", ZEROED: "U₁ zeroed"}
ORDERS = {SCORE: "by head score", TAYLOR: "by Taylor importance", RANDOM: "at random"}


def numbers_of(removed: RemovedHeads) -> dict[str, Numbers]:
    """All that is known of each head by its key, what was measured first."""
    return {**removed.measured, **removed.predicted}


def costliest_first(removed: RemovedHeads) -> list[int]:
    """Places of the heads by falling cost; heads that were not removed come last."""
    cost = removed.measured.get("mean_loss") or removed.measured.get("zero_loss")
    values = np.zeros(len(removed.heads)) if cost is None else np.asarray(cost.values)
    return np.argsort(-values, kind="stable").tolist()


# --- tables


def unit_of(key: str, loss: Loss) -> str:
    """The unit of a column of the table of heads."""
    if key.endswith("accuracy"):
        return "points"
    if key in (SCORE, "magnitude"):
        return ""
    return UNITS[loss if key in OF_THE_MODEL else "squared"]


def removal_table(removed: RemovedHeads) -> Table:
    """A row for each head, the costliest first."""
    numbers = numbers_of(removed)
    keys = [key for key in SHORT if key in numbers]
    columns = [
        Column(
            SHORT[key],
            key,
            error=f"{key}_error",
            meaning=f"{(MEASURED | PREDICTIONS)[key]} ({unit_of(key, removed.loss) or 'number'})",
            scale=100.0 if key.endswith("accuracy") else 1.0,
            digits=2,
            dropped=place,
        )
        for place, key in enumerate(keys)
    ]
    rows = [
        [head_label(*removed.heads[at])]
        + [(numbers[key].values[at], numbers[key].errors[at] or None) for key in keys]
        for at in costliest_first(removed)
    ]
    units = f"loss in {UNITS[removed.loss]}, accuracy in points"
    title = f"lost without one head, its mean or 0 sent instead, ±1σ ({units}), and numbers of it"
    return Table(title, ("", *columns), rows)


def order_table(removed: RemovedHeads) -> Table:
    """Accuracies while heads are removed: a column for each order, and who loses them."""
    columns, curves = [], []
    for who, of_whom in WHO.items():
        for key, some in removed.curves.items():
            if not some or who not in some[0].accuracy:
                continue
            values = np.array([removal.accuracy[who].values for removal in some])
            spread = values.std(axis=0, ddof=1) if len(some) > 1 else np.full(values.shape[1], None)
            header = f"{of_whom}, {ORDERS[key]}"
            columns.append(Column(header, f"{who}_{key}", scale=100.0, dropped=len(columns)))
            curves.append(zip(values.mean(axis=0), spread, strict=True))
    rows = [[f"{count} removed", *row] for count, row in enumerate(zip(*curves, strict=True))]
    title = (
        "accuracy (%) while heads are removed one after the other, the lowest first; at random: "
        f"mean ± spread of {len(removed.curves.get(RANDOM, ()))} orders"
    )
    return Table(title, ("", *columns), rows)


def tables_of(removed: RemovedHeads) -> dict[str, Table]:
    """All tables, by the method or attribute of `AblatedHeads` that gives all numbers of them."""
    tables = {"to_dataframe()": removal_table(removed)}
    if removed.curves:
        tables["result.curves"] = order_table(removed)
    return tables


def whole_text(removed: RemovedHeads) -> str:
    """Loss and accuracy of the whole model, and on which examples."""
    count = removed.examples_numbers
    examples = "the same examples" if count is None else f"{count} validation examples"
    return (
        f"the model on {removed.examples_test} test examples: {values_text(removed.unpruned)}; "
        f"numbers from {examples}"
    )


def values_text(values: Mapping[str, tuple[float, float]]) -> str:
    """Values with their errors, as in "loss 0.31 ± 0.01, accuracy 0.90 ± 0.01"."""
    return ", ".join(f"{name} {Number(*value)}" for name, value in values.items())


def removal_text(removed: RemovedHeads, elsewhere: str | None = None) -> str:
    """The whole model, and all tables, as text for a terminal.

    elsewhere  where columns are that have no room; None: the method that gives them
    """
    tables = [
        table.text(elsewhere=elsewhere or where) for where, table in tables_of(removed).items()
    ]
    return "\n\n".join([*map(wrapped, [whole_text(removed), *removed.notes]), *tables])


# --- the largest set


def measured_text(measure: Measure, loss: Loss, value: float, error: float | None = None) -> str:
    """A loss in its unit, or accuracy in points."""
    if measure == "accuracy":
        return f"{Number(value, error, scale=100.0)} points of accuracy"
    return f"{Number(value, error)} {UNITS[loss]}"


def removable_text(largest: LargestSet) -> str:
    """The heads that can go, how firmly they are chosen, and what they cost on unseen examples."""
    low, high = largest.counts
    layers = by_layer(largest.order[: largest.count])
    heads = [f"layer {layer}: {', '.join(map(str, of))}" for layer, of in layers.items()]
    chosen = measured_text(
        largest.measure, largest.loss, *largest.at("validation", largest.measure)
    )
    costs = [
        measured_text(measure, largest.loss, *largest.at("test", measure))
        for measure in largest.test
    ]
    lines = [
        f"{largest.count} of {len(largest.order)} heads can go, in order of Taylor importance, at "
        f"a limit of {measured_text(largest.measure, largest.loss, largest.limit)}",
        "; ".join(heads) or "no head",
        f"chosen on {largest.examples_validation} validation examples, where they cost {chosen}; "
        f"other examples would choose {low} to {high} heads (95 %)",
        f"lost without them on {largest.examples_test} test examples, which chose nothing: "
        f"{', '.join(costs)} (the whole model: {values_text(largest.unpruned)})",
    ]
    return "\n".join(map(wrapped, [*lines, *largest.notes]))


def removable_rows(largest: LargestSet) -> list[dict]:
    """A row of plain numbers for each number of heads removed."""
    rows = []
    for count in range(len(largest.order) + 1):
        row: dict = {"removed": count, "head": largest.order[count - 1] if count else None}
        for split, curve in (("validation", largest.validation), ("test", largest.test)):
            for measure, numbers in curve.items():
                key = f"{split}_{measure}"
                row |= {key: numbers.values[count], f"{key}_error": numbers.errors[count]}
        rows.append(row)
    return rows
