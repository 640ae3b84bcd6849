"""What a run must have in common with an earlier one to go on with it."""

from collections.abc import Iterator
from typing import Any, get_args

from sampler import __version__
from sampler.recipes.recipe import Recipe, flattened
from sampler.recipes.sections import Section
from sampler.recipes.training_recipe import TrainingRecipe
from sampler.storage.schema import SCHEMA_VERSION

# Settings that may change between a run and its continuation: they change no draw.
FREE = (
    "sampler.draws", "sampler.checkpoint_seconds", "training.checkpoint_seconds", "sweep",
)  # fmt: skip


def fingerprint(recipe: Recipe | TrainingRecipe, data: str) -> dict:
    """Settings, checksum of the data, and the version of program and results, as JSON has them."""
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
    name, _, setting = key.partition(".")
    for model in sections_named(name):
        field = model.model_fields.get(setting)
        if field is not None and not field.is_required():
            default = field.get_default(call_default_factory=True)
            return value == (list(default) if isinstance(default, tuple) else default)
    return False


def sections_named(name: str) -> list[type[Section]]:
    """The sections that recipes of either kind may have under this name."""
    fields = [recipe.model_fields.get(name) for recipe in (Recipe, TrainingRecipe)]
    return [s for field in fields if field is not None for s in sections_in(field.annotation)]


def sections_in(annotation: Any) -> Iterator[type[Section]]:
    """The sections among the alternatives of a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from sections_in(part)


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
