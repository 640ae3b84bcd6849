"""The slowest numbers of a run: the subject of figures of chains."""

import numpy as np
import xarray as xr

from sampler.analysis.draws import PREDICTIONS
from sampler.analysis.results import RunResults
from sampler.mcmc.convergence import bulk_ess

# Of less than this, neither an autocorrelation nor an effective sample size means anything.
FEWEST_DRAWS = 20


def slowest_series(run: RunResults) -> dict[str, np.ndarray]:
    """Label → [chain, draw] of numbers that mean the same in every space that is sampled.

    The log posterior, and of predictor and U_1 the element with the smallest bulk effective sample
    size of all, as far as all their draws were kept and can be judged.
    """
    series = {}
    density = run.drawn("lp", "sample_stats")
    if density is not None:
        series["log posterior"] = np.asarray(density.values, np.float64)
    predictors = (run.drawn(name, PREDICTIONS) for name in ("predictor_mean", "predictor"))
    of_predictor = next((draws for draws in predictors if draws is not None), None)
    if run.drawn_attribute("thinned", PREDICTIONS) is not None:
        of_predictor = None
    for label, draws in (("predictor", of_predictor), ("$U_1$", run.order_parameter_draws)):
        if draws is not None:
            series |= slowest_element(label, draws)
    return {label: values for label, values in series.items() if usable(values)}


def usable(values: np.ndarray) -> bool:
    """Whether every chain is long enough, finite and moving."""
    moves = np.isfinite(values).all() and (values.std(axis=1) > 0).all()
    return bool(values.shape[1] >= FEWEST_DRAWS and moves)


def slowest_element(name: str, draws: xr.DataArray) -> dict[str, np.ndarray]:
    """Label → [chain, draw] of the element with the smallest bulk ESS; empty if none can be judged.

    draws: [chain, draw, …], all of whose elements are searched.
    """
    shape = draws.shape[2:]
    values = np.asarray(draws.values, np.float64).reshape(*draws.shape[:2], -1)
    judged = values.shape[1] >= FEWEST_DRAWS and np.isfinite(values).all(axis=(0, 1))
    judged = judged & (values.std(axis=1) > 0).all(axis=0)
    if not judged.any():
        return {}
    sizes = np.where(judged, bulk_ess(values), np.nan)
    slowest = int(np.nanargmin(sizes))
    at = np.unravel_index(slowest, shape)
    return {f"{name} [{', '.join(str(int(i)) for i in at)}]": values[..., slowest]}
