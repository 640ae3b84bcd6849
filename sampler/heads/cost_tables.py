"""Costs of removed heads as a frame, tables and texts."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas
import xarray as xr
from jaxtyping import Float

from sampler.analysis.names import head_label
from sampler.analysis.text import Number, wrapped
from sampler.heads.costs import MEASURES, RANDOM, Measure
from sampler.heads.importance import UNITS
from sampler.heads.path_sum import by_layer
from sampler.presentation.table import Column, Table
from theory.observables import binomial_error

# Numbers of single heads: headings, and columns; the last are left out first.
COLUMNS = {
    "mean_loss": ("loss, mean", "loss gained with the mean of the head in its place"),
    "taylor": ("Taylor", "Taylor importance, the mean of |∂loss/∂gate|"),
    "head_score": ("head score", "share of |U₁| on paths through the head, theory"),
    "mean_accuracy": ("accuracy, mean", "accuracy lost with the mean of the head in its place"),
    "zero_loss": ("loss, zero", "loss gained with zero instead of the head"),
    "zero_accuracy": ("accuracy, zero", "accuracy lost with zero instead of the head"),
    "theory_accuracy": ("accuracy, theory", "accuracy lost by the theory, rows of U₁ zeroed"),
    "theory_loss": ("loss, theory", "squared loss gained by the theory, rows of U₁ zeroed"),
    "magnitude": ("magnitude", "norm of the weights by which the head acts"),
}
ORDERS = {
    "head_score": "by head score", "taylor": "by Taylor importance", RANDOM: "at random",
}  # fmt: skip
IN_ORDER = {"accuracy_in_order": "model", "theory_accuracy_in_order": "theory"}
ENDED = "ended by Ctrl-C: what was not reached is missing"


def unit_of(name: str, loss: str) -> str:
    """The unit of a number of heads, as it is stored."""
    if "accuracy" in name:
        return "share of examples"
    if name in ("head_score", "magnitude"):
        return "1"
    return UNITS["squared" if name.startswith("theory") else loss]


def described(found: xr.Dataset) -> xr.Dataset:
    """The same with unit and meaning as attributes of each number."""
    for name, values in found.items():
        number = str(name).removesuffix("_error")
        if number in (*COLUMNS, *IN_ORDER):
            values.attrs["units"] = unit_of(number, found.attrs["loss"])
        if name in COLUMNS:
            values.attrs["long_name"] = COLUMNS[name][1]
    return found


def frame_of(found: xr.Dataset) -> pandas.DataFrame:
    """A row for each head, by layer from 1 and number from 0; errors as `<name>_error`."""
    names = [name for key in COLUMNS for name in (key, f"{key}_error") if name in found]
    frame = found[names].to_dataframe().set_index(["layer", "number"])
    return frame.rename_axis(["layer", "head"])[names]


# --- tables


def heads_table(found: xr.Dataset) -> Table:
    """A row for each head, the costliest first."""
    frame = frame_of(found).sort_values("mean_loss", ascending=False, kind="stable")
    columns = {
        key: Column(
            header, meaning, digits=2, dropped=place,
            scale=100.0 if key.endswith("accuracy") else 1.0,
        )
        for place, (key, (header, meaning)) in enumerate(COLUMNS.items())
        if key in frame
    }  # fmt: skip
    rows = [
        [head_label(*head), *((row[key], row.get(f"{key}_error")) for key in columns)]
        for head, row in frame.iterrows()
    ]
    title = (
        f"ablation cost of single heads: loss gained ({UNITS[found.attrs['loss']]}) and accuracy "
        "lost (points) with the mean of the head, or zero, in its place; ±1σ over examples"
    )
    return Table(title, ("", *columns.values()), rows)


def orders_table(found: xr.Dataset) -> Table:
    """Accuracies while heads are removed: a column for each order, and who loses them."""
    names, columns, values = found["order"].values, [], []
    for who, of_whom in IN_ORDER.items():
        for key in (key for key in ORDERS if who in found and key in names):
            of_order = found[who].values[names == key]
            spread = spread_of(of_order) if len(of_order) > 1 else [None] * of_order.shape[1]
            header = f"{of_whom}, {ORDERS[key]}"
            columns.append(Column(header, scale=100.0, dropped=len(columns)))
            values.append(zip(of_order.mean(axis=0), spread, strict=True))
    rows = [[f"{count} removed", *row] for count, row in enumerate(zip(*values, strict=True))]
    title = (
        "accuracy (%) while heads are removed one after the other, the lowest first; at random: "
        f"mean ± spread of {(names == RANDOM).sum()} orders"
    )
    return Table(title, ("", *columns), rows)


def spread_of(shares: Float[np.ndarray, "order removed"]) -> Float[np.ndarray, " removed"]:
    """Standard deviation over orders; 0 where all are equal but for rounding."""
    return np.where(np.ptp(shares, axis=0) < 1e-12, 0.0, shares.std(axis=0, ddof=1))


def tables_of(found: xr.Dataset) -> dict[str, Table]:
    """All tables, by the attribute of `AblatedHeads` with their numbers."""
    tables = {"to_dataframe()": heads_table(found)}
    return tables | ({"result": orders_table(found)} if "accuracy_in_order" in found else {})


# --- texts


def whole_text(found: xr.Dataset) -> str:
    """Loss and accuracy of the whole model, on which examples, and whether all was reached."""
    known, other = found.attrs, found.attrs.get("examples_validation")
    examples = "the same examples" if other is None else f"{other} validation examples"
    text = f"the model on {known['examples']} test examples: {whole_values(found)}; Taylor "
    return f"{text}importance from {examples}" + (f"\n{ENDED}" if known["ended"] else "")


def whole_values(found: xr.Dataset) -> str:
    """Loss and accuracy of the whole model, as in "loss 0.31 ± 0.01, accuracy 0.90 ± 0.01"."""
    known = {measure: f"whole_{measure}" for measure in MEASURES}
    return ", ".join(
        f"{measure} {Number(found.attrs[key], found.attrs[f'{key}_error'])}"
        for measure, key in known.items()
        if key in found.attrs
    )


def ablation_text(found: xr.Dataset, elsewhere: str | None = None) -> str:
    """The whole model, and all tables, as text for a terminal.

    elsewhere  where columns are that have no room; None: the attribute of `AblatedHeads`
    """
    tables = [table.text(elsewhere=elsewhere or where) for where, table in tables_of(found).items()]
    return "\n\n".join([wrapped(whole_text(found)), *tables])


# --- the largest set


def order_of(found: xr.Dataset) -> list[tuple[int, int]]:
    """Heads (layer from 1, head from 0) in the order in which they go."""
    return list(zip(found["layer"].values.tolist(), found["number"].values.tolist(), strict=True))


def cost_at(found: xr.Dataset, name: str) -> tuple[float, float]:
    """A cost of the set that goes, with its error."""
    chosen = found.isel(removed=found.attrs["count"])
    return float(chosen[name]), float(chosen[f"{name}_error"])


def cost_text(found: xr.Dataset, measure: Measure, value: float, error: float) -> str:
    """A loss in its unit, or accuracy in points."""
    if measure == "accuracy":
        return f"{Number(value, error, scale=100.0)} points of accuracy"
    return f"{Number(value, error)} {UNITS[found.attrs['loss']]}"


def layers_text(heads: Mapping[int, Sequence[int]]) -> str:
    """Heads by their layers, as in "layer 1: 0, 3; layer 2: 1"."""
    layers = (f"layer {layer}: {', '.join(map(str, of))}" for layer, of in heads.items())
    return "; ".join(layers) or "no head"


def removable_text(found: xr.Dataset) -> str:
    """The heads that can go, how stable the choice is, and their cost on unseen examples."""
    known, order = found.attrs, order_of(found)
    heads = by_layer(order[: known["count"]])
    measure = known["measure"]
    chosen = cost_text(found, measure, *cost_at(found, f"validation_{measure}"))
    costs = [
        cost_text(found, measure, *cost_at(found, f"test_{measure}"))
        for measure in MEASURES
        if f"test_{measure}" in found
    ]
    limit = (
        f"{100 * known['limit']:g} points of accuracy"
        if measure == "accuracy"
        else f"{known['limit']:g} {UNITS[known['loss']]}"
    )
    by = {"taylor": "Taylor importance", "magnitude": "magnitude, as no gradients came back"}
    lines = [
        f"{known['count']} of {len(order)} heads can go, in order of {by[known['ordered_by']]}, at "
        f"a limit of {limit}",
        layers_text(heads),
        f"chosen on {known['examples_validation']} validation examples, where they cost {chosen}; "
        f"other examples would choose {known['low']} to {known['high']} heads (95 %)",
        f"lost without them on {known['examples']} held-out test examples: "
        f"{', '.join(costs)} (the whole model: {whole_values(found)})",
    ]
    return "\n".join(map(wrapped, [*lines, *doubt_of_model(found)]))


def doubt_of_model(found: xr.Dataset) -> list[str]:
    """A sentence where a model is no better than the most frequent class."""
    share, frequent = found.attrs.get("whole_accuracy"), found.attrs["most_frequent_class"]
    if share is None or share > frequent + 2.0 * binomial_error(share, found.attrs["examples"]):
        return []
    return [
        f"the model is right in {100 * share:.1f} %, and always naming the most frequent class is "
        f"in {100 * frequent:.1f} %: what costs nothing here says nothing of its heads"
    ]


def removable_frame(found: xr.Dataset) -> pandas.DataFrame:
    """A row for each number of heads removed, with the last of them; errors as `<name>_error`."""
    names = [name for name in found if not str(name).endswith("_error")]
    both = [column for name in names for column in (name, f"{name}_error")]
    frame = found[both].to_dataframe()[both]
    frame.insert(0, "head", [None, *order_of(found)])
    return frame.rename_axis("removed")
