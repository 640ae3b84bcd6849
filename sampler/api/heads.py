"""Heads of a trained model: what removing each costs, what predicts it, and which can go together.

What cannot be used is refused with an `InputError` that names the keyword.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from sampler.api.keywords import takes
from sampler.api.model import ChosenNetwork
from sampler.api.trained_model import LabelledExamples, TrainedModel, solved_theory
from sampler.errors import InputError
from sampler.runtime import jax_settings
from sampler.settings.network import TheorySection

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from sampler.heads.joint import JointlyRemoved, JointRemoval
    from sampler.heads.removal import RemovedHeads

# Starting points of the theory, as `solve` has them.
STARTS: int = TheorySection.model_fields["starts"].default
Measure = Literal["loss", "accuracy"]


# --- every head alone


@takes()
def ablate_heads(
    model: Any,
    network: ChosenNetwork,
    *,
    train: LabelledExamples | None = None,
    validation: LabelledExamples | None = None,
    test: LabelledExamples | None = None,
    loss: Literal["auto", "squared", "likelihood"] = "auto",
    layers: tuple[int, int] | None = None,
    heads: Mapping[int, Sequence[int]] | None = None,
    paths: Literal["products", "single"] = "products",
    mlps: bool = False,
    residual: bool | None = None,
    forward: Any = None,
    projection: str | None = None,
    batch_size: int = 64,
    starts: int = STARTS,
    solve_again: bool = True,
    progress: bool = True,
) -> "AblatedHeads":
    """Remove every head of a trained model on unseen examples, and say what predicts the cost.

    model    a PyTorch module that `export_attention` takes; or what `one_shot_task` or
             `trained_series_task` returns, with the network that `train` made
    network  of the theory: widths, temperature, and the token that is read out. Without a
             temperature it is the one of five from 0.01 to 1, times the mean square label, at which
             the theory has the least squared loss on the validation examples
    train, validation, test
             of a PyTorch module: pairs of inputs and labels, as for `export_attention`, or with the
             number of the token that is read for each example behind them. The theory learns from
             the first split, predictions are made on the second, removal is measured on the third
    loss     of the model: "squared", or "likelihood" of its outputs as logits; "auto": the latter
             for a PyTorch module whose labels are classes
    layers, heads, paths, mlps
             of a PyTorch module: what the theory sees of it, as for `export_attention`; heads that
             it does not see are not removed
    residual a head in each layer stands for the residual connection of a PyTorch module; by default
             so, but for single paths
    forward  runs a PyTorch module on a batch, `forward(model, batch)`, and returns its outputs
             [example] or [example, output]
    projection
             end of the names of the modules that are given all heads of a layer side by side, as in
             "attention.dense"; by default they are found, and where there are none, the products of
             attention with values
    batch_size
             examples in a PyTorch module at a time
    starts   starting points of the theory, as for `solve`
    solve_again
             solve the theory once more without each head, too: with many paths the longest part
    progress on stderr, or in one line of a notebook: how far it is, and the time left

    A head is replaced by its mean over examples, padding left out, and by 0. Predicted is that by
    the head score, by the loss of the theory with the head removed, with its rows of U₁ zeroed and
    solved again, by Taylor importance (the mean of |∂loss/∂gate|) and by magnitude. Layers are
    numbered over the whole model, from 1, one that runs several times as several, and heads from 0.
    Ctrl-C, once heads are being removed, ends with what is done.
    """
    from sampler.jobs.ablation import Asked, ablated

    splits = {"train": train, "validation": validation, "test": test}
    seen = layers, heads or {}, paths, mlps, residual
    trained = TrainedModel(model, splits, *seen, forward, projection, batch_size)
    asked = Asked(trained.loss(loss), solve_again)
    theory = solved_theory(trained, network, starts, progress)
    with jax_settings():
        removed = ablated(
            theory.problem, trained.gated, trained.numbering, asked, theory.table, progress,
            theory.notes,
        )  # fmt: skip
    return AblatedHeads(removed)


@dataclass(frozen=True)
class AblatedHeads:
    """Costs of removing heads, and numbers that predict them; prints as tables.

    result  every number, as `prune` stores it
    """

    result: "RemovedHeads"

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each head, by layer from 1 and number from 0; `<name>_error` beside a number.

        What was measured has the keys zero_loss, zero_accuracy, mean_loss, mean_accuracy; then
        every prediction.
        """
        import pandas

        from sampler.heads.shown import numbers_of, order_shown, removal_table

        frame = removal_table(self.result).to_dataframe()
        places = [self.result.heads[at] for at in order_shown(self.result)]
        frame.index = pandas.MultiIndex.from_tuples(places, names=["layer", "head"])
        # What is known exactly has errors of 0 here, and none in a table.
        errors = {f"{key}_error": one.errors for key, one in numbers_of(self.result).items()}
        return frame.sort_index().assign(**errors)

    def correlations(self) -> "pandas.DataFrame":
        """Spearman's ρ of each prediction with each measure, and both 95 % intervals."""
        import pandas

        rows = []
        for key, numbers in self.result.predicted.items():
            for measure, rho in numbers.spearman.items():
                ends = *rho.interval_over_heads, *rho.interval_over_examples
                rows.append((key, measure, rho.value, *ends))
        intervals = ["heads_low", "heads_high", "examples_low", "examples_high"]
        frame = pandas.DataFrame(rows, columns=["prediction", "measured", "spearman", *intervals])
        return frame.set_index(["prediction", "measured"])

    def plot(self, figure: Literal["costs", "scores"] = "costs") -> "Figure":
        """Draw costs against predictions, or scores beside costs."""
        from sampler.heads.shown import draw_costs, draw_head_scores
        from sampler.presentation.style import figure_style

        drawings = {"costs": draw_costs, "scores": draw_head_scores}
        if figure not in drawings:
            raise InputError("figure", figure, 'must be "costs" or "scores"')
        with figure_style():
            return drawings[figure](self.result)

    def __repr__(self) -> str:
        from sampler.heads.shown import removal_text

        return removal_text(self.result)

    def _repr_html_(self) -> str:
        from sampler.heads.shown import tables_of, whole_text

        first, *others = (table._repr_html_() for table in tables_of(self.result).values())
        notes = [f"<p>{escape(note)}</p>" for note in self.result.notes]
        return "".join([f"<p>{escape(whole_text(self.result))}</p>", first, *notes, *others])


# --- heads together


@takes()
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
) -> "RemovableHeads":
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
    """
    from sampler.jobs.joint import jointly_removed

    measure, limit = limit_of(loss, accuracy)
    for name, value, least in (("sets", sets, 1), ("random", random, 0)):
        if type(value) is not int or value < least:
            raise InputError(name, value, f"must be a whole number from {least}")
    if replacement not in ("zero", "mean"):
        raise InputError("replacement", replacement, 'must be "zero" or "mean"')
    splits = {"train": train, "validation": validation, "test": test}
    if network is None:
        splits.pop("train")
    seen = layers, heads or {}, paths, mlps, residual
    trained = TrainedModel(model, splits, *seen, forward, projection, batch_size)
    kind = trained.loss("auto")
    if measure == "accuracy" and not trained.has_classes:
        raise InputError("accuracy", limit, "labels are no classes: give a limit of the loss")
    theory = None if network is None else solved_theory(trained, network, starts, progress)
    with jax_settings():
        removed = jointly_removed(
            trained.gated, trained.labels, trained.numbering, kind, replacement,
            None if theory is None else (theory.problem, theory.table),
            (score, *compared),
            emptied=not trained.is_task, sets=sets, random=random, seed=seed, progress=progress,
        )  # fmt: skip
    return RemovableHeads(removed, score, measure, limit)


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
    measure: Measure
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
        is_known = self.order.test.accuracy is not None
        return self.order.test.at(self.place, "accuracy") if is_known else None

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each score and number of heads removed; `<name>_error` beside a number."""
        import pandas

        from sampler.heads.joint_shown import order_rows

        frame = pandas.DataFrame(order_rows(self.result))
        return frame.set_index(["score", "order", "removed"]).sort_index()

    def plot(self, measure: Measure | None = None) -> "Figure":
        """Draw the cost of removal against the number of heads removed, for every score."""
        from sampler.heads.joint_shown import draw_together
        from sampler.presentation.style import figure_style

        with figure_style():
            return draw_together(self.result, measure or self.measure, self.limit)

    def __repr__(self) -> str:
        from sampler.heads.joint_shown import removable_text

        return removable_text(self.result, self.score, self.measure, self.limit)


def limit_of(loss: float | None, accuracy: float | None) -> tuple[Measure, float]:
    """The measure that is limited, and its limit; raises InputError unless there is one."""
    given = {"loss": loss, "accuracy": accuracy}
    given = {measure: limit for measure, limit in given.items() if limit is not None}
    if len(given) != 1:
        remedy = "give one limit: loss=… in units of the model's loss, or accuracy=… as a share"
        raise InputError("loss and accuracy", list(given.values()), remedy)
    ((measure, limit),) = given.items()
    if not isinstance(limit, int | float) or not limit >= 0:
        raise InputError(measure, limit, "must be a number from 0: what may be lost")
    return measure, float(limit)
