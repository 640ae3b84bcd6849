"""The trained network on disk, `model.bin`: parameters, label embedding, recipe and checksums."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sampler.errors import InputError
from sampler.recipes.training_recipe import TrainingRecipe, make_training_recipe
from sampler.storage.schema import SCHEMA_VERSION, check_schema
from sampler.storage.sealed import DamagedFile, read_sealed, write_sealed
from sampler.transformer.shape import Parameters, TransformerShape

MODEL_FILE = "model.bin"
EMBEDDING_KEY = "label_embedding"


@dataclass(frozen=True)
class TrainedModel:
    """A trained network and where it comes from.

    parameters  arrays of `TransformerShape.parameter_shapes`, float32
    embedding   [label, channel], float32
    step        the step it was chosen at
    images      checksum of the images of all splits
    checksum    SHA-256 of the file; empty before it is written
    """

    recipe: TrainingRecipe
    parameters: Parameters
    embedding: np.ndarray
    step: int
    images: str
    checksum: str = ""

    @property
    def shape(self) -> TransformerShape:
        """Heads, widths and sizes."""
        return TransformerShape.of(self.recipe)


def write_model(directory: Path, model: TrainedModel) -> str:
    """Write `model.bin` completely or not at all, and return its checksum. Raises OSError."""
    header = {
        "schema_version": SCHEMA_VERSION,
        "recipe": model.recipe.model_dump(mode="json"),
        "step": model.step,
        "images": model.images,
    }
    arrays = {**model.parameters, EMBEDDING_KEY: model.embedding}
    return write_sealed(directory / MODEL_FILE, header, arrays)


def read_model(directory: Path) -> TrainedModel:
    """Read the model of a training. Raises InputError where there is none, or a damaged one."""
    path = directory / MODEL_FILE
    if not path.is_file():
        raise InputError(
            "task.model",
            str(directory),
            f"holds no {MODEL_FILE}; name the directory of a finished training (`train`)",
        )
    try:
        sealed = read_sealed(path)
    except DamagedFile as problem:
        raise InputError("task.model", str(path), f"{problem}; train it again") from None
    header, arrays = sealed.header, dict(sealed.arrays)
    check_schema(header["schema_version"], str(path))
    embedding = arrays.pop(EMBEDDING_KEY)
    return TrainedModel(
        make_training_recipe(header["recipe"]),
        arrays,
        embedding,
        header["step"],
        header["images"],
        sealed.checksum,
    )
