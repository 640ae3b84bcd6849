"""Results of a run or a sweep in memory, of whatever a test needs."""

from pathlib import Path

import xarray as xr

from sampler.analysis.comparison import ComparedRun
from sampler.analysis.results import RunResults
from sampler.analysis.sweeps import SweepResults
from sampler.analysis.verdict import Verdict

UNKNOWN = Verdict("neutral", "Nothing is known.")


def held(
    theory: xr.Dataset | None = None, draws: dict[str, xr.Dataset] | None = None, **compared: object
) -> RunResults:
    """draws: group → its variables; further keywords: what is compared, by its key."""
    return RunResults.held(
        None,
        theory=theory,
        draws=draws and xr.DataTree.from_dict(draws),
        comparison=ComparedRun(None, {}, compared, {}, UNKNOWN) if compared else None,
    )


def held_sweep(**known: object) -> SweepResults:
    """A sweep without runs: keywords are its properties."""
    sweep = SweepResults(Path())
    vars(sweep).update({"runs": []} | known)
    return sweep
