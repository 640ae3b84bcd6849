"""Settings of one sampling job, validated once."""

from dataclasses import dataclass
from typing import Literal


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
