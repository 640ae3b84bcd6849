"""The NumPyro kernel of a sampling job."""

from typing import Any

import jax
from numpyro.infer import HMC, NUTS, init_to_sample

from sampler.mcmc.settings import ChainSettings
from sampler.posterior.space import SampledSpace

WHITENED_WARMUP_DEPTH = 5


def make_kernel(space: SampledSpace, settings: ChainSettings) -> HMC:
    """A fresh NUTS or static-HMC kernel; one object per run, since it keeps compiled state."""
    common: dict[str, Any] = {
        "target_accept_prob": settings.target_acceptance,
        "init_strategy": init_to_sample(),
    }
    if space.inverse_mass_matrix is not None:
        common |= {
            "dense_mass": list(space.inverse_mass_matrix),
            "inverse_mass_matrix": dict(space.inverse_mass_matrix),
            "adapt_mass_matrix": False,
        }
    if settings.algorithm == "nuts":
        depth = settings.max_tree_depth
        if space.inverse_mass_matrix is not None:
            # Whitened chains need few steps; while the step size is still found, a far too small
            # one must not cost a tree of full depth.
            depth = (min(depth, WHITENED_WARMUP_DEPTH), depth)
        return NUTS(space.model, max_tree_depth=depth, **common)
    return HMC(space.model, num_steps=settings.leapfrog_steps, trajectory_length=None, **common)


def start_chains(kernel: HMC, space: SampledSpace, settings: ChainSettings):
    """State of all chains before the first step, stacked along a leading chain axis."""

    def start(key, arguments):
        chain_key, start_key = jax.random.split(key)
        keys = jax.random.split(chain_key, settings.chains)
        position = None
        if space.start is not None:
            position = jax.vmap(space.start)(jax.random.split(start_key, settings.chains))
        return kernel.init(keys, settings.warmup, position, arguments)

    # One compilation instead of one for each of some four hundred operations.
    return jax.jit(start)(jax.random.key(settings.seed), space.arguments)
