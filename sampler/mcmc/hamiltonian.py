"""Hamiltonian Monte Carlo: NUTS and fixed trajectories by NumPyro, and those about a Gaussian.

NUTS and HMC are NumPyro's, on the NumPyro model of the space. Free of JAX until chains are made;
those about a Gaussian are in `sampler.mcmc.split_hmc`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sampler.mcmc.algorithm import (
    Algorithm,
    Chain,
    ChainSettings,
    Judgement,
    lost_points_text,
)
from sampler.mcmc.chain_algorithm import ChainAlgorithm

BFMI_LIMIT = 0.3
DIVERGENCE_LIMIT = 0.001
# Of the step size. A posterior as stiff as K + 𝒯 1 can be in double precision takes steps of 1e-8.
SMALLEST_STEP = 1e-10
REMEDY_OF_ROUNDING = (
    "raise the temperature, or leave out examples that repeat others: K + temperature is singular "
    "to rounding"
)
# Whitened chains need few steps; while the step size is still found, a far too small one must not
# cost a tree of full depth.
WHITENED_WARMUP_DEPTH = 5


@dataclass(frozen=True)
class Hamiltonian(ChainAlgorithm):
    """Base of all Hamiltonian algorithms: statistics, masses, and their verdict.

    target_acceptance  acceptance probability the step size adapts to
    """

    target_acceptance: float

    statistics: ClassVar[Mapping[str, str]] = {
        **Algorithm.statistics,
        "energy": "Hamiltonian",
        "acceptance_rate": "mean acceptance probability of the trajectory",
        "diverging": "whether a trajectory of the draw diverged",
        "n_steps": "leapfrog steps of the draw",
        "trajectory_steps": "leapfrog steps of the last trajectory",
        "step_size": "leapfrog step size",
    }
    summed: ClassVar[tuple[str, ...]] = ("n_steps", "diverging")
    gradients: ClassVar[str | None] = "n_steps"
    remedy_if_frozen: ClassVar[str] = "raise `target_acceptance` or `warmup`"

    def kernel(self, model, common: dict[str, Any], whitened: bool):
        """A kernel of NumPyro; one object per compiled function, since it keeps traced state."""
        raise NotImplementedError

    def chain(self, space, settings: ChainSettings) -> Chain:
        return NumPyroChain(self, settings.warmup)

    def kernel_for(self, space):
        """The kernel on the model of a space, with the masses of its mode if known."""
        from sampler.posterior.space import chain_model

        common: dict[str, Any] = {"target_accept_prob": self.target_acceptance}
        whitened = space.mode is not None
        if whitened:
            gaussian, sites = space.mode.gaussian, tuple(space.shapes)
            common |= {
                "dense_mass": [sites] if gaussian.is_dense else False,
                "inverse_mass_matrix": {sites: gaussian.covariance},
                "adapt_mass_matrix": False,
            }
        return self.kernel(chain_model, common, whitened)

    def judge(self, statistics: Mapping[str, np.ndarray]) -> Judgement:
        """Judge BFMI and divergences (at most 0.1 % of the draws); report the cost of a draw."""
        reasons, remarks, remedy = [], [], ""
        bfmi, step = bfmi_of(statistics["energy"]), float(np.min(statistics["step_size"]))
        if step < SMALLEST_STEP and np.isfinite(statistics["lp"]).all():
            remedy = REMEDY_OF_ROUNDING
            reasons.append(
                f"step size {step:.0e} (limit {SMALLEST_STEP:g}): no step is short enough, as "
                f"rounding makes the density rough; {remedy}"
            )
        elif bfmi and min(bfmi) < BFMI_LIMIT:
            reasons.append(
                f"BFMI {min(bfmi):.2f} is below {BFMI_LIMIT}: energies are explored too slowly; "
                "raise `warmup`"
            )
        draws, divergences = statistics["diverging"].size, int(statistics["diverging"].sum())
        text = f"{divergences} of {draws} draws diverged"
        if divergences > DIVERGENCE_LIMIT * draws:
            limit = f"{text} (limit {DIVERGENCE_LIMIT:.1%})"
            reasons.append(f"{limit}; raise `target_acceptance` or `warmup`")
        elif divergences:
            remarks.append(text)
        steps = statistics["n_steps"].astype(float)
        numbers = {
            "bfmi": bfmi,
            "divergences": divergences,
            "saturated_share": 0.0,
            "leapfrog_steps_per_draw": float(steps.mean()),
            "sync_efficiency": float(steps.mean() / steps.max(axis=0).mean()),
        }
        return Judgement(tuple(reasons), tuple(remarks), numbers, remedy=remedy)

    def describe(self, statistics: Mapping[str, np.ndarray], totals: Mapping[str, float]) -> str:
        """Describe step size, acceptance, divergences and steps."""
        return (
            f"step size {np.mean(statistics['step_size'][:, -1]):.3g}, "
            f"acceptance {np.mean(statistics['acceptance_rate']):.2f}, "
            f"{totals['diverging']:.0f} divergences, "
            f"{np.mean(statistics['n_steps']):.0f} leapfrog steps per draw"
        )


@dataclass(frozen=True)
class Nuts(Hamiltonian):
    """The no-U-turn sampler: the length of the trajectory is chosen at every draw.

    max_tree_depth  trajectories have at most 2^depth − 1 leapfrog steps
    """

    max_tree_depth: int

    statistics: ClassVar[Mapping[str, str]] = {
        **Hamiltonian.statistics,
        "tree_depth": "depth of the tree of the last trajectory",
    }

    def kernel(self, model, common: dict[str, Any], whitened: bool):
        from numpyro import infer

        depth = self.max_tree_depth
        limits = (min(depth, WHITENED_WARMUP_DEPTH), depth) if whitened else depth
        return infer.NUTS(model, max_tree_depth=limits, **common)

    def judge(self, statistics: Mapping[str, np.ndarray]) -> Judgement:
        """Judge as every Hamiltonian does, and remark on trajectories that were cut."""
        judgement = super().judge(statistics)
        longest = 2**self.max_tree_depth - 1
        saturated = float(np.mean(statistics["trajectory_steps"] >= longest))
        remark = (
            f"{saturated:.0%} of draws reached the maximal tree depth {self.max_tree_depth}: lost "
            "efficiency, not an error"
        )
        remarks = (*judgement.remarks, remark) if saturated else judgement.remarks
        numbers = {**judgement.numbers, "saturated_share": saturated}
        return replace(judgement, remarks=remarks, numbers=numbers)

    @classmethod
    def stored(cls, statistics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the statistics, with the depth of the tree of every draw."""
        depth = np.ceil(np.log2(statistics["trajectory_steps"] + 1)).astype(int)
        return {**statistics, "tree_depth": depth}


@dataclass(frozen=True)
class StaticHmc(Hamiltonian):
    """Hamiltonian Monte Carlo by trajectories of `leapfrog_steps` steps each."""

    leapfrog_steps: int

    def kernel(self, model, common: dict[str, Any], whitened: bool):
        from numpyro import infer

        return infer.HMC(model, num_steps=self.leapfrog_steps, trajectory_length=None, **common)


@dataclass(frozen=True)
class SplitHmc(Hamiltonian):
    """Hamiltonian Monte Carlo about a Gaussian: chains advance together, by one random length.

    max_steps  most steps of a trajectory
    """

    max_steps: int = 1023

    statistics: ClassVar[Mapping[str, str]] = {
        **Hamiltonian.statistics,
        "lost": "whether a trajectory of the draw ended where the density is not a number",
    }
    summed: ClassVar[tuple[str, ...]] = (*Hamiltonian.summed, "lost")

    def judge(self, statistics: Mapping[str, np.ndarray]) -> Judgement:
        """Judge as every Hamiltonian does, and trajectories to points without a density."""
        judgement, draws = super().judge(statistics), statistics["lp"].size
        lost = int(np.sum(statistics.get("lost", 0)))  # missing in files of earlier versions
        text = lost_points_text(lost, f"ends of the trajectories of {draws} draws")
        reasons, remarks = judgement.reasons, judgement.remarks
        if lost > DIVERGENCE_LIMIT * draws:
            reasons = (*reasons, text)
        elif lost:
            remarks = (*remarks, text)
        numbers = {**judgement.numbers, "lost_points": lost}
        return replace(judgement, reasons=reasons, remarks=remarks, numbers=numbers)

    def suited(self, space):
        """The space with gradients in single precision, where that pays."""
        from sampler.mcmc.split_hmc import suited

        return suited(space)

    def chain(self, space, settings: ChainSettings) -> Chain:
        from sampler.mcmc.split_hmc import SplitChain

        return SplitChain(settings.chains, settings.warmup, self.target_acceptance, self.max_steps)


@dataclass(frozen=True)
class NumPyroChain(Chain):
    """One chain of a NumPyro kernel, which adapts in the first `warmup` steps."""

    algorithm: Hamiltonian
    warmup: int

    def init(self, key, point, space):
        """State of NumPyro's kernel at a first point."""
        return self.begin(key, space.unflatten(point), space)[1]

    def begin(self, key, position, space):
        """Return a kernel, which is complete only when it has made a state, and that state."""
        kernel = self.algorithm.kernel_for(space)
        return kernel, kernel.init(key, self.warmup, position, (space,))

    def step(self, state, space):
        # Nothing is computed for the state that is left here: no result depends on it.
        kernel, _ = self.begin(state.rng_key, state.z, space)
        state = kernel.sample(state, (space,), {})
        return state, {
            "lp": -state.potential_energy,
            "energy": state.energy,
            "acceptance_rate": state.accept_prob,
            "diverging": state.diverging,
            "n_steps": state.num_steps,
            "trajectory_steps": state.num_steps,
            "step_size": state.adapt_state.step_size,
        }

    def point(self, state, space):
        """The point in a state of the kernel."""
        return space.flatten(state.z)


def bfmi_of(energy: np.ndarray) -> tuple[float, ...]:
    """Σ (E_t − E_{t−1})² / Σ (E_t − Ē)² of each chain; 0 where the energy never changes.

    Empty for a single draw.
    """
    energy = np.asarray(energy, dtype=np.float64)
    if energy.shape[1] < 2:
        return ()
    changes = np.sum(np.diff(energy, axis=1) ** 2, axis=1)
    spread = np.sum((energy - energy.mean(axis=1, keepdims=True)) ** 2, axis=1)
    return tuple(np.divide(changes, spread, out=np.zeros(len(energy)), where=spread > 0).tolist())
