"""The version of stored results, and what becomes of results of another one."""

from sampler.errors import InputError

# 1: theory.nc, draws.nc, comparison.json and manifest.json, without a version in the NetCDF files.
# 2: the version stands in every file; checkpoints, fingerprint and finished commands were added.
SCHEMA_VERSION = 2
READABLE = (1, 2)


def check_schema(version: object, file: str) -> None:
    """Raise InputError if this program cannot read results of this version; None stands for 1."""
    known = "1" if version is None else str(version)
    if known in map(str, READABLE):
        return
    newer = known.isdecimal() and int(known) > SCHEMA_VERSION
    remedy = "install a newer version of this program" if newer else "make it anew with `run`"
    raise InputError(
        file,
        f"schema_version {known}",
        f"this program reads versions {', '.join(map(str, READABLE))}; {remedy}",
    )
