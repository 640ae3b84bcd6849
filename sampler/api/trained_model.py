"""A trained model whose heads are removed, its labels, and the theory of its attention."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sampler.api.model import ChosenNetwork, problem_of, recipe_and_data, solve
from sampler.api.tasks import ChosenTask, arrays_task
from sampler.errors import ABSENT, InputError, Setting
from sampler.runtime import jax_settings, use_one_blas_thread

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from sampler.heads.importance import Loss, ModelWithHeads
    from sampler.heads.path_sum import TheoryOfHeads
    from sampler.heads.removal import HeadsToRemove

LabelledExamples = tuple[Any, Any]
NO_CLASSES = (
    "must be ±1, class numbers, or one column of 0 and 1 for each class, where the loss is a "
    "likelihood"
)
# Temperatures that are tried where none is given, times the mean square label.
TEMPERATURES = (0.01, 0.03, 0.1, 0.3, 1.0)
ON_VALIDATION = "validation_squared_error"
SPLITS = ("validation", "test")


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with its examples; keywords as of `ablate_heads`."""

    model: Any
    splits: Mapping[str, LabelledExamples | None]
    layers: tuple[int, int] | None = None
    heads: Mapping[int, Sequence[int]] | None = None
    residual: bool = True
    forward: Any = None
    projection: Any = None
    attention: Any = None
    batch_size: int = 64

    @property
    def is_task(self) -> bool:
        """Whether it is a network that `train` made."""
        return isinstance(self.model, ChosenTask)

    @cached_property
    def models(self) -> "dict[str, ModelWithHeads]":
        """The model with its heads, on validation and on test examples."""
        if not self.is_task:
            return self._torch_models()
        if self.layers or self.heads:
            remedy = "of a task, keep heads by `network`: leave out layers and heads"
            raise InputError("model", self.model, remedy)
        return paths_of_task(self.model)

    def _torch_models(self) -> "dict[str, ModelWithHeads]":
        from sampler.heads.torch_heads import TorchHeads
        from sampler.torch_models.model_inputs import check_batch_size

        check_batch_size(self.batch_size)
        for name, split in self.splits.items():
            if not isinstance(split, tuple) or len(split) != 2:
                value = ABSENT if split is None else split
                raise InputError(name, value, "give a pair of inputs and labels of this split")
        models = {
            name: TorchHeads(
                self.model, self.splits[name][0], self.forward, self.projection, self.batch_size
            )
            for name in SPLITS
        }
        counts = [models[name].heads for name in SPLITS]
        if counts[0] != counts[1]:
            remedy = f"are those of validation examples, of test examples they are {counts[1]}"
            raise InputError("heads of each layer", counts[0], remedy)
        return models

    @cached_property
    def labels(self) -> "dict[str, np.ndarray]":
        """The labels [example, output] of every split; class numbers as a column for each class."""
        if self.is_task:
            data = self.model.data
            labels = {"validation": data.validation.labels, "test": data.test.labels}
        else:
            from sampler.torch_models.export import read_labels
            from sampler.torch_models.model_inputs import as_tensors, count_of

            outputs = self.models["validation"].outputs
            labels = {
                name: read_labels(f"labels_{name}", given, count_of(as_tensors(inputs)), outputs)
                for name, (inputs, given) in self.splits.items()
            }
        if labels["test"] is None:
            raise InputError("labels_test", None, "what a removal costs is measured with labels")
        columns = {name: one.shape[1] for name, one in labels.items()}
        if len(set(columns.values())) > 1:
            raise InputError("columns of labels", columns, "all splits must have as many")
        return labels

    @cached_property
    def chosen(self) -> "HeadsToRemove":
        """The heads that may be removed."""
        from sampler.heads.removal import HeadsToRemove
        from sampler.torch_models.recording import chosen_heads

        return HeadsToRemove.of(chosen_heads(self.models["test"].heads, self.layers, self.heads))

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes, so that right answers can be counted."""
        from theory.observables import labels_are_classes

        return all(labels_are_classes(self.labels[name]) for name in SPLITS)

    def loss(self, asked: str) -> "Loss":
        """The loss of the model, of a module whose labels are classes a likelihood by default.

        Raises InputError unless all that was asked for can be computed of labels and outputs.
        """
        _ = self.chosen  # refused before labels are
        by_default = "likelihood" if self.has_classes and not self.is_task else "squared"
        loss = by_default if asked == "auto" else asked
        if loss not in ("squared", "likelihood"):
            raise InputError("loss", asked, 'must be "auto", "squared" or "likelihood"')
        if loss == "likelihood" and not self.has_classes:
            raise InputError("loss", asked, f"labels {NO_CLASSES}")
        columns, outputs = self.labels["validation"].shape[1], self.models["validation"].outputs
        if outputs != columns:
            remedy = (
                f"labels have {columns} columns: give one output for labels ±1, or class numbers, "
                "or a column of 0 and 1 for each class"
            )
            raise InputError("outputs of the model", outputs, remedy)
        return loss

    def as_task(self, progress: bool) -> ChosenTask:
        """The attention of the model, recorded, as a task of the theory."""
        if self.is_task:
            return self.model
        from sampler.jobs.progress import busy
        from sampler.torch_models.export import export_attention

        splits = {name: (split[0], self.labels[name]) for name, split in self.splits.items()}
        with (
            TemporaryDirectory() as folder,
            busy("recording attention") if progress else nullcontext(),
        ):
            file = export_attention(
                Path(folder) / "attention.npz",
                self.model,
                **splits,
                layers=self.layers,
                heads=self.heads,
                residual=self.residual,
                forward=self.forward,
                attention=self.attention,
                batch_size=self.batch_size,
            )
            return arrays_task(file)


def paths_of_task(task: ChosenTask) -> "dict[str, ModelWithHeads]":
    """The network that a task has its attention from, as a sum over paths, by split."""
    import numpy as np

    from sampler.data.split import attended_by_numpy
    from sampler.heads.path_sum import PathSum

    data = task.data
    if data.trained is None:
        remedy = "has no trained network; make it with one_shot_task or trained_series_task, or "
        raise InputError("model", task, f"{remedy}give a PyTorch module")
    if data.validation is None:
        remedy = "numbers of heads are measured on validation examples; ask for some"
        raise InputError("examples_validation", 0, remedy)
    trained, heads = data.trained.architecture.heads, tuple(map(len, data.head_names))
    if heads != trained:
        remedy = f"the trained network has heads {trained}; use `random_heads = 0`"
        raise InputError("heads of the task", heads, remedy)
    models = {}
    for name, split in {"validation": data.validation, "test": data.test}.items():
        attended = [
            attended_by_numpy(block, data.trained.readout, data.pairs) for block in split.blocks()
        ]
        with jax_settings():
            models[name] = PathSum.of_trained(data.trained, np.concatenate(attended))
    return models


# --- the theory of its attention


@dataclass(frozen=True)
class SolvedTheory:
    """The solved theory of a model's attention; notes say how its temperature was chosen."""

    task: ChosenTask
    network: ChosenNetwork
    table: "xr.Dataset"
    notes: tuple[str, ...] = ()

    def of_heads(self) -> "TheoryOfHeads":
        """The predictor of the validation examples, in the precision that is set."""
        from sampler.analysis.predictors import predicted
        from sampler.heads.path_sum import TheoryOfHeads

        problem = problem_of(self.task, *recipe_and_data(self.task, self.network))
        overlap = predicted(self.table, "order_parameter")
        return TheoryOfHeads(problem.learning, problem.attended_validation, overlap)


def solved_theory(
    trained: TrainedModel, network: ChosenNetwork, starts: int, progress: bool
) -> SolvedTheory:
    """Solve the theory of a model's attention, at the best temperature where none is given."""
    task = trained.as_task(progress)
    recipe, data = recipe_and_data(task, network)
    refuse_other_heads(
        recipe.network.heads, data.head_names, task.data.head_names, trained.chosen.theory
    )
    use_one_blas_thread()
    notes: tuple[str, ...] = ()
    if "temperature" not in network.settings["posterior"]:

        def solved_at(temperature: float) -> "xr.Dataset":
            return solve(task, at_temperature(network, temperature), starts=1, next_order=False)

        mean_square_label = float((data.train.labels**2).mean())
        temperature, note = chosen_temperature(solved_at, mean_square_label, progress)
        network, notes = at_temperature(network, temperature), (note,)
    table = solve(task, network, starts=starts)
    if not table.attrs["converged"]:
        remedy = "the saddle point did not converge; choose a larger width or temperature"
        raise InputError("network", network, remedy)
    return SolvedTheory(task, network, table, notes)


def at_temperature(network: ChosenNetwork, temperature: float) -> ChosenNetwork:
    """A network at another temperature."""
    posterior = {**network.settings["posterior"], "temperature": temperature}
    return ChosenNetwork({**network.settings, "posterior": posterior})


def chosen_temperature(
    solved_at: Any, mean_square_label: float, progress: bool = False
) -> tuple[float, str]:
    """Choose the temperature whose theory has the least squared loss on validation examples.

    solved_at  the theory at a temperature

    Returns it with a sentence about it. Densities and evidences would choose by how well errors are
    known; what is asked of heads is what the predictor loses without them, which is this loss.
    Raises InputError where no saddle point converges.
    """
    import numpy as np

    from sampler.analysis.predictors import number
    from sampler.analysis.text import Number
    from sampler.jobs.prune import shown_steps

    tried = [share * mean_square_label for share in TEMPERATURES]
    losses = np.full(len(tried), np.nan)
    with shown_steps(progress) as steps:
        for place, temperature in enumerate(tried):
            steps.show("temperatures", place, len(tried))
            table = solved_at(temperature)
            if table.attrs["converged"]:
                losses[place] = number(table, ON_VALIDATION)
        steps.show("temperatures", len(tried), len(tried))
    if not np.isfinite(losses).any():
        remedy = "the saddle point converged at none of them; choose a larger width"
        raise InputError("temperature", tried, remedy)
    place = int(np.nanargmin(losses))
    end = {0: ", the lowest that was tried", len(tried) - 1: ", the highest that was tried"}
    return tried[place], (
        f"temperature {Number(tried[place], digits=3)}, of {len(tried)} the one with the theory's "
        f"least squared loss on the validation examples{end.get(place, '')}"
    )


def refuse_other_heads(
    asked: Any,
    kept: Sequence[Sequence[str]],
    names: Sequence[Sequence[str]],
    heads: Sequence[tuple[int, int]],
) -> None:
    """Raise InputError unless the theory has all heads that are removed, each layer by layer.

    kept, names  of each layer of the theory, and of its attention
    """
    layers = range(max(layer for layer, _ in heads) + 1)
    counts = [sum(layer == one for layer, _ in heads) for one in layers]
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
