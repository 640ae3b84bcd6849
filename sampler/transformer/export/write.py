"""From a PyTorch model and its examples to the .npz file that `task.kind = "arrays"` reads."""

from pathlib import Path
from typing import Any

import numpy as np

from sampler.errors import InputError
from sampler.storage.run_directory import fill_whole
from sampler.tasks.task import Split, check_agreement
from sampler.transformer.export.pytorch import as_numpy, torch_module
from sampler.transformer.export.record import Forward, record_attention

Examples = tuple[Any, Any]  # inputs, and labels or None


def export_attention(
    path: str | Path,
    model: Any,
    *,
    train: Examples,
    test: Examples,
    validation: Examples | None = None,
    residual: bool = False,
    forward: Forward | None = None,
    batch_size: int = 64,
) -> Path:
    """Record the attention of a model and store it with inputs and labels; returns the path.

    Each split is a pair of inputs, as `record_attention` takes them, and labels [example] or
    [example, output]: ±1 for two classes, a column for each of several, or real numbers. The test
    split may have None in their place. With `residual`, every layer gets one more head, its last,
    whose attention is the identity: the path past a layer that a residual connection opens.

    Raises InputError, naming the array, for what cannot be used; nothing is written then.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise InputError("path", str(path), "must end in .npz")
    given = {"train": train, "test": test, "validation": validation}
    splits: dict[str, Split] = {}
    for name, examples in given.items():
        if examples is None:
            continue
        inputs, labels = examples
        recorded = record_attention(model, inputs, forward=forward, batch_size=batch_size)
        if residual:
            recorded = recorded.with_identity_heads()
        count = len(recorded.inputs)
        splits[name] = recorded.with_labels(read_labels(f"labels_{name}", labels, count))
        check_agreement(splits["train"], splits[name], name)
    arrays = {key: array for name, split in splits.items() for key, array in named(name, split)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fill_whole(path, lambda temporary: np.savez(temporary, **arrays))
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError("path", str(path), f"{reason}; name a file to write") from None
    return path


def named(name: str, split: Split) -> list[tuple[str, np.ndarray]]:
    """The arrays of a split by their keys in the file."""
    pairs = [(f"inputs_{name}", split.inputs)]
    if split.labels is not None:
        pairs.append((f"labels_{name}", split.labels))
    return pairs + [
        (f"attention_{name}_{layer}", matrices)
        for layer, matrices in enumerate(split.attention, start=1)
    ]


def read_labels(field: str, labels: Any, examples: int) -> np.ndarray | None:
    """Labels [example, output] as float32; InputError for class numbers and for what is missing."""
    if labels is None:
        if field == "labels_test":
            return None
        raise InputError(field, None, "this split needs labels [example] or [example, output]")
    tensor = torch_module().as_tensor(labels)
    array = as_numpy(tensor)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or len(array) != examples or array.shape[1] == 0:
        remedy = f"the shape must be ({examples},) or ({examples}, outputs), a label per example"
        raise InputError(field, tuple(tensor.shape), remedy)
    if not np.isfinite(array).all():
        raise InputError(field, float(array[~np.isfinite(array)][0]), "every label must be finite")
    if not tensor.is_floating_point() and array.shape[1] == 1 and (np.abs(array) != 1).any():
        remedy = "are class numbers; give ±1 for two classes, or a column of 0 and 1 for each class"
        raise InputError(field, np.unique(array).astype(int).tolist(), remedy)
    return array
