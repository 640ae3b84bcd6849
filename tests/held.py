"""Results of a run in memory, of whatever a test needs."""

import xarray as xr

from sampler.analysis.comparison import ComparedRun
from sampler.analysis.results import RunResults


def held(
    theory: xr.Dataset | None = None, draws: dict[str, xr.Dataset] | None = None, **compared: object
) -> RunResults:
    """draws: group → its variables; further keywords: what is compared, by its key."""
    return RunResults.held(
        None,
        theory=theory,
        draws=draws and xr.DataTree.from_dict(draws),
        comparison=ComparedRun(None, {}, compared, {}, None) if compared else None,
    )
