"""Attention that was sampled: what the heads of a posterior attend to."""

from pathlib import Path
from typing import TYPE_CHECKING

from sampler.api.keywords import in_python
from sampler.api.runs import Run
from sampler.runtime import use_one_blas_thread
from sampler.storage.directory import find_directory

if TYPE_CHECKING:
    import xarray as xr

    from sampler.analysis.sampled_heads import SampledHeads


@in_python
def attention_found(draws: "xr.DataTree | Run | str | Path") -> "SampledHeads":
    """Return what learned heads attend to: numbers with their errors, matrices, U₁, predictor.

    draws  what `sample` returns, a run, or its directory

    Heads are in matched order, so that a mean over draws means something where heads can be
    exchanged. `to_dataframe()` has, of every head, entropy, distances and overlaps, each beside
    what it is a priori. Raises InputError where no attention was sampled.
    """
    use_one_blas_thread()
    from sampler.analysis.sampled_heads import SampledHeads

    if isinstance(draws, str | Path):
        draws = Run(find_directory(Path(draws)))
    return SampledHeads.of(draws.draws if isinstance(draws, Run) else draws)
