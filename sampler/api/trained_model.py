"""A trained model whose heads are removed, and its labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sampler.api.tasks import ChosenTask
from sampler.errors import ABSENT, InputError
from sampler.runtime import jax_settings

if TYPE_CHECKING:
    import numpy as np

    from sampler.heads.head_importance import Loss, ModelWithHeads
    from sampler.heads.path_sum import Head

# Inputs and labels.
LabelledExamples = tuple[Any, Any]
# Numbers of heads are measured on the first, their removal on the second.
MEASURED = ("validation", "test")


@dataclass(frozen=True)
class TrainedModel:
    """A trained model, by split, with labels [example, output] and the heads that may go.

    is_task  whether it is a network that `train` made
    """

    models: "Mapping[str, ModelWithHeads]"
    labels: "Mapping[str, np.ndarray]"
    chosen: "tuple[Head, ...]"
    is_task: bool

    @classmethod
    def of(
        cls,
        model: Any,
        splits: Mapping[str, LabelledExamples | None],
        layers: tuple[int, int] | None,
        heads: Mapping[int, Sequence[int]] | None,
        **settings: Any,
    ) -> "TrainedModel":
        """From the keywords of `ablate_heads`; settings are those of `TorchHeads`.

        Raises InputError for what cannot be used.
        """
        from sampler.torch_models.recording import chosen_heads

        is_task = isinstance(model, ChosenTask)
        if is_task and (layers or heads):
            remedy = "every head of a task is removed: leave out layers and heads"
            raise InputError("model", model, remedy)
        models = paths_of_task(model) if is_task else torch_models(model, splits, **settings)
        by_layer = chosen_heads(models["test"].heads, layers, heads)
        chosen = tuple((layer - 1, head) for layer, of in by_layer.items() for head in of)
        if is_task:
            labels = {name: model.data.named_splits[name].labels for name in MEASURED}
        else:
            labels = labels_of(splits, models["test"].outputs)
        if labels["test"] is None:
            raise InputError("labels_test", None, "what a removal costs is measured with labels")
        columns = {name: array.shape[1] for name, array in labels.items()}
        if len(set(columns.values())) > 1:
            raise InputError("columns of labels", columns, "all splits must have as many")
        return cls(models, labels, chosen, is_task)

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes, so that right answers can be counted."""
        from theory.observables import labels_are_classes

        return all(labels_are_classes(self.labels[name]) for name in MEASURED)

    def loss(self, asked: str) -> "Loss":
        """The loss of the model, of a module whose labels are classes a likelihood by default.

        Raises InputError unless it can be computed of labels and outputs.
        """
        by_default = "likelihood" if self.has_classes and not self.is_task else "squared"
        loss = by_default if asked == "auto" else asked
        if loss not in ("squared", "likelihood"):
            raise InputError("loss", asked, 'must be "auto", "squared" or "likelihood"')
        classes = "labels ±1, class numbers, or a column of 0 and 1 for each class"
        if loss == "likelihood" and not self.has_classes:
            raise InputError("loss", asked, f"a likelihood needs {classes}")
        columns, outputs = self.labels["test"].shape[1], self.models["test"].outputs
        if outputs != columns:
            remedy = f"labels have {columns} columns: give one output for each, or {classes}"
            raise InputError("outputs of the model", outputs, remedy)
        return loss


def torch_models(
    model: Any, splits: Mapping[str, LabelledExamples | None], batch_size: int, **settings: Any
) -> "dict[str, ModelWithHeads]":
    """A PyTorch module with its heads, on validation and on test examples."""
    from sampler.heads.torch_heads import TorchHeads
    from sampler.torch_models.model_inputs import check_batch_size

    check_batch_size(batch_size)
    for name, split in splits.items():
        if not isinstance(split, tuple) or len(split) != 2:
            value = ABSENT if split is None else split
            raise InputError(name, value, "give a pair of inputs and labels of this split")
    models = {
        name: TorchHeads(model, splits[name][0], batch_size=batch_size, **settings)
        for name in MEASURED
    }
    validation, test = (models[name].heads for name in MEASURED)
    if validation != test:
        remedy = f"are those of validation examples, of test examples they are {test}"
        raise InputError("heads of each layer", validation, remedy)
    return models


def labels_of(
    splits: Mapping[str, LabelledExamples], outputs: int
) -> "dict[str, np.ndarray | None]":
    """The labels of every split; class numbers as a column for each class."""
    from sampler.torch_models.export import read_labels
    from sampler.torch_models.model_inputs import as_tensors, count_of

    return {
        name: read_labels(f"labels_{name}", labels, count_of(as_tensors(inputs)), outputs)
        for name, (inputs, labels) in splits.items()
    }


def paths_of_task(task: ChosenTask) -> "dict[str, ModelWithHeads]":
    """The network that a task has its attention from, as a sum over paths, by split."""
    import numpy as np

    from sampler.data.split import attended_by_numpy
    from sampler.heads.path_sum import PathSum

    data, trained = task.data, task.data.trained
    if trained is None:
        remedy = "has no trained network; make it with one_shot_task or trained_series_task, or "
        raise InputError("model", task, f"{remedy}give a PyTorch module")
    if data.validation is None:
        remedy = "numbers of heads are measured on validation examples; ask for some"
        raise InputError("examples_validation", 0, remedy)
    if data.heads != trained.architecture.heads:
        remedy = f"the trained network has heads {trained.architecture.heads}"
        raise InputError("heads of the task", data.heads, f"{remedy}; use `random_heads = 0`")
    models = {}
    for name in MEASURED:
        blocks = data.named_splits[name].blocks()
        attended = [attended_by_numpy(block, trained.readout, data.pairs) for block in blocks]
        with jax_settings():
            models[name] = PathSum.of_trained(trained, np.concatenate(attended))
    return models
