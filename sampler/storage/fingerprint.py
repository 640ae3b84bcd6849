"""Settings and data that determine the draws, and their fingerprint in every file."""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sampler import __version__
from sampler.storage.files import SCHEMA_VERSION, check_schema, read_stored

# Attribute of a result file, and key in the header of a checkpoint.
FINGERPRINT = "fingerprint"


def determining(settings: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """Return the determinants of the draws, as JSON: settings, identity of the data, versions.

    settings: `settings_that_fix_draws` of the recipe; data: None where those of parts differ.
    """
    return {
        "settings": settings,
        "data": data,
        "package major version": __version__.split(".")[0],
        "schema_version": SCHEMA_VERSION,
    }


def differences(stored: Mapping, current: Mapping) -> list[str]:
    """Return the differences, `key (then → now)`; empty where one can continue the other."""
    pairs = [(stored.get("settings", {}), current.get("settings", {})), (stored, current)]
    changes = [
        f"{key} ({then.get(key)} → {now.get(key)})"
        for then, now in pairs
        for key in sorted({*then, *now} - {"settings", "data"})
        if then.get(key) != now.get(key)
    ]
    of_data = ("task.", "attention.", "network.heads")
    explained = any(change.startswith(of_data) for change in changes)
    if not explained and not agree(sums_of(stored.get("data")), sums_of(current.get("data"))):
        changes.append("the data")
    return changes


def sums_of(data: Any) -> Any:
    """Identification of data: their sums; those of a training have a checksum alone."""
    return data["sums"] if isinstance(data, Mapping) else data


def agree(value: Any, other: Any) -> bool:
    """Whether two nested lists are equal, their numbers to eleven digits."""
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(agree, value, other))
    if isinstance(value, float) and isinstance(other, float):
        return math.isclose(value, other, rel_tol=1e-11)
    return value == other


# --- in files


def stamp(determined: Mapping, **more: Any) -> dict[str, Any]:
    """Fingerprint in a file: a checksum of settings and versions, the sums of the data, and more.

    A processor rounds last digits of data as another one does not: these have no checksum.
    """
    exact = {key: value for key, value in determined.items() if key != "data"}
    checksum = hashlib.sha256(json.dumps(exact, sort_keys=True).encode()).hexdigest()
    return {"settings": checksum, "data": sums_of(determined.get("data")), **more}


def carries(stamped: Mapping, determined: Mapping) -> bool:
    """Whether a file was made of this; data that are None are not compared."""
    expected = stamp(determined)
    same_data = expected["data"] is None or agree(stamped.get("data"), expected["data"])
    return stamped.get("settings") == expected["settings"] and same_data


def read_attributes(path: Path, group: str = "/") -> dict[str, Any]:
    """Attributes of a group of a result file; none without the file or the group.

    Raises InputError for a file that is damaged or of another schema.
    """
    if not path.is_file():
        return {}
    import h5py  # and not xarray, which takes a second

    def load(path: Path) -> dict[str, Any]:
        with path.open("rb") as content, h5py.File(content, "r") as file:
            check_schema(as_python(file.attrs.get("schema_version")), str(path))
            stored = file[group].attrs.items() if group in file else ()
            return {name: as_python(value) for name, value in stored}

    return read_stored(path, "run", load)


def as_python(value: Any) -> Any:
    """An attribute in Python's types: one number is not a list."""
    if not hasattr(value, "tolist"):
        return value
    return value.item() if value.size == 1 else value.tolist()


def read_stamp(path: Path) -> dict[str, Any]:
    """The stamp of a result file; empty without the file or without a stamp."""
    return json.loads(read_attributes(path).get(FINGERPRINT, "{}"))
