"""The NumPyro kernel of a sampling job."""

from collections.abc import Callable
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
        blocks = [names for names, values in space.inverse_mass_matrix.items() if values.ndim == 2]
        common |= {
            "dense_mass": blocks or False,
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
        if space.start is None:
            return for_every_chain(
                lambda key: kernel.init(key, settings.warmup, None, arguments), keys
            )
        positions = jax.vmap(space.start)(jax.random.split(start_key, settings.chains))
        return for_every_chain(
            lambda key, position: kernel.init(key, settings.warmup, position, arguments),
            keys,
            positions,
        )

    # One compilation instead of one for each of some four hundred operations.
    return jax.jit(start)(jax.random.key(settings.seed), space.arguments)


def for_every_chain(of_one_chain: Callable, *by_chain):
    """The results for all chains: one after the other on a processor, together elsewhere.

    Together, every step of a trajectory copies the trees of all chains, and the longest tree keeps
    all waiting: on a processor that costs several times more than the gradients of wide networks.
    """
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda arguments: of_one_chain(*arguments), by_chain)
    return jax.vmap(of_one_chain)(*by_chain)
