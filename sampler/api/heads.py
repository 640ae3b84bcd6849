"""Which heads of a trained model matter: what removing each costs, and what predicts it."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from sampler.api.keywords import in_python
from sampler.api.results import ChosenNetwork, problem_of, recipe_and_data, sample, solve
from sampler.api.tasks import ChosenTask, arrays_task
from sampler.errors import ABSENT, InputError
from sampler.numerics import float64

if TYPE_CHECKING:
    import pandas
    import xarray as xr
    from matplotlib.figure import Figure

    from sampler.heads.gates import GatedModel
    from sampler.heads.removal import RemovedHeads
    from sampler.problem import Problem

LabelledExamples = tuple[Any, Any]
NO_CLASSES = "must be ±1, or one column of 0 and 1 for each class, where the loss is a likelihood"
# Draws of each chain at which heads are removed from the exact posterior.
DRAWS = 100


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

        found = self.result
        frame = removal_table(found).to_dataframe()
        places = [found.heads[at] for at in order_shown(found)]
        frame.index = pandas.MultiIndex.from_tuples(places, names=["layer", "head"])
        frame = frame.sort_index()
        # What is known exactly has errors of 0 here, and none in a table.
        return frame.assign(**{f"{k}_error": one.errors for k, one in numbers_of(found).items()})

    def correlations(self) -> "pandas.DataFrame":
        """Spearman's ρ of each prediction with each measure, and both 95 % intervals."""
        import pandas

        rows = [
            {
                "prediction": key, "measured": measure, "spearman": rho.value,
                "heads_low": rho.interval_over_heads[0], "heads_high": rho.interval_over_heads[1],
                "examples_low": rho.interval_over_examples[0],
                "examples_high": rho.interval_over_examples[1],
            }
            for key, one in self.result.predicted.items()
            for measure, rho in one.spearman.items()
        ]  # fmt: skip
        return pandas.DataFrame(rows).set_index(["prediction", "measured"])

    def plot(self, figure: Literal["costs", "scores", "orders"] = "costs") -> "Figure":
        """Draw costs against predictions, scores beside costs, or the orders of removal."""
        from sampler.heads.shown import draw_costs, draw_head_scores, draw_orders
        from sampler.presentation.style import figure_style

        drawings = {"costs": draw_costs, "scores": draw_head_scores, "orders": draw_orders}
        if figure not in drawings or (figure == "orders" and not self.result.orders):
            remedy = 'must be "costs", "scores", or, with orders asked for, "orders"'
            raise InputError("figure", figure, remedy)
        with figure_style():
            return drawings[figure](self.result)

    def __repr__(self) -> str:
        from sampler.heads.shown import removal_text

        return removal_text(self.result)

    def _repr_html_(self) -> str:
        from sampler.heads.shown import tables_of

        return "".join(table._repr_html_() for table in tables_of(self.result).values())


@in_python
def ablate_heads(
    model: Any,
    network: ChosenNetwork,
    *,
    train: LabelledExamples | None = None,
    validation: LabelledExamples | None = None,
    test: LabelledExamples | None = None,
    loss: Literal["auto", "squared", "likelihood"] = "auto",
    residual: bool = True,
    forward: Any = None,
    starts: int = 2,
    solve_again: bool = True,
    exact: bool = False,
    orders: int = 0,
    seed: int = 0,
) -> AblatedHeads:
    """Remove every head of a trained model on unseen examples, and say what predicts the cost.

    model    a PyTorch module that `export_attention` takes; or what `one_shot_task` or
             `trained_series_task` returns, with the network that `train` made
    network  of the theory: widths, temperature, and the token that is read out
    train, validation, test
             of a PyTorch module: pairs of inputs and labels, as for `export_attention`. The theory
             learns from the first, predictions are made on the second, removal is measured on the
             third
    loss     of the model: "squared", or "likelihood" of its outputs as logits; "auto": the latter
             for a PyTorch module whose labels are classes
    residual a head in each layer stands for the residual connection of a PyTorch module
    forward  runs a PyTorch module on a batch, `forward(model, batch)`, and returns its outputs
             [example] or [example, output]
    starts   starting points of the theory, as for `solve`
    solve_again
             solve the theory once more without each head, too: with many paths the longest part
    exact    sample the exact posterior, too
    orders   random orders in which heads are removed one after the other, as by `prune`, beside
             those of ascending score, Taylor importance and magnitude; 0: each head alone
    seed     of the random orders of heads, and of the draws

    A head is replaced by 0, and by its mean over examples. Beside the theory's predictions stand
    magnitude, Taylor importance (the mean of |∂loss/∂gate|), attribution patching, and random
    numbers. Raises InputError for what cannot be used.
    """
    is_task = isinstance(model, ChosenTask)
    if is_task:
        task, gated = model, gates_of_task(model)
    else:
        task, gated = gates_of_module(model, train, validation, test, residual, forward)
    chosen = chosen_loss(task, gated["validation"], loss, orders, likely=not is_task)
    recipe, fitted = recipe_and_data(task, network)
    counts = gated["test"].heads
    # Behind the heads of the model stands that of a residual connection.
    layers = zip(fitted.head_names, task.data.head_names, counts, strict=True)
    if any(kept[:count] != names[:count] for kept, names, count in layers):
        remedy = "every head of the model is removed in turn: leave this out"
        raise InputError("network.heads", recipe.network.heads, remedy)
    theory = solve(task, network, starts=starts)
    if not theory.attrs["converged"]:
        remedy = "the saddle point did not converge; choose a larger width or temperature"
        raise InputError("network", network, remedy)
    draws = sample(task, network, seed=seed, progress=False) if exact else None
    with float64():
        problem = problem_of(task, recipe, fitted)
        result = ablated(problem, gated, chosen, theory, draws, solve_again, orders, seed)
    return AblatedHeads(result)


def gates_of_module(
    model: Any,
    train: LabelledExamples | None,
    validation: LabelledExamples | None,
    test: LabelledExamples | None,
    residual: bool,
    forward: Any,
) -> tuple[ChosenTask, dict[str, "GatedModel"]]:
    """The attention of a PyTorch module as a task, and its heads with gates, by split."""
    splits = {"train": train, "validation": validation, "test": test}
    for name, split in splits.items():
        if not isinstance(split, tuple) or len(split) != 2:
            value = ABSENT if split is None else split
            raise InputError(name, value, "give a pair of inputs and labels of this split")
    from sampler.heads.gates import GatedModule
    from sampler.tasks.export import export_attention

    gated = {name: GatedModule(model, splits[name][0], forward) for name in ("validation", "test")}
    with TemporaryDirectory() as folder:
        file = export_attention(
            Path(folder) / "attention.npz", model, residual=residual, forward=forward, **splits
        )
        return arrays_task(file), gated


def gates_of_task(task: ChosenTask) -> dict[str, "GatedModel"]:
    """The heads, by split, of the network that a task has its attention from."""
    from sampler.heads.gates import GatedNetwork

    data = task.data
    if data.trained is None:
        remedy = (
            "has no trained network; make it with one_shot_task or trained_series_task, or give a "
            "PyTorch module"
        )
        raise InputError("model", task, remedy)
    if data.validation is None:
        remedy = "predictions are made on validation examples; ask for some"
        raise InputError("examples_validation", 0, remedy)
    return {
        name: GatedNetwork.of_blocks(data.trained, split.blocks())
        for name, split in (("validation", data.validation), ("test", data.test))
    }


def chosen_loss(
    task: ChosenTask, model: "GatedModel", loss: str, orders: int, *, likely: bool
) -> Literal["squared", "likelihood"]:
    """The loss of a model, a likelihood where that is likely and labels are classes.

    Raises InputError unless all that was asked for can be computed of labels and outputs.
    """
    import numpy as np

    from theory.observables import labels_are_classes

    data = task.data
    if data.test.labels is None:
        raise InputError("labels_test", None, "what a removal costs is measured with labels")
    classes = all(labels_are_classes(split.labels) for split in (data.validation, data.test))
    chosen = loss if loss != "auto" else ("likelihood" if likely and classes else "squared")
    if chosen not in ("squared", "likelihood"):
        raise InputError("loss", loss, 'must be "auto", "squared" or "likelihood"')
    if chosen == "likelihood" and not classes:
        raise InputError("loss", loss, f"labels {NO_CLASSES}")
    if orders and not classes:
        raise InputError("orders", orders, "accuracies are counted: give labels that are classes")
    expected = data.validation.labels.shape
    found = model.outputs(np.ones(sum(model.heads)), "zero")
    if found.shape != expected:
        remedy = (
            f"labels are {expected}: give one output for labels ±1, or a column of 0 and 1 "
            "for each class"
        )
        raise InputError("outputs of the model", found.shape, remedy)
    return chosen


def ablated(
    problem: "Problem",
    gated: dict[str, "GatedModel"],
    loss: Literal["squared", "likelihood"],
    theory: "xr.Dataset",
    draws: "xr.DataTree | None",
    solve_again: bool,
    orders: int,
    seed: int,
) -> "RemovedHeads":
    """All predictions on validation examples, and heads removed on test examples."""
    from sampler.analysis.draws_table import stored_weights
    from sampler.heads.gates import all_heads, closed_gates
    from sampler.heads.measures import (
        TheoryWithoutHeads,
        predictions_of_model,
        predictions_of_posterior,
        predictions_of_theory,
    )
    from sampler.heads.removal import MODEL, ZEROED, removed_heads, removed_in_orders

    counts, validation, test = gated["test"].heads, problem.labels_validation, problem.labels_test
    heads, overlap = all_heads(counts), theory["order_parameter"].values
    solved = TheoryWithoutHeads(problem.learning, problem.attended_validation, overlap)
    beyond = theory.get("order_parameter_next_order")
    beyond = None if beyond is None else beyond.values
    predicted = predictions_of_theory(solved, heads, validation, beyond, solve_again)
    predicted |= predictions_of_model(gated["validation"], validation, loss, seed)
    if draws is not None:
        overlaps = draws["posterior"]["order_parameter"].values
        some = overlaps[:, :: max(1, overlaps.shape[1] // DRAWS)]
        predicted |= predictions_of_posterior(
            solved, heads, validation, some, stored_weights(draws)
        )

    def sent(removed, replacement):
        return gated["test"].outputs(closed_gates(counts, removed), replacement)

    ways = {kind: partial(sent, replacement=kind) for kind in ("zero", "mean")}
    in_orders = {}
    if orders:
        by = {key: predicted[key].value for key in ("score", "taylor", "magnitude")}
        of_test = TheoryWithoutHeads(problem.learning, problem.attended_test, overlap)
        who = {MODEL: ways["zero"], ZEROED: of_test.zeroed}
        in_orders = removed_in_orders(who, by, orders, seed, counts, test)
    return removed_heads(
        counts,
        ways,
        test,
        loss,
        predicted,
        widths=problem.architecture.widths,
        temperature=problem.learning.temperature,
        seed=seed,
        orders=in_orders,
        examples_validation=len(validation),
    )
