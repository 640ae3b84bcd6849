"""Temperature and prior variances that were sampled, beside the values they were centred on."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from sampler.analysis.estimate import mean_of
from sampler.posterior.hyper_parameters import OBSERVED


def hyper_parameter_comparison(tree: xr.DataTree) -> dict[str, Mapping] | None:
    """The part `hyper_parameters` of `comparison.json`; None where all of them were known.

    For the temperature, and for the variances `of` each array of weights: `prior_median` (where the
    theory is solved), posterior mean `sampled` with its `mcse`, and `standard_deviation`.
    """
    posterior, constants = tree["posterior"].to_dataset(), tree["constant_data"].to_dataset()
    found = {}
    for name in OBSERVED:
        if name in posterior:
            draws = posterior[name].values
            estimate = mean_of(draws)
            found[name] = {
                "prior_median": np.asarray(constants[name].values, dtype=np.float64),
                "sampled": estimate.value,
                "mcse": estimate.mcse,
                "standard_deviation": draws.std(axis=(0, 1), ddof=1),
            }
    if "prior_variances" in found:
        found["prior_variances"]["of"] = [str(n) for n in posterior["weights"].values]
    return found or None
