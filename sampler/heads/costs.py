"""Costs of removing sets of heads, measured on the same labelled examples.

`costs` measures given sets. They are single heads in `ablation`, and more and more heads in
`removed_in_order` and `largest_set`, which takes the largest within a limit. All results are
Datasets of named numbers: `x_error` is ±1σ of `x` over examples, paired where `x` is a difference.
Layers of the coordinate `layer` count from 1, heads of `number` from 0.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import xarray as xr
from jaxtyping import Float, Num

from sampler.heads.importance import LabelledModel, importance, losses
from sampler.heads.path_sum import Head, Replacement
from sampler.streams import Stream, stream
from theory.observables import binomial_error, correct, labels_are_classes

Measure = Literal["loss", "accuracy"]
MEASURES: tuple[Measure, ...] = ("loss", "accuracy")
# (phase, steps that are done, steps in all), called before each and at the end
Show = Callable[[str, int, int], None]
BOTH: tuple[Replacement, ...] = ("mean", "zero")
RANDOM = "random"
# Numbers in whose ascending order heads are removed.
ORDERED_BY = ("head_score", "taylor")
# Of a mean over examples, which may exceed its limit by that much and be equal to it.
ROUNDING = 1e-12


def silent(phase: str, done: int, total: int) -> None:
    """Show nothing."""


def lost(
    of: LabelledModel,
    sets: Sequence[Sequence[Head]],
    replacement: Replacement = "zero",
    phase: str = "",
    show: Show = silent,
    stoppable: bool = False,
) -> xr.Dataset:
    """Loss gained and, where labels are classes, answers lost without each set [set, example].

    stoppable  Ctrl-C leaves NaN for the sets that were not reached

    Numbers of the whole model are attributes: `whole_loss`, `whole_loss_error` …
    """
    measured = {}
    every = list(dict.fromkeys(((), *map(tuple, sets))))
    try:
        for place, removed in enumerate(every):
            show(phase, place, len(every))
            outputs = of.model.without(removed, replacement)
            right = correct(outputs, of.labels)
            measured[removed] = np.stack([losses(of.loss, outputs, of.labels), right])
        show(phase, len(every), len(every))
    except KeyboardInterrupt:
        if not (stoppable and measured):
            raise
    whole = measured[()]
    unknown = np.full_like(whole, np.nan)
    without = np.stack([measured.get(tuple(removed), unknown) for removed in sets])
    found, attributes = {}, {"loss": of.loss, "examples": len(of.labels)}
    attributes["ended"] = len(measured) < len(every)
    for place, measure in enumerate(MEASURES[: 1 + labels_are_classes(of.labels)]):
        before, after = whole[place], without[:, place]
        more = after - before if measure == "loss" else before - after
        found[measure] = (("set", "example"), more)
        attributes[f"whole_{measure}"] = before.mean()
        attributes[f"whole_{measure}_error"] = before.std(ddof=1) / len(before) ** 0.5
    return xr.Dataset(found, attrs=attributes)


def over_examples(lost: xr.Dataset, name: str) -> xr.Dataset:
    """Means over examples, `<name>_loss` and so on, with their standard errors."""
    mean = lost.mean("example", skipna=False)
    error = lost.std("example", ddof=1, skipna=False) / lost.sizes["example"] ** 0.5
    means = mean.rename({measure: f"{name}_{measure}" for measure in lost})
    errors = error.rename({measure: f"{name}_{measure}_error" for measure in lost})
    return means.assign(errors).assign_attrs(lost.attrs)


def costs(
    of: LabelledModel,
    sets: Sequence[Sequence[Head]],
    replacements: Sequence[Replacement] = BOTH,
    phase: str = "heads removed",
    show: Show = silent,
    stoppable: bool = False,
) -> xr.Dataset:
    """Cost of removing each set of heads [set]: `mean_loss`, `zero_accuracy` … with errors.

    A removed head sends its mean over examples, or zero. Loss is gained, accuracy is lost.
    """
    found = xr.Dataset()
    for replacement in replacements:
        one = lost(of, sets, replacement, f"{phase}, {replacement}", show, stoppable)
        found = found.assign(over_examples(one, replacement)).assign_attrs(one.attrs)
        if one.attrs["ended"]:
            break
    return found


# --- every head alone, and in orders


def ablation(
    validation: LabelledModel,
    test: LabelledModel,
    heads: Sequence[Head],
    show: Show = silent,
    stoppable: bool = False,
) -> xr.Dataset:
    """Cost of removing each head on test examples, and its importance on others [head]."""
    alone = [[head] for head in heads]
    found = costs(test, alone, show=show, stoppable=stoppable).rename(set="head")
    if validation is not test:
        found.attrs["examples_validation"] = len(validation.labels)
    return found.assign(importance(validation, heads)).assign_coords(places(heads, "head"))


def places(heads: Sequence[Head], along: str) -> dict[str, tuple[str, list[int]]]:
    """Coordinates of heads: layers from 1, heads from 0."""
    return {
        "layer": (along, [layer + 1 for layer, _ in heads]),
        "number": (along, [head for _, head in heads]),
    }


def in_order(
    values: Sequence[float] | Num[np.ndarray, " head"],
    heads: Sequence[Head],
    counts: Sequence[int],
) -> list[Head]:
    """Heads by ascending number, without those that are the last of their layer at their turn."""
    left, order = list(counts), []
    for place in np.argsort(values, kind="stable"):
        layer, head = heads[place]
        if left[layer] > 1:
            left[layer] -= 1
            order.append((layer, head))
    return order


def nested(order: Sequence[Head]) -> list[Sequence[Head]]:
    """No head, then more and more of them, until all are removed."""
    return [order[:count] for count in range(len(order) + 1)]


def removed_in_order(
    models: Mapping[str, LabelledModel],
    numbers: xr.Dataset,
    heads: Sequence[Head],
    random: int,
    seed: int,
    show: Show = silent,
) -> xr.Dataset:
    """Accuracy after 0, 1, 2 … removals [order, removed] in ascending order of numbers.

    models   by the names of the accuracies; their error is that of the test set
    numbers  of `ORDERED_BY`, if known
    random   how many random orders there are, too

    Heads are zeroed, and no layer loses all of them. `order_layer` and `order_number` have the head
    of each step. Nothing where labels are not classes.
    """
    counts = next(iter(models.values())).model.heads
    generator = stream(seed, Stream.RANDOM_ORDERS)
    named = [(key, numbers[key].values) for key in ORDERED_BY if key in numbers]
    named += [(RANDOM, generator.permutation(len(heads))) for _ in range(random)]
    orders = [in_order(values, heads, counts) for _, values in named]
    sets = [removed for order in orders for removed in nested(order)]
    found = {}
    for name, of in models.items():
        if not labels_are_classes(of.labels):
            return xr.Dataset()
        cost = costs(of, sets, ("zero",), "heads removed in order", show)
        shares = cost.attrs["whole_accuracy"] - cost["zero_accuracy"].values
        errors = [binomial_error(share, len(of.labels)) for share in shares]
        found |= {name: shares, f"{name}_error": np.array(errors)}
    steps = np.array(orders).reshape(len(orders), -1, 2)
    by_step = {"order_layer": steps[..., 0] + 1, "order_number": steps[..., 1]}
    by_count = {name: values.reshape(len(orders), -1) for name, values in found.items()}
    return xr.Dataset(
        {name: (("order", "step"), values) for name, values in by_step.items()}
        | {name: (("order", "removed"), values) for name, values in by_count.items()},
        {"order": [name for name, _ in named]},
    )


# --- the largest set within a limit


def largest_set(
    validation: LabelledModel,
    test: LabelledModel,
    heads: Sequence[Head],
    measure: Measure,
    limit: float,
    replacement: Replacement = "zero",
    emptied: bool = True,
    show: Show = silent,
) -> xr.Dataset:
    """Costs of the first 0, 1, 2 … heads by Taylor importance, and how many go within a limit.

    emptied  whether a layer may lose all of its heads

    `validation_loss` … are of the examples that choose, `test_loss` … of others. The attribute
    `count` is how many go, `low` and `high` 95 % of counts if validation examples are resampled,
    the order kept.
    """
    numbers = importance(validation, heads)
    by = "taylor" if "taylor" in numbers else "magnitude"
    # A layer with one head more than it has never comes to its last.
    counts = [count + emptied for count in test.model.heads]
    order = in_order(numbers[by].values, heads, counts)
    choosing = lost(validation, nested(order), replacement, "validation examples", show)
    measuring = lost(test, nested(order), replacement, "test examples", show)
    values = choosing[measure].values
    low, high = counts_drawn_anew(values, limit)
    chosen = {
        "most_frequent_class": share_of_most_frequent(test.labels),
        "measure": measure, "limit": limit, "replacement": replacement, "ordered_by": by,
        "count": within(values.mean(axis=1), limit), "low": low, "high": high,
        "examples_validation": len(validation.labels),
    }  # fmt: skip
    found = over_examples(choosing, "validation").assign(over_examples(measuring, "test"))
    found = found.rename(set="removed").assign_coords(places(order, "step"))
    return found.assign_attrs(measuring.attrs | chosen)


def share_of_most_frequent(labels: Num[np.ndarray, "example output"]) -> float:
    """Accuracy of the most frequent class; NaN where labels are not classes."""
    if not labels_are_classes(labels):
        return np.nan
    positive = (labels > 0.5).mean(axis=0)
    return float(max(positive.max(), 1.0 - positive.sum() if labels.shape[1] == 1 else 0.0))


def within(costs: Float[np.ndarray, " set"], limit: float) -> int:
    """The place of the last set before the first that costs more than this."""
    above = np.flatnonzero(~(costs[1:] <= limit + ROUNDING))
    return int(above[0]) if len(above) else len(costs) - 1


def counts_drawn_anew(
    lost: Float[np.ndarray, "set example"], limit: float, replicates: int = 1000
) -> tuple[int, int]:
    """95 % of the sizes that other validation examples would choose: they are drawn with return."""
    examples = lost.shape[1]
    generator = stream(0, Stream.SIZES_AGAIN)
    drawn = generator.multinomial(examples, np.full(examples, 1 / examples), replicates)
    sizes = [within(lost @ (counts / examples), limit) for counts in drawn]
    low, high = np.quantile(sizes, [0.025, 0.975], method="nearest")
    return int(low), int(high)
