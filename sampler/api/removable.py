"""Which heads of a trained model can go together, at a given loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sampler.api.keywords import in_python
from sampler.api.models import (
    STARTS,
    LabelledExamples,
    RunOfModel,
    SeenOfModel,
    are_classes,
    chosen_loss,
    heads_of_model,
    theory_of_heads,
)
from sampler.api.results import ChosenNetwork
from sampler.errors import InputError
from sampler.runtime import jax_settings

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from sampler.heads.joint import JointlyRemoved, JointRemoval


@dataclass(frozen=True)
class RemovableHeads:
    """A set of heads that can go at a limit of loss or accuracy; prints as text and a table.

    result   all orders of removal, and what each set costs
    score    by which heads were chosen
    measure  "loss" or "accuracy"
    limit    what may be lost of that
    """

    result: "JointRemoval"
    score: str
    measure: Literal["loss", "accuracy"]
    limit: float

    @property
    def order(self) -> "JointlyRemoved":
        """Sets of more and more heads by the chosen score, and what they cost."""
        return self.result.orders[self.score][0]

    @property
    def place(self) -> int:
        """The place of the set that validation examples choose."""
        return self.order.validation.within(self.limit, self.measure)

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """The heads that can go, by layer from 1 and number from 0."""
        return self.order.test.removed[self.place]

    @property
    def loss(self) -> tuple[float, float]:
        """The loss gained without them on test examples, which chose nothing, and its error."""
        return self.order.test.at(self.place, "loss")

    @property
    def accuracy(self) -> tuple[float, float] | None:
        """The accuracy lost, likewise; None where labels are no classes."""
        return (
            None if self.order.test.accuracy is None else self.order.test.at(self.place, "accuracy")
        )

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each score and number of heads removed; `<name>_error` beside a number."""
        import pandas

        from sampler.heads.joint_shown import order_rows

        return (
            pandas.DataFrame(order_rows(self.result))
            .set_index(["score", "order", "removed"])
            .sort_index()
        )

    def plot(self, measure: Literal["loss", "accuracy"] | None = None) -> "Figure":
        """Draw the cost of removal against the number of heads removed, for every score."""
        from sampler.heads.joint_shown import draw_together
        from sampler.presentation.style import figure_style

        with figure_style():
            return draw_together(self.result, measure or self.measure, self.limit)

    def __repr__(self) -> str:
        from sampler.heads.joint_shown import removable_text

        return removable_text(self.result, self.score, self.measure, self.limit)


@in_python
def removable(
    model: Any,
    network: ChosenNetwork | None = None,
    *,
    loss: float | None = None,
    accuracy: float | None = None,
    train: LabelledExamples | None = None,
    validation: LabelledExamples | None = None,
    test: LabelledExamples | None = None,
    score: str = "taylor",
    compared: Sequence[str] = (),
    replacement: Literal["zero", "mean"] = "zero",
    layers: tuple[int, int] | None = None,
    heads: Mapping[int, Sequence[int]] | None = None,
    paths: Literal["products", "single"] = "products",
    mlps: bool = False,
    residual: bool | None = None,
    forward: Any = None,
    projection: str | None = None,
    batch_size: int = 64,
    starts: int = STARTS,
    sets: int = 24,
    random: int = 0,
    seed: int = 0,
    progress: bool = True,
) -> RemovableHeads:
    """Choose the heads of a trained model that can go together at a limit of loss or accuracy.

    model    a PyTorch module, or what `one_shot_task` or `trained_series_task` returns, as for
             `ablate_heads`
    network  of the theory, as for `ablate_heads`; None: scores of the model alone
    loss, accuracy
             the limit, one of them: what may be lost on validation examples in units of the
             model's loss (nats where labels are classes), or as a share of right answers
    train, validation, test
             pairs of inputs and labels: the theory learns from the first split (needed with a
             network only), heads are chosen on the second, the cost is measured on the third
    score    by which heads go, always the one with the least value, computed anew of what is left
    compared further scores whose orders are found, too; "all" stands for every score there is
    replacement
             what a head sends that is removed: nothing, or its mean over examples
    layers, heads, paths, mlps, residual, forward, projection, batch_size, starts
             as for `ablate_heads`; heads that the theory does not see are not removed
    sets     of each order that are measured at most, evenly spread from no head to all
    random   orders by chance, to compare with
    seed     of these
    progress on stderr, or in one line of a notebook

    A layer of a PyTorch module may lose all of its heads, one of a network of `train` keeps one.
    Raises InputError for what cannot be used.
    """
    from sampler.jobs.joint import jointly_removed

    measure, limit = chosen_limit(loss, accuracy)
    for name, value, least in (("sets", sets, 1), ("random", random, 0)):
        if type(value) is not int or value < least:
            raise InputError(name, value, f"must be a whole number from {least}")
    if replacement not in ("zero", "mean"):
        raise InputError("replacement", replacement, 'must be "zero" or "mean"')
    seen = SeenOfModel(layers, heads or {}, paths, mlps, residual)
    splits = {"train": train, "validation": validation, "test": test}
    if network is None:
        splits.pop("train")
    chosen = heads_of_model(model, splits, seen, RunOfModel(forward, projection, batch_size))
    kind = chosen_loss(chosen.labels, chosen.gated["validation"], "auto", likely=not chosen.is_task)
    if measure == "accuracy" and not are_classes(chosen.labels):
        raise InputError("accuracy", limit, "labels are no classes: give a limit of the loss")
    theory = None
    if network is not None:
        theory = theory_of_heads(chosen, network, starts, progress)
    with jax_settings():
        found = jointly_removed(
            chosen.gated,
            chosen.labels,
            chosen.numbering,
            kind,
            replacement,
            None if theory is None else (theory.problem(), theory.table),
            (score, *compared),
            emptied=not chosen.is_task,
            sets=sets,
            random=random,
            seed=seed,
            progress=progress,
        )
    return RemovableHeads(found, score, measure, limit)


def chosen_limit(
    loss: float | None, accuracy: float | None
) -> tuple[Literal["loss", "accuracy"], float]:
    """The measure that is limited, and its limit; raises InputError unless there is one."""
    given = {key: one for key, one in (("loss", loss), ("accuracy", accuracy)) if one is not None}
    if len(given) != 1:
        remedy = "give one limit: loss=… in units of the model's loss, or accuracy=… as a share"
        raise InputError("loss and accuracy", list(given.values()), remedy)
    ((measure, limit),) = given.items()
    if not isinstance(limit, int | float) or not limit >= 0:
        raise InputError(measure, limit, "must be a number from 0: what may be lost")
    return measure, float(limit)
