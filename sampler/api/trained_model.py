"""A trained model with gates on its heads, its labels, and the theory of its attention."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from sampler.api.model import ChosenNetwork, problem_of, recipe_and_data, solve
from sampler.api.tasks import ChosenTask, arrays_task
from sampler.errors import ABSENT, InputError, Setting
from sampler.runtime import use_one_blas_thread

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from sampler.heads.gates import GatedModel, Numbering
    from sampler.problem import Problem

LabelledExamples = tuple[Any, Any] | tuple[Any, Any, Any]
Loss = Literal["squared", "likelihood"]
NO_CLASSES = "must be ±1, or one column of 0 and 1 for each class, where the loss is a likelihood"


@dataclass(frozen=True)
class TrainedModel:
    """A trained model whose heads are removed, with its examples; keywords as of `ablate_heads`."""

    model: Any
    splits: Mapping[str, LabelledExamples | None]
    layers: tuple[int, int] | None = None
    heads: Mapping[int, Sequence[int]] = field(default_factory=dict)
    paths: Literal["products", "single"] = "products"
    mlps: bool = False
    residual: bool | None = None
    forward: Any = None
    projection: str | None = None
    batch_size: int = 64

    @property
    def is_task(self) -> bool:
        """Whether it is a network that `train` made."""
        return isinstance(self.model, ChosenTask)

    @property
    def is_single(self) -> bool:
        """Whether the theory has each head as a path by itself."""
        return self.paths == "single"

    @cached_property
    def gated(self) -> "Mapping[str, GatedModel]":
        """The heads with gates, of validation and test examples."""
        return self._gates_and_labels[0]

    @cached_property
    def labels(self) -> "Mapping[str, np.ndarray]":
        """The labels of every split."""
        return self._gates_and_labels[1]

    @cached_property
    def _gates_and_labels(self) -> tuple[dict[str, "GatedModel"], dict[str, "np.ndarray"]]:
        if not self.is_task:
            return self._gates_of_module()
        if self.layers or self.heads or self.is_single or self.mlps:
            remedy = "of a task, keep heads by `network`: leave out layers, heads, paths and mlps"
            raise InputError("model", self.model, remedy)
        return gates_of_task(self.model)

    def _gates_of_module(self) -> tuple[dict[str, "GatedModel"], dict[str, "np.ndarray"]]:
        from sampler.heads.modules import GatedModule
        from sampler.transformer.recording import check_batch_size

        check_batch_size(self.batch_size)
        labels = {name: labels_of(name, split) for name, split in self.splits.items()}
        refuse_no_labels(labels)
        options = self.forward, self.projection, self.batch_size
        gated = {
            name: GatedModule(self.model, self.splits[name][0], *options)
            for name in ("validation", "test")
        }
        counts = {name: one.heads for name, one in gated.items()}
        if counts["validation"] != counts["test"]:
            remedy = f"are those of validation examples, of test examples they are {counts['test']}"
            raise InputError("heads of each layer", counts["validation"], remedy)
        return gated, labels

    @cached_property
    def numbering(self) -> "Numbering":
        """The heads that may be removed. Raises InputError if none is left."""
        from sampler.heads.gates import Numbering
        from sampler.transformer.chosen_layers import ChosenLayers

        gated, chosen = self.gated["test"], ChosenLayers(self.layers, self.heads)
        numbering = Numbering.of(gated.heads, gated.numbers, chosen, single=self.is_single)
        if not numbering.gates:
            raise InputError("heads", self.heads, "no head is left to be removed: keep some")
        return numbering

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes, so that right answers can be counted."""
        from theory.observables import labels_are_classes

        return all(labels_are_classes(self.labels[name]) for name in ("validation", "test"))

    def loss(self, asked: str) -> Loss:
        """The loss of the model, of a module whose labels are classes a likelihood by default.

        Raises InputError unless all that was asked for can be computed of labels and outputs.
        """
        _ = self.numbering  # heads are refused before the model runs
        by_default = "likelihood" if self.has_classes and not self.is_task else "squared"
        chosen = by_default if asked == "auto" else asked
        if chosen not in ("squared", "likelihood"):
            raise InputError("loss", asked, 'must be "auto", "squared" or "likelihood"')
        if chosen == "likelihood" and not self.has_classes:
            raise InputError("loss", asked, f"labels {NO_CLASSES}")
        columns, outputs = (
            self.labels["validation"].shape[1],
            self.gated["validation"].output_count(),
        )
        if outputs != columns:
            remedy = (
                f"labels have {columns} columns: give one output for labels ±1, or a column of 0 "
                "and 1 for each class"
            )
            raise InputError("outputs of the model", outputs, remedy)
        return chosen

    def as_task(self, network: ChosenNetwork, progress: bool) -> ChosenTask:
        """The attention of the model, recorded, as a task of the theory.

        Single heads are read out at recording, at the token that the network reads.
        """
        if self.is_task:
            return self.model
        from sampler.jobs.progress import busy
        from sampler.tasks.export import export_attention

        read_each = any(split is not None and len(split) == 3 for split in self.splits.values())
        readout = network.settings["network"].get("readout")
        with (
            TemporaryDirectory() as folder,
            busy("recording attention") if progress else nullcontext(),
        ):
            file = export_attention(
                Path(folder) / "attention.npz",
                self.model,
                **self.splits,
                layers=self.layers,
                heads=self.heads or None,
                paths=self.paths,
                mlps=self.mlps,
                attended=readout if self.is_single and not read_each else None,
                residual=not self.is_single if self.residual is None else self.residual,
                forward=self.forward,
                batch_size=self.batch_size,
            )
            return arrays_task(file)


def labels_of(name: str, split: Any) -> "np.ndarray | None":
    """The labels of a split of a PyTorch module's examples; InputError for what cannot be used."""
    from sampler.tasks.export import read_labels
    from sampler.transformer.forward_pass import torch_module
    from sampler.transformer.recording import as_tensors, count_of

    if not isinstance(split, tuple) or len(split) not in (2, 3):
        value = ABSENT if split is None else split
        raise InputError(name, value, "give a pair of inputs and labels of this split")
    inputs, labels, *tokens = split
    read = torch_module().as_tensor(tokens[0] if tokens else [0])
    if read.ndim != 1 or bool((read < 0).any()):
        remedy = "removal is measured on outputs of examples: name one token read of each"
        raise InputError(f"tokens read of {name}", read.tolist(), remedy)
    return read_labels(f"labels_{name}", labels, count_of(as_tensors(inputs)))


def gates_of_task(task: ChosenTask) -> tuple[dict[str, "GatedModel"], dict[str, "np.ndarray"]]:
    """The heads with gates of the network that a task has its attention from, and its labels."""
    from sampler.heads.gates import GatedNetwork

    data = task.data
    if data.trained is None:
        remedy = "has no trained network; make it with one_shot_task or trained_series_task, or "
        raise InputError("model", task, f"{remedy}give a PyTorch module")
    if data.validation is None:
        remedy = "predictions are made on validation examples; ask for some"
        raise InputError("examples_validation", 0, remedy)
    splits = {"validation": data.validation, "test": data.test}
    labels = {name: split.labels for name, split in splits.items()}
    refuse_no_labels(labels)
    gated = {
        name: GatedNetwork.of_blocks(data.trained, split.blocks()) for name, split in splits.items()
    }
    return gated, labels


def refuse_no_labels(labels: "dict[str, np.ndarray | None]") -> None:
    """Raise InputError unless all splits have labels, of as many outputs."""
    if labels["test"] is None:
        raise InputError("labels_test", None, "what a removal costs is measured with labels")
    outputs = {name: one.shape[1] for name, one in labels.items()}
    if len(set(outputs.values())) > 1:
        raise InputError("columns of labels", outputs, "all splits must have as many")


# --- the theory of its attention


@dataclass(frozen=True)
class SolvedTheory:
    """The solved theory of a model's attention; notes say how its temperature was chosen."""

    task: ChosenTask
    network: ChosenNetwork
    table: "xr.Dataset"
    notes: tuple[str, ...] = ()

    @property
    def problem(self) -> "Problem":
        """The problem that the theory learns, in the precision that is set."""
        return problem_of(self.task, *recipe_and_data(self.task, self.network))


def solved_theory(
    trained: TrainedModel, network: ChosenNetwork, starts: int, progress: bool
) -> SolvedTheory:
    """Solve the theory of a model's attention, at the best temperature where none is given."""
    task = trained.as_task(network, progress)
    if trained.is_single:  # read out at recording
        network = changed(network, "network", readout="last")
    recipe, data = recipe_and_data(task, network)
    names = data.head_names, task.data.head_names
    refuse_other_heads(recipe.network.heads, *names, trained.numbering)
    use_one_blas_thread()
    notes: tuple[str, ...] = ()
    if "temperature" not in network.settings["posterior"]:
        from sampler.jobs.ablation import chosen_temperature

        def solved_at(temperature: float) -> "xr.Dataset":
            at = changed(network, "posterior", temperature=temperature)
            return solve(task, at, starts=1, next_order=False)

        mean_square_label = float((data.train.labels**2).mean())
        temperature, note = chosen_temperature(solved_at, mean_square_label, progress)
        network, notes = changed(network, "posterior", temperature=temperature), (note,)
    table = solve(task, network, starts=starts)
    if not table.attrs["converged"]:
        remedy = "the saddle point did not converge; choose a larger width or temperature"
        raise InputError("network", network, remedy)
    return SolvedTheory(task, network, table, notes)


def changed(network: ChosenNetwork, section: str, **settings: Any) -> ChosenNetwork:
    """A network with other settings in a section."""
    return ChosenNetwork({**network.settings, section: {**network.settings[section], **settings}})


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
