"""Where results came from: recipe, versions, devices, seeds and timings (`manifest.json`)."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jax

from sampler.jobs.recipe import Recipe
from sampler.jobs.storage import read_json, write_json

MANIFEST_FILE = "manifest.json"
SCHEMA_VERSION = 1
PACKAGES = (
    "attention-posterior", "jax", "jaxlib", "numpyro", "numpy", "scipy", "xarray",
    "arviz-base", "arviz-stats",
)  # fmt: skip


def write_manifest(directory: Path, recipe: Recipe, seconds: dict[str, float]) -> None:
    """Write or update `manifest.json`; timings of earlier stages are kept."""
    path = directory / MANIFEST_FILE
    earlier = read_json(path).get("seconds", {}) if path.is_file() else {}
    write_json(
        path,
        {
            "schema_version": SCHEMA_VERSION,
            "name": recipe.name,
            "recipe_hash": recipe.hash8,
            "seeds": {
                "task": recipe.task.model_dump(include={"seed", "head_seed"}),
                "theory": recipe.theory.seed,
                "sampler": recipe.sampler.seed,
            },
            "python": sys.version.split()[0],
            "platform": platform.platform(),
            "versions": {name: installed(name) for name in PACKAGES},
            "devices": [f"{device.platform}:{device.device_kind}" for device in jax.devices()],
            "precision": recipe.sampler.precision,
            "seconds": earlier | seconds,
        },
    )


def installed(package: str) -> str | None:
    """Version of an installed package, None where it is not installed as one."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
