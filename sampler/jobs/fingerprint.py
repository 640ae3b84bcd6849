"""What a run must have in common with an earlier one to go on with it."""

import hashlib

import numpy as np

from sampler import __version__
from sampler.jobs.image_section import ImageSection
from sampler.jobs.recipe import Recipe, flattened
from sampler.jobs.recipe_sections import (
    ArraysSection,
    AttentionSection,
    MarkovChainSection,
    NetworkSection,
    OneShotSection,
    PosteriorSection,
    SamplerSection,
    TheorySection,
)
from sampler.jobs.schema import SCHEMA_VERSION
from sampler.jobs.time_series_section import SeriesArchiveSection, TimeSeriesSection
from sampler.jobs.training_recipe import TrainingRecipe
from sampler.jobs.training_section import TrainingSection
from sampler.tasks.task import Task

# Settings that may change between a run and its continuation: they change no draw.
FREE = (
    "sampler.draws", "sampler.checkpoint_seconds", "training.checkpoint_seconds", "sweep",
)  # fmt: skip

SECTIONS = {
    "task": (
        MarkovChainSection,
        ArraysSection,
        OneShotSection,
        TimeSeriesSection,
        SeriesArchiveSection,
        ImageSection,
    ),
    "attention": (AttentionSection,),
    "network": (NetworkSection,),
    "posterior": (PosteriorSection,),
    "theory": (TheorySection,),
    "sampler": (SamplerSection,),
    "training": (TrainingSection,),
}


def fingerprint(recipe: Recipe, task: Task) -> dict:
    """Settings, data, and the version of program and results, as JSON has them."""
    return fingerprint_of(recipe, data_checksum(task))


def fingerprint_of(recipe: Recipe | TrainingRecipe, data: str) -> dict:
    """The same from a checksum of the data."""
    settings = flattened(recipe.model_dump(mode="json"))
    return {
        "settings": {key: value for key, value in settings.items() if not is_free(key)},
        "data": data,
        "package major version": __version__.split(".")[0],
        "schema_version": SCHEMA_VERSION,
    }


def is_free(key: str) -> bool:
    return any(key == free or key.startswith(f"{free}.") for free in FREE)


def is_default(key: str, value: object) -> bool:
    """Whether a dotted key of a recipe has its default."""
    section, _, name = key.partition(".")
    for model in SECTIONS.get(section, ()):
        field = model.model_fields.get(name)
        if field is not None and not field.is_required():
            default = field.get_default(call_default_factory=True)
            return value == (list(default) if isinstance(default, tuple) else default)
    return False


def data_checksum(task: Task) -> str:
    """SHA-256 of every number of a task."""
    checksum = hashlib.sha256()
    for split in (task.train, task.test, task.validation):
        if split is not None:
            for array in (split.inputs, split.labels, *split.attention):
                if array is not None:
                    checksum.update(repr((array.shape, array.dtype.str)).encode())
                    checksum.update(np.ascontiguousarray(array).data)
    return checksum.hexdigest()


def differences(stored: dict, current: dict) -> list[str]:
    """What differs, `key (then → now)`; empty where one can go on with the other."""
    found = []
    for key in sorted({*stored, *current} - {"settings", "data"}):
        if stored.get(key) != current.get(key):
            found.append(f"{key} ({stored.get(key)} → {current.get(key)})")
    one, other = stored.get("settings", {}), current.get("settings", {})
    for key in sorted({*one, *other}):
        # A setting that came with a newer version is, by default, what went without saying before.
        if key not in one and is_default(key, other[key]):
            continue
        if one.get(key) != other.get(key):
            found.append(f"{key} ({one.get(key)} → {other.get(key)})")
    if stored.get("data") != current.get("data") and not any(
        entry.startswith(("task.", "attention.", "network.heads")) for entry in found
    ):
        found.append("the data")
    return found
