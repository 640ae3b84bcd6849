"""Trained models whose heads are removed: their gates, their labels, and the theory of them."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from sampler.api.results import ChosenNetwork, problem_of, recipe_and_data, solve
from sampler.api.tasks import ChosenTask, arrays_task
from sampler.errors import ABSENT, InputError, Setting
from sampler.runtime import use_one_blas_thread
from sampler.settings.network import TheorySection

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from sampler.heads.gates import GatedModel, Numbering
    from sampler.problem import Problem
    from sampler.transformer.chosen_layers import ChosenLayers

# Starting points of the theory, as `solve` has them.
STARTS: int = TheorySection.model_fields["starts"].default
LabelledExamples = tuple[Any, Any] | tuple[Any, Any, Any]
NO_CLASSES = "must be ±1, or one column of 0 and 1 for each class, where the loss is a likelihood"


@dataclass(frozen=True)
class SeenOfModel:
    """Parts of a PyTorch module that its theory sees, as `export_attention` takes them."""

    layers: tuple[int, int] | None = None
    heads: Mapping[int, Sequence[int]] = field(default_factory=dict)
    paths: Literal["products", "single"] = "products"
    mlps: bool = False
    residual: bool | None = None

    @property
    def is_single(self) -> bool:
        """Whether each head is a path by itself."""
        return self.paths == "single"

    @property
    def chosen(self) -> "ChosenLayers":
        """The layers and heads."""
        from sampler.transformer.chosen_layers import ChosenLayers

        return ChosenLayers(self.layers, self.heads)


@dataclass(frozen=True)
class RunOfModel:
    """Settings of a forward pass through a PyTorch module."""

    forward: Any = None
    projection: str | None = None
    batch_size: int = 64


@dataclass(frozen=True)
class HeadsOfModel:
    """A trained model with gates on its heads, by split, and what the theory shall see of it."""

    model: Any
    splits: Mapping[str, LabelledExamples | None]
    seen: SeenOfModel
    runs: RunOfModel
    gated: Mapping[str, "GatedModel"]
    labels: Mapping[str, "np.ndarray"]
    numbering: "Numbering"

    @property
    def is_task(self) -> bool:
        """Whether it is a network that `train` made."""
        return isinstance(self.model, ChosenTask)

    def task(self, network: ChosenNetwork, progress: bool) -> ChosenTask:
        """The attention of the model, recorded, as a task of the theory.

        Single heads are read out at recording, at the token that the network reads.
        """
        if self.is_task:
            return self.model
        from sampler.jobs.progress import busy

        seen, runs = self.seen, self.runs
        with busy("recording attention") if progress else nullcontext():
            return exported(
                self.model,
                self.splits,
                layers=seen.layers,
                heads=seen.heads or None,
                paths=seen.paths,
                mlps=seen.mlps,
                attended=self.read_token(network),
                residual=not seen.is_single if seen.residual is None else seen.residual,
                forward=runs.forward,
                batch_size=runs.batch_size,
            )

    def read_token(self, network: ChosenNetwork) -> str | None:
        """The token of single heads that is read; None where it is the default, or one of each."""
        each = any(split is not None and len(split) == 3 for split in self.splits.values())
        if not self.seen.is_single or each:
            return None
        return network.settings["network"].get("readout")


def heads_of_model(
    model: Any, splits: dict[str, LabelledExamples | None], seen: SeenOfModel, runs: RunOfModel
) -> HeadsOfModel:
    """The heads of a model that may be removed; raises InputError for what cannot be used."""
    from sampler.heads.gates import Numbering

    if isinstance(model, ChosenTask):
        if seen != SeenOfModel(residual=seen.residual):
            remedy = "of a task, keep heads by `network`: leave out layers, heads, paths and mlps"
            raise InputError("model", model, remedy)
        gated, labels = gates_of_task(model)
    else:
        gated, labels = gates_of_module(
            model, splits, runs.forward, runs.projection, runs.batch_size
        )
    numbering = Numbering.of(
        gated["test"].heads, gated["test"].numbers, seen.chosen, single=seen.is_single
    )
    if not numbering.gates:
        raise InputError("heads", seen.heads, "no head is left to be removed: keep some")
    return HeadsOfModel(model, splits, seen, runs, gated, labels, numbering)


@dataclass(frozen=True)
class TheoryOfHeads:
    """The solved theory of a model's attention; notes say how its temperature was chosen."""

    task: ChosenTask
    network: ChosenNetwork
    table: "xr.Dataset"
    notes: tuple[str, ...]

    def problem(self) -> "Problem":
        """The problem that the theory learns, in the precision that is set."""
        recipe, fitted = recipe_and_data(self.task, self.network)
        return problem_of(self.task, recipe, fitted)


def theory_of_heads(
    chosen: HeadsOfModel,
    network: ChosenNetwork,
    starts: int,
    progress: bool,
) -> TheoryOfHeads:
    """Solve the theory of a model's attention, at the best temperature where none is given."""
    import numpy as np

    from sampler.jobs.ablation import chosen_temperature

    task = chosen.task(network, progress)
    if chosen.seen.is_single:  # read out at recording
        network = ChosenNetwork(
            {**network.settings, "network": {**network.settings["network"], "readout": "last"}}
        )
    recipe, fitted = recipe_and_data(task, network)
    refuse_other_heads(
        recipe.network.heads, fitted.head_names, task.data.head_names, chosen.numbering
    )
    use_one_blas_thread()
    notes: tuple[str, ...] = ()
    if "temperature" not in network.settings["posterior"]:

        def solved_at(temperature: float) -> "xr.Dataset":
            return solve(task, at_temperature(network, temperature), starts=1, next_order=False)

        scale = float(np.mean(np.square(fitted.train.labels)))
        temperature, said = chosen_temperature(solved_at, scale, progress)
        network, notes = at_temperature(network, temperature), (said,)
    table = solve(task, network, starts=starts)
    if not table.attrs["converged"]:
        remedy = "the saddle point did not converge; choose a larger width or temperature"
        raise InputError("network", network, remedy)
    return TheoryOfHeads(task, network, table, notes)


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
        raise InputError(Setting("network", "heads"), asked, remedy)


def at_temperature(network: ChosenNetwork, temperature: float) -> ChosenNetwork:
    """A network at another temperature."""
    posterior = {**network.settings["posterior"], "temperature": temperature}
    return ChosenNetwork({**network.settings, "posterior": posterior})


def chosen_loss(
    labels: "dict[str, np.ndarray]",
    model: "GatedModel",
    loss: str,
    *,
    likely: bool,
) -> Literal["squared", "likelihood"]:
    """The loss of a model, a likelihood where that is likely and labels are classes.

    model  with its validation examples

    Raises InputError unless all that was asked for can be computed of labels and outputs.
    """
    classes = are_classes(labels)
    chosen = loss if loss != "auto" else ("likelihood" if likely and classes else "squared")
    if chosen not in ("squared", "likelihood"):
        raise InputError("loss", loss, 'must be "auto", "squared" or "likelihood"')
    if chosen == "likelihood" and not classes:
        raise InputError("loss", loss, f"labels {NO_CLASSES}")
    expected, found = labels["validation"].shape[1], model.output_count()
    if found != expected:
        remedy = (
            f"labels have {expected} columns: give one output for labels ±1, or a column of 0 and "
            "1 for each class"
        )
        raise InputError("outputs of the model", found, remedy)
    return chosen


def are_classes(labels: "Mapping[str, np.ndarray]") -> bool:
    """Whether labels are classes, so that right answers can be counted."""
    from theory.observables import labels_are_classes

    return all(labels_are_classes(labels[name]) for name in ("validation", "test"))
