"""A trained model on validation and test examples with labels, and its heads that may go."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sampler.data.task import Task
from sampler.errors import ABSENT, InputError, Verbatim
from sampler.runtime import jax_settings
from sampler.settings.task_sections import TaskSettings

if TYPE_CHECKING:
    import numpy as np

    from sampler.heads.importance import LabelledModel, TrainedHeads
    from sampler.heads.path_sum import Head

# Inputs and labels.
LabelledExamples = tuple[Any, Any]
# Heads are chosen, or their importance measured, on the first; what removing them costs on the
# second.
SPLITS = ("validation", "test")


def labelled_models(
    model: Any,
    splits: Mapping[str, LabelledExamples | None],
    loss: str = "auto",
    layers: tuple[int, int] | None = None,
    heads: Mapping[int, Sequence[int]] | None = None,
    **settings: Any,
) -> "tuple[LabelledModel, LabelledModel, list[Head]]":
    """The model on validation and on test examples, and heads; from keywords of `ablate_heads`.

    settings  those of `TorchHeads`

    Raises InputError for unusable input.
    """
    from sampler.heads.importance import LabelledModel
    from sampler.torch_models.recording import chosen_heads

    is_task = isinstance(model, TaskSettings)
    if is_task:
        if layers or heads:
            remedy = "every head of a task is removed: leave out layers and heads"
            raise InputError("model", model, remedy)
        data = model.make(None)
        models = paths_of_task(model, data)
        labels = {name: data.named_splits[name].labels for name in SPLITS}
    else:
        models = torch_models(model, splits, **settings)
        labels = labels_of(splits, models["test"].outputs)
    chosen = chosen_heads(models["test"].heads, layers, heads)
    if labels["test"] is None:
        raise InputError("labels_test", None, "what a removal costs is measured with labels")
    columns = {name: array.shape[1] for name, array in labels.items()}
    if len(set(columns.values())) > 1:
        raise InputError("columns of labels", columns, "all splits must have as many")
    kind = loss_of(loss, labels, models["test"].outputs, is_task)
    validation, test = (LabelledModel(models[name], labels[name], kind) for name in SPLITS)
    return validation, test, [(layer - 1, head) for layer, of in chosen.items() for head in of]


def are_classes(labels: "Mapping[str, np.ndarray]") -> bool:
    """Whether labels of all splits are classes, so that right answers can be counted."""
    from theory.observables import labels_are_classes

    return all(map(labels_are_classes, labels.values()))


def loss_of(asked: str, labels: "Mapping[str, np.ndarray]", outputs: int, is_task: bool) -> str:
    """The loss of a model, of a module whose labels are classes a likelihood by default.

    Raises InputError unless it can be computed of labels and outputs.
    """
    by_default = "likelihood" if are_classes(labels) and not is_task else "squared"
    loss = by_default if asked == "auto" else asked
    if loss not in ("squared", "likelihood"):
        raise InputError("loss", asked, 'must be "auto", "squared" or "likelihood"')
    classes = "labels ±1, class numbers, or a column of 0 and 1 for each class"
    if loss == "likelihood" and not are_classes(labels):
        raise InputError("loss", asked, f"a likelihood needs {classes}")
    columns = labels["test"].shape[1]
    if outputs != columns:
        remedy = f"labels have {columns} columns: give one output for each, or {classes}"
        raise InputError("outputs of the model", outputs, remedy)
    return loss


def torch_models(
    model: Any, splits: Mapping[str, LabelledExamples | None], batch_size: int, **settings: Any
) -> "dict[str, TrainedHeads]":
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
        for name in SPLITS
    }
    validation, test = (models[name].heads for name in SPLITS)
    if validation != test:
        remedy = f"are those of validation examples, of test examples they are {test}"
        raise InputError("heads of each layer", validation, remedy)
    return models


def labels_of(
    splits: Mapping[str, LabelledExamples], outputs: int
) -> "dict[str, np.ndarray | None]":
    """The labels of every split; class numbers as a column for each class."""
    from sampler.torch_models.export import read_labels
    from sampler.torch_models.model_inputs import count_of, read_inputs

    return {
        name: read_labels(f"labels_{name}", labels, count_of(read_inputs(inputs)), outputs)
        for name, (inputs, labels) in splits.items()
    }


def paths_of_task(task: TaskSettings, data: Task) -> "dict[str, TrainedHeads]":
    """The network that a task has its attention from, as a sum over paths, by split."""
    import numpy as np

    from sampler.data.examples import attended_by_numpy
    from sampler.heads.path_sum import PathSum

    trained = data.trained
    if trained is None:
        remedy = "has no trained network; make it with sampler.OneShot(model=…), or give a PyTorch "
        raise InputError("model", Verbatim(repr(task)), f"{remedy}module")
    if data.validation is None:
        remedy = "Taylor importance is measured on validation examples; ask for some"
        raise InputError("examples_validation", 0, remedy)
    if data.heads != trained.architecture.heads:
        remedy = f"the trained network has heads {trained.architecture.heads}"
        raise InputError("heads of the task", data.heads, f"{remedy}; use `random_heads = 0`")
    models = {}
    for name in SPLITS:
        blocks = data.named_splits[name].blocks()
        attended = [attended_by_numpy(block, "mean", data.pairs) for block in blocks]
        with jax_settings():
            models[name] = PathSum.of_trained(trained, np.concatenate(attended))
    return models
