"""Which heads of a trained model matter: what removing each costs, and what predicts it."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from sampler.api.keywords import in_python
from sampler.api.results import ChosenNetwork, problem_of, recipe_and_data, sample, solve
from sampler.api.tasks import ChosenTask, arrays_task
from sampler.errors import ABSENT, InputError
from sampler.numerics import float64, use_one_blas_thread

if TYPE_CHECKING:
    import numpy as np
    import pandas
    import xarray as xr
    from matplotlib.figure import Figure

    from sampler.heads.gates import GatedModel, Numbering
    from sampler.heads.removal import RemovedHeads

LabelledExamples = tuple[Any, Any] | tuple[Any, Any, Any]
NO_CLASSES = "must be ±1, or one column of 0 and 1 for each class, where the loss is a likelihood"


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
        from sampler.heads.shown import tables_of, whole_text

        first, *others = (table._repr_html_() for table in tables_of(self.result).values())
        said = [f"<p>{escape(note)}</p>" for note in self.result.notes]
        return "".join([f"<p>{escape(whole_text(self.result))}</p>", first, *said, *others])


@in_python
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
    starts: int = 2,
    solve_again: bool = True,
    exact: bool = False,
    orders: int = 0,
    seed: int = 0,
    progress: bool = True,
) -> AblatedHeads:
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
    exact    sample the exact posterior, too
    orders   random orders in which heads are removed one after the other, as by `prune`, beside
             those of ascending score, Taylor importance and magnitude; 0: each head alone
    seed     of the random orders of heads, and of the draws
    progress on stderr, or in one line of a notebook: how long it takes, and how far it is

    A head is replaced by its mean over examples, padding left out, and by 0. Beside the theory's
    predictions stand magnitude, Taylor importance (the mean of |∂loss/∂gate|), attribution
    patching, integrated gradients, EAP-IG, and random numbers. Layers are numbered over the whole
    model, from 1, one that runs several times as several, and heads from 0. Ctrl-C, once heads are
    being removed, ends with what is done. Raises InputError for what cannot be used.
    """
    import numpy as np

    from sampler.heads.gates import Numbering
    from sampler.jobs.ablation import (
        TEMPERATURES,
        Asked,
        ablated,
        chosen_temperature,
        forecast_seconds,
        tell_forecast,
    )
    from sampler.jobs.progress import busy
    from sampler.transformer.chosen_layers import ChosenLayers

    splits = {"train": train, "validation": validation, "test": test}
    is_task, chosen_layers = isinstance(model, ChosenTask), ChosenLayers(layers, heads or {})
    if is_task:
        if not chosen_layers.are_all or paths != "products" or mlps:
            remedy = "of a task, keep heads by `network`: leave out layers, heads, paths and mlps"
            raise InputError("model", model, remedy)
        gated, labels = gates_of_task(model)
    else:
        gated, labels = gates_of_module(model, splits, forward, projection, batch_size)
    counts, single = gated["test"].heads, paths == "single"
    numbering = Numbering.of(counts, gated["test"].numbers, chosen_layers, single=single)
    if not numbering.gates:
        raise InputError("heads", heads, "no head is left to be removed: keep some")
    chosen = chosen_loss(labels, gated["validation"], loss, orders, likely=not is_task)
    asked = Asked(chosen, solve_again, orders, seed)
    task = model
    if not is_task:
        with busy("recording attention") if progress else nullcontext():
            task = exported(
                model,
                splits,
                layers=layers,
                heads=heads,
                paths=paths,
                mlps=mlps,
                residual=not single if residual is None else residual,
                forward=forward,
                batch_size=batch_size,
            )
    recipe, fitted = recipe_and_data(task, network)
    refuse_other_heads(recipe.network.heads, fitted.head_names, task.data.head_names, numbering)
    use_one_blas_thread()
    open_temperature, notes = "temperature" not in network.settings["posterior"], ()
    if progress:
        passes = {key: one.pass_seconds() for key, one in gated.items()}
        solved, _ = recipe_and_data(task, network, theory={"starts": starts})
        tried = len(TEMPERATURES) if open_temperature else 0
        tell_forecast(
            forecast_seconds(solved, fitted, numbering, counts, asked, passes, tried=tried)
        )
    if open_temperature:

        def solved_at(temperature: float) -> "xr.Dataset":
            return solve(task, at_temperature(network, temperature), starts=1, next_order=False)

        scale = float(np.mean(np.square(fitted.train.labels)))
        temperature, said = chosen_temperature(solved_at, scale, progress)
        network, notes = at_temperature(network, temperature), (said,)
        recipe, fitted = recipe_and_data(task, network)
    theory = solve(task, network, starts=starts)
    if not theory.attrs["converged"]:
        remedy = "the saddle point did not converge; choose a larger width or temperature"
        raise InputError("network", network, remedy)
    draw = partial(sample, task, network, seed=seed, progress=progress) if exact else None
    with float64():
        problem = problem_of(task, recipe, fitted)
        return AblatedHeads(
            ablated(problem, gated, numbering, asked, theory, draw, progress, notes)
        )


def gates_of_module(
    model: Any,
    splits: dict[str, LabelledExamples | None],
    forward: Any,
    projection: str | None,
    batch_size: int,
) -> tuple[dict[str, "GatedModel"], dict[str, "np.ndarray"]]:
    """The heads with gates of a PyTorch module, and labels, by split; all labels are read."""
    from sampler.heads.modules import GatedModule
    from sampler.tasks.export import read_labels
    from sampler.transformer.forward_pass import torch_module
    from sampler.transformer.recording import as_tensors, check_batch_size, count_of

    check_batch_size(batch_size)
    labels = {}
    for name, split in splits.items():
        if not isinstance(split, tuple) or len(split) not in (2, 3):
            value = ABSENT if split is None else split
            raise InputError(name, value, "give a pair of inputs and labels of this split")
        read = torch_module().as_tensor(split[2] if len(split) == 3 else [0])
        if read.ndim != 1 or bool((read < 0).any()):
            remedy = "removal is measured on outputs of examples: name one token read of each"
            raise InputError(f"tokens read of {name}", read.tolist(), remedy)
        labels[name] = read_labels(f"labels_{name}", split[1], count_of(as_tensors(split[0])))
    refuse_no_labels(labels)
    gated = {
        name: GatedModule(model, splits[name][0], forward, projection, batch_size)
        for name in ("validation", "test")
    }
    counts = {name: one.heads for name, one in gated.items()}
    if counts["validation"] != counts["test"]:
        remedy = f"are those of validation examples, of test examples they are {counts['test']}"
        raise InputError("heads of each layer", counts["validation"], remedy)
    return gated, labels


def exported(model: Any, splits: dict[str, LabelledExamples], **settings: Any) -> ChosenTask:
    """The attention of a PyTorch module as a task; `settings` are those of `export_attention`."""
    from sampler.tasks.export import export_attention

    with TemporaryDirectory() as folder:
        file = export_attention(Path(folder) / "attention.npz", model, **splits, **settings)
        return arrays_task(file)


def gates_of_task(task: ChosenTask) -> tuple[dict[str, "GatedModel"], dict[str, "np.ndarray"]]:
    """The heads with gates of the network that a task has its attention from, and its labels."""
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
    splits = {"validation": data.validation, "test": data.test}
    labels = {name: split.labels for name, split in splits.items()}
    refuse_no_labels(labels)
    return {
        name: GatedNetwork.of_blocks(data.trained, split.blocks()) for name, split in splits.items()
    }, labels


def refuse_no_labels(labels: "dict[str, np.ndarray | None]") -> None:
    """Raise InputError unless all splits have labels, of as many outputs."""
    if labels["test"] is None:
        raise InputError("labels_test", None, "what a removal costs is measured with labels")
    outputs = {name: one.shape[1] for name, one in labels.items()}
    if len(set(outputs.values())) > 1:
        raise InputError("columns of labels", outputs, "all splits must have as many")


def refuse_other_heads(
    asked: Any,
    kept: Sequence[Sequence[str]],
    names: Sequence[Sequence[str]],
    numbering: "Numbering",
) -> None:
    """Raise InputError unless the theory has all heads that are removed, each layer by layer.

    kept, names  of each layer of the theory, and of its attention
    """
    counts = numbering.layers
    if len(names) != len(counts) or any(
        len(of_layer) < count for of_layer, count in zip(names, counts, strict=True)
    ):
        remedy = f"attention was recorded of {tuple(map(len, names))} heads in its layers"
        raise InputError("heads of the model, layer by layer", counts, remedy)
    # Behind the heads of the model stands that of a residual connection, or other paths.
    layers = zip(kept, names, counts, strict=True)
    if any(tuple(left[:count]) != tuple(of[:count]) for left, of, count in layers):
        remedy = "every head of the model is removed in turn: leave this out"
        raise InputError("network.heads", asked, remedy)


def at_temperature(network: ChosenNetwork, temperature: float) -> ChosenNetwork:
    """A network at another temperature."""
    posterior = {**network.settings["posterior"], "temperature": temperature}
    return ChosenNetwork({**network.settings, "posterior": posterior})


def chosen_loss(
    labels: "dict[str, np.ndarray]",
    model: "GatedModel",
    loss: str,
    orders: int,
    *,
    likely: bool,
) -> Literal["squared", "likelihood"]:
    """The loss of a model, a likelihood where that is likely and labels are classes.

    model  with its validation examples

    Raises InputError unless all that was asked for can be computed of labels and outputs.
    """
    from theory.observables import labels_are_classes

    classes = all(labels_are_classes(labels[name]) for name in ("validation", "test"))
    chosen = loss if loss != "auto" else ("likelihood" if likely and classes else "squared")
    if chosen not in ("squared", "likelihood"):
        raise InputError("loss", loss, 'must be "auto", "squared" or "likelihood"')
    if chosen == "likelihood" and not classes:
        raise InputError("loss", loss, f"labels {NO_CLASSES}")
    if type(orders) is not int or orders < 0:
        raise InputError("orders", orders, "must be a whole number from 0")
    if orders and not classes:
        raise InputError("orders", orders, "accuracies are counted: give labels that are classes")
    expected, found = labels["validation"].shape[1], model.output_count()
    if found != expected:
        remedy = (
            f"labels have {expected} columns: give one output for labels ±1, or a column of 0 and "
            "1 for each class"
        )
        raise InputError("outputs of the model", found, remedy)
    return chosen
