"""The sizes of a trained transformer, and the file that holds it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sampler.errors import InputError
from sampler.numerics import stream
from sampler.recipes.training_recipe import (
    TrainingRecipe,
    TrainingSection,
    make_training_recipe,
)
from sampler.storage.checkpoint import DamagedFile, read_sealed, write_sealed
from sampler.storage.run_directory import SCHEMA_VERSION, check_schema

Parameters = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class TransformerShape:
    """H_1 … H_L heads, widths N_1 … N_L, N_a, G key channels, D input channels, outputs.

    Without a number of outputs there is one, and it has no axis.
    """

    heads: tuple[int, ...]
    widths: tuple[int, ...]
    key_size: int
    channels: int
    outputs: int | None = None

    @classmethod
    def of(
        cls, settings: TrainingSection, channels: int, outputs: int | None = None
    ) -> "TransformerShape":
        """The shape of the network that is trained on tokens of so many channels."""
        return cls(settings.heads, settings.layer_widths, settings.key_size, channels, outputs)

    @property
    def layers(self) -> int:
        return len(self.heads)

    @property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """W_in [N_1, D]; W_Q_l, W_K_l [head, G, D]; W_V_l [head, N_{l+1}, N_l]; readout [N_a].

        The readout of several outputs is [output, N_a].
        """
        shapes: dict[str, tuple[int, ...]] = {"W_in": (self.widths[0], self.channels)}
        for layer, heads in enumerate(self.heads, start=1):
            shapes[f"W_Q_{layer}"] = (heads, self.key_size, self.channels)
            shapes[f"W_K_{layer}"] = (heads, self.key_size, self.channels)
            shapes[f"W_V_{layer}"] = (heads, self.widths[layer], self.widths[layer - 1])
        several = () if self.outputs is None else (self.outputs,)
        shapes["readout"] = (*several, self.widths[-1])
        return shapes

    @property
    def parameter_count(self) -> int:
        return sum(int(np.prod(shape)) for shape in self.parameter_shapes.values())


def draw_parameters(shape: TransformerShape, seed: int, stream_key: int) -> dict[str, np.ndarray]:
    """Parameters uniform within ±1/√(fan-in), the fan-in being the last axis; float32."""
    drawn = {}
    for position, (name, axes) in enumerate(shape.parameter_shapes.items()):
        limit = 1.0 / np.sqrt(axes[-1])
        values = stream(seed, stream_key, position).uniform(-limit, limit, axes)
        drawn[name] = values.astype(np.float32)
    return drawn


MODEL_FILE = "model.bin"
EMBEDDING_KEY = "label_embedding"


@dataclass(frozen=True)
class TrainedModel:
    """A trained network and where it comes from.

    parameters  arrays of `TransformerShape.parameter_shapes`, float32
    embedding   [label, channel] of one-shot images, float32
    step        the step it was chosen at
    data        checksum of the images, or series, of all splits
    checksum    SHA-256 of the file; empty before it is written
    """

    recipe: TrainingRecipe
    parameters: Parameters
    embedding: np.ndarray | None
    step: int
    data: str
    checksum: str = ""

    @property
    def shape(self) -> TransformerShape:
        """Heads, widths and sizes."""
        readout = self.parameters["readout"]
        outputs = None if readout.ndim == 1 else len(readout)
        channels = self.parameters["W_in"].shape[1]
        return TransformerShape.of(self.recipe.training, channels, outputs)


def write_model(directory: Path, model: TrainedModel) -> str:
    """Write `model.bin` completely or not at all, and return its checksum. Raises OSError."""
    header = {
        "schema_version": SCHEMA_VERSION,
        "recipe": model.recipe.model_dump(mode="json"),
        "step": model.step,
        "images": model.data,
    }
    embedding = {} if model.embedding is None else {EMBEDDING_KEY: model.embedding}
    arrays = {**model.parameters, **embedding}
    return write_sealed(directory / MODEL_FILE, header, arrays)


def read_model(directory: Path) -> TrainedModel:
    """Read the model of a training. Raises InputError where there is none, or a damaged one."""
    path = directory / MODEL_FILE
    if not path.is_file():
        raise InputError(
            "task.model",
            directory,
            f"holds no {MODEL_FILE}; name the directory of a finished training (`train`)",
        )
    try:
        sealed = read_sealed(path)
    except DamagedFile as problem:
        raise InputError("task.model", path, f"{problem}; train it again") from None
    header, arrays = sealed.header, dict(sealed.arrays)
    check_schema(header["schema_version"], str(path))
    embedding = arrays.pop(EMBEDDING_KEY, None)
    return TrainedModel(
        make_training_recipe(header["recipe"]),
        arrays,
        embedding,
        header["step"],
        header["images"],
        sealed.checksum,
    )
