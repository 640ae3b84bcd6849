"""Heads of a trained model: the cost of removing each, and the set that can be removed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from sampler.api.trained_model import LabelledExamples, are_classes, labelled_models
from sampler.errors import InputError
from sampler.runtime import jax_settings
from sampler.settings.task_sections import TaskSettings

if TYPE_CHECKING:
    import pandas
    import xarray as xr
    from matplotlib.figure import Figure

    from sampler.heads.torch_heads import HeadProjection

Measure = Literal["loss", "accuracy"]


# --- every head alone


def ablate_heads(
    model: Any,
    *,
    validation: LabelledExamples | None = None,
    test: LabelledExamples | None = None,
    loss: Literal["auto", "squared", "likelihood"] = "auto",
    layers: tuple[int, int] | None = None,
    heads: Mapping[int, Sequence[int]] | None = None,
    forward: Any = None,
    projection: str | Mapping[str, int] | None = None,
    batch_size: int = 64,
    orders: int = 0,
    seed: int = 0,
    progress: bool = True,
) -> "AblatedHeads":
    """Remove every head of a trained model, alone, with its cost on unseen examples.

    model    a PyTorch module; or the task of a network that `train` made, as
             `sampler.OneShot(model=…)`
    validation, test
             of a PyTorch module: pairs of inputs and labels, as for `export_attention`, or class
             numbers where the model has an output for each class. Taylor importance is measured on
             the first split, what removal costs on the second
    loss     of the model: "squared", or "likelihood" of its outputs as logits; "auto": the latter
             for a PyTorch module whose labels are classes
    layers, heads
             of a PyTorch module: heads that are removed, as for `export_attention`
    forward  runs a PyTorch module on a batch, `forward(model, batch)`, and returns its outputs
             [example] or [example, output]
    projection
             end of the names of the modules that are given all heads of a layer side by side, as in
             "attention.dense", where they have none of the common names; {"c_proj": 4} says the
             number of heads as well
    batch_size
             examples in a PyTorch module at a time
    orders   remove heads cumulatively as well, in ascending order of Taylor importance and in
             this number of random orders; 0: not at all
    seed     of the random orders
    progress on stderr, or in one line of a notebook: how far it is, and the time left

    A head is replaced by its mean over examples, padding left out, and by 0. The table also has
    Taylor importance (the mean of |∂loss/∂gate|) and the magnitude of its weights. Layers are
    numbered over the whole model, from 1, one that runs several times as several, and heads from 0.
    Ctrl-C, once heads are being removed, ends with the finished part.
    """
    from sampler.heads.costs import ablation, removed_in_order
    from sampler.jobs.prune import shown_steps

    if type(orders) is not int or orders < 0:
        raise InputError("orders", orders, "must be a whole number from 0")
    of_module = {"forward": forward, "batch_size": batch_size, "projection": projection}
    splits = {"validation": validation, "test": test}
    chosen, measured, named = labelled_models(model, splits, loss, layers, heads, **of_module)
    with jax_settings(), shown_steps(progress) as show:
        found = ablation(chosen, measured, named, show, stoppable=True)
        if orders and not found.attrs["ended"]:
            models = {"accuracy_in_order": measured}
            try:
                found = found.assign(removed_in_order(models, found, named, orders, seed, show))
            except KeyboardInterrupt:
                found.attrs["ended"] = True
    return AblatedHeads(found)


@dataclass(frozen=True)
class AblatedHeads:
    """Costs of removing heads, with their importance; prints as tables.

    result  every number along the axis `head`, as `prune` stores it; attributes of the whole model
    """

    result: "xr.Dataset"

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each head, by layer from 1 and number from 0; errors as `<name>_error`.

        mean_loss, mean_accuracy, zero_loss, zero_accuracy are costs; taylor and magnitude.
        """
        from sampler.heads.cost_tables import frame_of

        return frame_of(self.result)

    def plot(self, figure: Literal["heads", "map", "orders"] = "heads") -> "Figure":
        """Draw the cost of each head against Taylor importance, or on a map of layers and heads; or
        accuracy while heads are removed."""
        from sampler.heads import figures
        from sampler.presentation.style import figure_style

        drawings = {
            "heads": figures.draw_heads, "map": figures.draw_map, "orders": figures.draw_orders,
        }  # fmt: skip
        if figure not in drawings:
            raise InputError("figure", figure, f"must be one of {', '.join(drawings)}")
        with figure_style():
            drawn = drawings[figure](self.result)
        if drawn is None:
            remedy = "is drawn on request, of labels that are classes: `orders=20`"
            raise InputError("figure", figure, remedy)
        return drawn

    def __repr__(self) -> str:
        from sampler.heads.cost_tables import ablation_text

        return ablation_text(self.result)

    def _repr_html_(self) -> str:
        from sampler.heads.cost_tables import tables_of, whole_text

        tables = [table._repr_html_() for table in tables_of(self.result).values()]
        lines = whole_text(self.result).splitlines()
        return "".join([*(f"<p>{escape(line)}</p>" for line in lines), *tables])


# --- heads together


def removable(
    model: Any,
    *,
    loss: float | None = None,
    accuracy: float | None = None,
    validation: LabelledExamples | None = None,
    test: LabelledExamples | None = None,
    replacement: Literal["zero", "mean"] = "zero",
    layers: tuple[int, int] | None = None,
    heads: Mapping[int, Sequence[int]] | None = None,
    forward: Any = None,
    projection: str | Mapping[str, int] | None = None,
    batch_size: int = 64,
    progress: bool = True,
) -> "RemovableHeads":
    """Choose the heads of a trained model that can go together at a limit of loss or accuracy.

    model    a PyTorch module, or the task of a network that `train` made
    loss, accuracy
             the limit, one of them: largest loss on validation examples in units of the
             model's loss (nats where labels are classes), or as a share of right answers
    validation, test
             pairs of inputs and labels: heads are chosen on the first split, their cost is measured
             on the second
    replacement
             replacement of a removed head: zero, or its mean over examples
    layers, heads, forward, projection, batch_size
             as for `ablate_heads`: heads that may go
    progress on stderr, or in one line of a notebook

    Heads go in ascending order of Taylor importance, the mean of |∂loss/∂gate| over validation
    examples, as far as the limit allows. A layer of a PyTorch module may lose all of its heads, one
    of a network of `train` keeps one.
    """
    from sampler.heads.costs import largest_set
    from sampler.jobs.prune import shown_steps

    measure, limit = chosen_limit(loss, accuracy)
    if replacement not in ("zero", "mean"):
        raise InputError("replacement", replacement, 'must be "zero" or "mean"')
    of_module = {"forward": forward, "batch_size": batch_size, "projection": projection}
    splits = {"validation": validation, "test": test}
    chosen, measured, named = labelled_models(model, splits, "auto", layers, heads, **of_module)
    if measure == "accuracy" and not are_classes({"": chosen.labels, "test": measured.labels}):
        raise InputError("accuracy", limit, "labels are not classes: give a limit of the loss")
    is_task = isinstance(model, TaskSettings)
    with jax_settings(), shown_steps(progress) as show:
        found = largest_set(
            chosen, measured, named, measure, limit, replacement, emptied=not is_task, show=show
        )
    return RemovableHeads(found, () if is_task else measured.model.projections)


@dataclass(frozen=True)
class RemovableHeads:
    """A set of heads that can go at a limit of loss or accuracy; prints as text.

    result  cost of the first 0, 1, 2 … heads along the axis `removed`, and the heads in their
            order; its attributes have limit and count
    """

    result: "xr.Dataset"
    projections: "tuple[HeadProjection, ...]" = ()

    @property
    def heads(self) -> dict[int, list[int]]:
        """The heads that can go, from 0, by the number of their layer, from 1."""
        from sampler.heads.cost_tables import order_of
        from sampler.heads.path_sum import by_layer

        return by_layer(order_of(self.result)[: self.result.attrs["count"]])

    def layers_from_zero(self) -> dict[int, list[int]]:
        """The same with layers that count from 0, as `prune_heads` of Hugging Face takes them."""
        return {layer - 1: heads for layer, heads in self.heads.items()}

    @property
    def key_value_heads(self) -> dict[int, list[int]]:
        """Heads of keys and values of a PyTorch module, by layer likewise, that go with them.

        With grouped queries one goes where all heads that it serves go.
        """
        gone = self.heads.items() if self.projections else ()
        found = {layer: self.projections[layer - 1].unread(heads) for layer, heads in gone}
        return {layer: heads for layer, heads in found.items() if heads}

    @property
    def loss(self) -> tuple[float, float]:
        """The loss gained without them on held-out test examples, and its error."""
        from sampler.heads.cost_tables import cost_at

        return cost_at(self.result, "test_loss")

    @property
    def accuracy(self) -> tuple[float, float] | None:
        """The accuracy lost, likewise; None where labels are not classes."""
        from sampler.heads.cost_tables import cost_at

        known = "test_accuracy" in self.result
        return cost_at(self.result, "test_accuracy") if known else None

    def apply(self, model: Any) -> None:
        """Zero these heads in the projections of a PyTorch model, in place, for it to be saved.

        model  the one that was asked about, or a copy of it

        Raises InputError for heads of a task, and for heads that were replaced by their mean.
        """
        from sampler.heads.torch_heads import zero_heads

        if not self.projections:
            remedy = "is no PyTorch module; keep the other heads of a task by `network.heads`"
            raise InputError("model", model, remedy)
        if (replacement := self.result.attrs["replacement"]) != "zero":
            remedy = 'a mean cannot be put into a projection: choose heads with "zero"'
            raise InputError("replacement", replacement, remedy)
        zero_heads(model, self.projections, self.layers_from_zero())

    def to_json(self) -> str:
        """The heads, from 0, by layer, from 1, with limit, loss and accuracy, as JSON."""
        known = self.result.attrs
        return json.dumps(
            {
                "heads": {str(layer): heads for layer, heads in self.heads.items()},
                "key_value_heads": {str(n): heads for n, heads in self.key_value_heads.items()},
                "limit": {known["measure"]: known["limit"]},
                "loss": list(self.loss),
                "accuracy": None if self.accuracy is None else list(self.accuracy),
            },
            indent=1,
        )

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each number of heads removed; errors as `<name>_error`."""
        from sampler.heads.cost_tables import removable_frame

        return removable_frame(self.result)

    def plot(self, measure: Measure | None = None) -> "Figure":
        """Draw the cost of removal against the number of heads removed."""
        from sampler.heads.figures import draw_removable
        from sampler.presentation.style import figure_style

        measure = measure or self.result.attrs["measure"]
        if f"test_{measure}" not in self.result:
            raise InputError("measure", measure, 'labels are not classes: draw the "loss"')
        with figure_style():
            return draw_removable(self.result, measure)

    def __repr__(self) -> str:
        from sampler.heads.cost_tables import layers_text, removable_text

        text = removable_text(self.result)
        if all(layer.heads == layer.key_value_heads for layer in self.projections):
            return text
        with_them = layers_text(self.key_value_heads)
        return f"{text}\nheads of keys and values that go with them: {with_them}"


def chosen_limit(loss: float | None, accuracy: float | None) -> tuple[Measure, float]:
    """The measure that is limited, and its limit; raises InputError unless there is one."""
    if (loss is None) == (accuracy is None):
        remedy = "give one limit: loss=… in units of the model's loss, or accuracy=… as a share"
        raise InputError("loss and accuracy", (loss, accuracy), remedy)
    measure, limit = ("accuracy", accuracy) if loss is None else ("loss", loss)
    if not isinstance(limit, int | float) or not limit >= 0:
        raise InputError(measure, limit, "must be a number from 0: what may be lost")
    return measure, float(limit)
