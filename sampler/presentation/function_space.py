"""The slowest numbers of a run in function space, draw by draw, for the figures of its chains."""

from dataclasses import dataclass
from pathlib import Path

import h5netcdf
import numpy as np
import xarray as xr
from arviz_stats.base import array_stats

from sampler.mcmc.diagnostics import AXES
from sampler.errors import InputError

# So many test values and elements of U_1, evenly spread, are searched for the slowest.
MOST_SEARCHED = 20
# Of less than this, neither an autocorrelation nor an effective sample size means anything.
FEWEST_DRAWS = 20


@dataclass(frozen=True)
class FunctionSpaceDraws:
    """Draws of numbers that mean the same in every space that is sampled.

    series: label → [chain, draw]: log posterior, and of predictor and U_1 the element with the
    smallest bulk effective sample size. energy: [chain, draw], None for independent draws.
    """

    series: dict[str, np.ndarray]
    energy: np.ndarray | None


def read_function_space(directory: Path) -> FunctionSpaceDraws | None:
    """Read `draws.nc`; None if it is absent, too short, or holds too little to diagnose."""
    file = directory / "draws.nc"
    if not file.is_file():
        return None
    try:
        with h5netcdf.File(file) as stored:
            groups = set(stored.groups)
        series: dict[str, np.ndarray] = {}
        energy = None
        if "sample_stats" in groups:
            with xr.open_dataset(file, group="sample_stats", engine="h5netcdf") as statistics:
                if "lp" in statistics:
                    series["log posterior"] = np.asarray(statistics["lp"].values, np.float64)
                energy = statistics["energy"].values if "energy" in statistics else None
        if "posterior" in groups:
            with xr.open_dataset(file, group="posterior", engine="h5netcdf") as posterior:
                predictor = "predictor_mean" if "predictor_mean" in posterior else "predictor"
                for label, name in (("predictor", predictor), ("$U_1$", "order_parameter")):
                    if name in posterior:
                        series |= slowest_element(label, posterior[name])
    except (OSError, ValueError, KeyError) as error:
        remedy = f"cannot be read ({error}); sample again"
        raise InputError("draws.nc", str(file), remedy) from error
    series = {label: values for label, values in series.items() if usable(values)}
    return FunctionSpaceDraws(series, energy) if series else None


def usable(values: np.ndarray) -> bool:
    """Whether every chain is long enough, finite and moving."""
    moves = np.isfinite(values).all() and (values.std(axis=1) > 0).all()
    return bool(values.shape[1] >= FEWEST_DRAWS and moves)


def slowest_element(name: str, draws: xr.DataArray) -> dict[str, np.ndarray]:
    """Label → [chain, draw] of the element with the smallest bulk ESS; empty if none can be judged.

    draws: [chain, draw, …], of which only the elements searched are read.
    """
    shape = draws.shape[2:]
    elements = int(np.prod(shape))
    searched = np.unique(np.linspace(0, elements - 1, min(elements, MOST_SEARCHED)).astype(int))
    found: dict[str, np.ndarray] = {}
    smallest = np.inf
    for place in searched:
        at = np.unravel_index(place, shape)
        index = dict(zip(draws.dims[2:], map(int, at), strict=True))
        values = np.asarray(draws.isel(index).values, np.float64)
        if not usable(values):
            continue
        ess = float(array_stats.ess(values, method="bulk", **AXES))
        if ess < smallest:
            smallest = ess
            found = {f"{name} [{', '.join(str(int(i)) for i in at)}]": values}
    return found
