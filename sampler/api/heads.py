"""Which heads of a trained model matter: what removing each costs, and what predicts it."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from sampler.api.keywords import in_python
from sampler.api.networks import ChosenNetwork, joined, problem_of
from sampler.api.results import sample, solve
from sampler.api.tasks import ChosenTask, arrays_task
from sampler.errors import ABSENT, InputError
from sampler.numerics import float64

if TYPE_CHECKING:
    from sampler.presentation.ablation import AblatedHeads

Examples = tuple[Any, Any]
NO_CLASSES = "must be ±1, or one column of 0 and 1 for each class, where the loss is a likelihood"


@in_python
def ablate_heads(
    model: Any,
    network: ChosenNetwork,
    *,
    train: Examples | None = None,
    validation: Examples | None = None,
    test: Examples | None = None,
    loss: Literal["auto", "squared", "likelihood"] = "auto",
    residual: bool = True,
    forward: Any = None,
    starts: int = 2,
    solve_again: bool = True,
    exact: bool = False,
    seed: int = 0,
) -> "AblatedHeads":
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
    seed     of the random order of heads, and of the draws

    A head is replaced by 0, and by its mean over examples. Beside the theory's predictions stand
    magnitude, Taylor importance (the mean of |∂loss/∂gate|), attribution patching, and random
    numbers. Raises InputError for what cannot be used.
    """
    is_task = isinstance(model, ChosenTask)
    if is_task:
        task, gated = model, gates_of_task(model)
    else:
        task, gated = gates_of_module(model, train, validation, test, residual, forward)
    return judged(task, network, gated, loss, starts, solve_again, exact, seed, likely=not is_task)


def gates_of_module(
    model: Any,
    train: Examples | None,
    validation: Examples | None,
    test: Examples | None,
    residual: bool,
    forward: Any,
) -> tuple[ChosenTask, dict[str, Any]]:
    """The attention of a PyTorch module as a task, and its heads with gates, by split."""
    splits = {"train": train, "validation": validation, "test": test}
    for name, split in splits.items():
        if not isinstance(split, tuple) or len(split) != 2:
            value = ABSENT if split is None else split
            raise InputError(name, value, "give a pair of inputs and labels of this split")
    from sampler.tasks.export import export_attention
    from sampler.transformer.module_gates import GatedModule

    gated = {name: GatedModule(model, splits[name][0], forward) for name in ("validation", "test")}
    with TemporaryDirectory() as folder:
        file = export_attention(
            Path(folder) / "attention.npz", model, residual=residual, forward=forward, **splits
        )
        return arrays_task(file), gated


def gates_of_task(task: ChosenTask) -> dict[str, Any]:
    """The heads, by split, of the network that a task has its attention from."""
    from sampler.transformer.gates import GatedNetwork

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


def judged(
    task: ChosenTask,
    network: ChosenNetwork,
    gated: dict[str, Any],
    loss: str,
    starts: int,
    solve_again: bool,
    exact: bool,
    seed: int,
    *,
    likely: bool,
) -> "AblatedHeads":
    """Solve the theory, collect all predictions, and measure."""
    from sampler.analysis.head_ablation import (
        TheoryOfHeads,
        judge,
        practitioners_predictions,
        theory_predictions,
    )
    from sampler.presentation.ablation import AblatedHeads
    from theory.observables import labels_are_classes

    data = task.data
    labels = {"validation": data.validation.labels, "test": data.test.labels}
    if labels["test"] is None:
        raise InputError("labels_test", None, "what a removal costs is measured with labels")
    classes = all(map(labels_are_classes, labels.values()))
    chosen = loss if loss != "auto" else ("likelihood" if likely and classes else "squared")
    if chosen not in ("squared", "likelihood"):
        raise InputError("loss", loss, 'must be "auto", "squared" or "likelihood"')
    if chosen == "likelihood" and not classes:
        raise InputError("loss", loss, f"labels {NO_CLASSES}")
    refuse_other_outputs(gated["validation"], labels["validation"])
    theory = solve(task, network, starts=starts)
    if not theory.attrs["converged"]:
        remedy = "the saddle point did not converge; choose a larger width or temperature"
        raise InputError("network", network, remedy)
    recipe, fitted = joined(task, network)
    with float64():
        problem = problem_of(task, recipe, fitted)
        of_model = gated["test"].heads
        if any(len(kept) < count for kept, count in zip(problem.head_names, of_model, strict=True)):
            remedy = "every head of the model is removed in turn: leave this out"
            raise InputError("network.heads", recipe.network.heads, remedy)
        heads = tuple(
            (layer, head) for layer, count in enumerate(of_model) for head in range(count)
        )
        of_theory = TheoryOfHeads(problem, heads)
        beyond = theory.get("order_parameter_next_order")
        found = theory_predictions(
            of_theory,
            theory["order_parameter"].values,
            None if beyond is None or not usable(beyond.values) else beyond.values,
            solve_again,
        )
        found |= practitioners_predictions(gated["validation"], labels["validation"], chosen, seed)
    if exact:
        draws = sample(task, network, seed=seed, progress=False)
        overlaps = draws["posterior"]["order_parameter"].values
        with float64():
            found |= of_theory.exact(overlaps[:, :: max(1, overlaps.shape[1] // DRAWS)])
    with float64():
        result = judge(gated["test"], labels["test"], chosen, found, len(labels["validation"]))
    return AblatedHeads(result)


# Of each chain, at which heads are removed from the exact posterior.
DRAWS = 100


def usable(overlap: Any) -> bool:
    """Whether U_1 to next order is known and positive semi-definite."""
    import numpy as np

    return bool(np.isfinite(overlap).all() and np.linalg.eigvalsh(overlap)[0] > 0)


def refuse_other_outputs(model: Any, labels: Any) -> None:
    """Raise InputError unless the model has an output for each column of the labels."""
    import numpy as np

    found = model.outputs(np.ones(sum(model.heads)), "zero")
    if found.shape != labels.shape:
        remedy = (
            f"labels are {labels.shape}: give one output for labels ±1, or a column of 0 and 1 "
            "for each class"
        )
        raise InputError("outputs of the model", found.shape, remedy)
