"""Last states of the chains of a finished run, where `sampler.start_from` lets others begin."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sampler.errors import InputError
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.recipes.recipe import Recipe
from sampler.recipes.sections import AUTO, SamplerSection
from sampler.recipes.training_recipe import load_any_recipe
from sampler.storage.checkpoint import STATE, read_slots
from sampler.storage.manifest import read_manifest
from sampler.storage.run_directory import CHECKPOINT_FOLDER, CHECKPOINT_SLOTS, RECIPE_FILE

FIELD = "sampler.start_from"


@dataclass(frozen=True)
class EarlierChains:
    """The last state of all chains of a finished run.

    origin  its directory, the hash of its recipe, and the SHA-256 of its checkpoint's content
    arrays  every leaf of the state by its path, as in a snapshot of chains
    """

    origin: Mapping[str, str]
    arrays: Mapping[str, np.ndarray]


def read_earlier_chains(
    sampler: SamplerSection, origin: Mapping[str, str] | None = None
) -> EarlierChains | None:
    """The chains that others with these settings are to start from; None where none are named.

    Raises InputError for a directory without chains that have come to their end, for chains of
    another space or algorithm, and where a recorded `origin` is not that found now.
    """
    if sampler.start_from is None:
        return None
    path = Path(sampler.start_from)

    def refusal(remedy: str) -> InputError:
        return InputError(FIELD, sampler.start_from, remedy)

    if not (path / RECIPE_FILE).is_file():
        raise refusal(f"holds no {RECIPE_FILE}; name the directory of a finished run")
    recipe, manifest = load_any_recipe(path / RECIPE_FILE), read_manifest(path)
    if not isinstance(recipe, Recipe):
        raise refusal("holds a training; name the directory of a finished run")
    if recipe.sweep:
        raise refusal("is a sweep; name the directory of one of its points")
    if "sample" not in manifest.seconds:
        raise refusal("its sampling is not finished; first use `resume`, or name another run")
    chosen = manifest.choice or dict(recipe.sampler)
    slots, made = read_slots(path / CHECKPOINT_FOLDER).intact, manifest.draws_per_chain
    last = next((one for _, one in slots if made in (None, one.header["done"])), None)
    if last is None or last.header["phase"] != "draws":
        raise refusal(
            "has no intact checkpoint of the end of its chains (independent draws have none, or "
            f"{CHECKPOINT_FOLDER}/ was removed); name a run of chains that has one"
        )
    # Where there are chains, independent draws were not trusted.
    algorithm = ALGORITHMS[chosen["algorithm"]].fallback or chosen["algorithm"]
    for key, theirs in (("space", chosen["space"]), ("algorithm", algorithm)):
        if (asked := getattr(sampler, key)) not in (AUTO, theirs):
            raise refusal(
                f'its chains have {key} "{theirs}", those of this run "{asked}"; '
                f'set sampler.{key} = "{theirs}", or name another run'
            )
    found = {
        "directory": sampler.start_from,
        "recipe_hash": manifest.recipe_hash or recipe.hash8,
        "checkpoint": last.checksum,
    }
    if origin is not None and origin["checkpoint"] != last.checksum:
        raise refusal(
            f"its last checkpoint is not the recorded one (SHA-256 {last.checksum[:8]}…, was "
            f"{origin['checkpoint'][:8]}…); restore it, or run the recipe in another directory"
        )
    arrays = {name.partition("/"): values for name, values in last.arrays.items()}
    return EarlierChains(found, {n: v for (kind, _, n), v in arrays.items() if kind == STATE})


def has_checkpoint(directory: Path | None) -> bool:
    """Whether chains were saved in the directory of a run."""
    if directory is None:
        return False
    folder = directory / CHECKPOINT_FOLDER
    return any((folder / name).is_file() for name in CHECKPOINT_SLOTS)
