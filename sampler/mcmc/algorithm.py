"""How chains are run, and the kernel that advances them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
from numpyro.infer import HMC, NUTS, init_to_sample

from sampler.posterior.density import Density


@dataclass(frozen=True)
class ChainSettings:
    """How chains are run.

    algorithm          "nuts" (trajectory length chosen at every draw) or "hmc" (static)
    chains             independent chains, advanced side by side
    warmup             steps in which step size and mass matrix adapt; not kept
    draws              kept draws of each chain
    thinning           transitions per kept draw
    seed               one seed fixes every chain
    leapfrog_steps     steps of each static trajectory (hmc)
    max_tree_depth     NUTS trajectories have at most 2^depth − 1 leapfrog steps
    target_acceptance  acceptance probability the step size adapts to
    """

    algorithm: Literal["nuts", "hmc"] = "nuts"
    chains: int = 4
    warmup: int = 500
    draws: int = 1000
    thinning: int = 1
    seed: int = 0
    leapfrog_steps: int = 64
    max_tree_depth: int = 10
    target_acceptance: float = 0.8

    def __post_init__(self) -> None:
        if self.algorithm not in ("nuts", "hmc"):
            raise ValueError(f"algorithm = {self.algorithm!r}: must be 'nuts' or 'hmc'")
        for name in ("chains", "draws", "thinning", "leapfrog_steps", "max_tree_depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least 1")
        if self.warmup < 0:
            raise ValueError(f"warmup = {self.warmup}: must not be negative")
        if not 0 < self.target_acceptance < 1:
            raise ValueError(
                f"target_acceptance = {self.target_acceptance}: must lie between 0 and 1"
            )


WHITENED_WARMUP_DEPTH = 5


def make_kernel(density: Density, settings: ChainSettings) -> HMC:
    """A fresh NUTS or static-HMC kernel; one object per run, since it keeps compiled state."""
    common: dict[str, Any] = {
        "target_accept_prob": settings.target_acceptance,
        "init_strategy": init_to_sample(),
    }
    if density.mode is not None:
        masses = density.mode.inverse_mass_matrix
        blocks = [names for names, values in masses.items() if values.ndim == 2]
        common |= {
            "dense_mass": blocks or False,
            "inverse_mass_matrix": masses,
            "adapt_mass_matrix": False,
        }
    if settings.algorithm == "nuts":
        depth = settings.max_tree_depth
        if density.mode is not None:
            # Whitened chains need few steps; while the step size is still found, a far too small
            # one must not cost a tree of full depth.
            depth = (min(depth, WHITENED_WARMUP_DEPTH), depth)
        return NUTS(density.model, max_tree_depth=depth, **common)
    return HMC(density.model, num_steps=settings.leapfrog_steps, trajectory_length=None, **common)


def start_chains(kernel: HMC, density: Density, settings: ChainSettings):
    """State of all chains before the first step, stacked along a leading chain axis."""

    def start(key, arguments):
        chain_key, start_key = jax.random.split(key)
        keys = jax.random.split(chain_key, settings.chains)
        if density.mode is None:
            return for_every_chain(
                lambda key: kernel.init(key, settings.warmup, None, arguments), keys
            )
        positions = jax.vmap(density.start)(jax.random.split(start_key, settings.chains))
        return for_every_chain(
            lambda key, position: kernel.init(key, settings.warmup, position, arguments),
            keys,
            positions,
        )

    # One compilation instead of one for each of some four hundred operations.
    return jax.jit(start)(jax.random.key(settings.seed), density.arguments)


def for_every_chain(of_one_chain: Callable, *by_chain):
    """The results for all chains: one after the other on a processor, together elsewhere.

    Together, every step of a trajectory copies the trees of all chains, and the longest tree keeps
    all waiting: on a processor that costs several times more than the gradients of wide networks.
    """
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda arguments: of_one_chain(*arguments), by_chain)
    return jax.vmap(of_one_chain)(*by_chain)
