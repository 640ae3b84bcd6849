"""Draws from the posterior, by whatever algorithm, and the results stored with them."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import xarray as xr

from sampler.analysis.cross_validation import leave_one_out_table
from sampler.analysis.draws import EXCHANGEABLE, is_judged
from sampler.analysis.draws_table import draws_tree
from sampler.analysis.learned_heads import kept_logits
from sampler.attention.learned import LOGITS
from sampler.errors import InputError, OutOfTimeError
from sampler.jobs.keeper import DrawKeeper
from sampler.jobs.progress import Progress, SamplingProgress
from sampler.mcmc.algorithm import (
    BRIDGED_DRAWS,
    Algorithm,
    ChainSettings,
    Chunk,
    Evidence,
    SnapshotMismatch,
    algorithm_named,
)
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.hamiltonian import SMALLEST_STEP
from sampler.mcmc.marginal_likelihood import evidence_beside
from sampler.mcmc.space_checks import fixed_by, roughness_attributes, shift_in_single_precision
from sampler.mcmc.stopping import rule_for
from sampler.posterior.order_parameters import stored_sites
from sampler.posterior.space import Space
from sampler.posterior.spaces import ORDER_PARAMETERS
from sampler.posterior.weights_from_order_parameters import WeightDraws, draw_weights_back
from sampler.presentation.terminal import print_line
from sampler.problem import AnyProblem, Problem
from sampler.runtime import jax_settings
from sampler.settings.sampler import SINGLE, Sampler
from sampler.storage.directory import LOG
from sampler.token_problem import LearnedProblem, TokenProblem


def draw_posterior(
    problem: AnyProblem,
    settings: Sampler,
    keeper: DrawKeeper | None = None,
    show: bool = True,
) -> xr.DataTree:
    """Draw from the posterior in the space, by the algorithm and in the precision that are named.

    Draws continue from the checkpoint that the keeper finds, if there is one; `show` controls
    whether progress is shown.
    """
    keeper = DrawKeeper() if keeper is None else keeper
    started, name = time.perf_counter(), settings.algorithm
    algorithm = algorithm_named(name, settings.values_for(name))
    observed = weights_observed(problem, settings.space, settings.weight_draws)
    collected = DrawCollector(weights=observed, weight_draws=settings.weight_draws)
    with jax_settings(settings.precision):
        space = problem.space(settings.space, settings.precision, collected.weights)
        collected.fixed = cache(partial(fixed_by, space, settings.seed))
        if space.mode is not None and not space.mode.converged:
            print_and_log(space.mode.explain(), show)
        space = algorithm.suited(space)
        ended = collect_draws(problem, algorithm, space, settings, collected, keeper, show)
        found = found_beside(problem, algorithm, space, settings, collected, show)
        weights = weights_of_draws(problem, settings, collected)
        fixed = collected.fixed() if collected.stands_still else {}
    attributes = {
        **algorithm.settings,
        "space": settings.space,
        "algorithm": name,
        "gradient_dtype": space.gradient_dtype,
        **mode_attributes(space),
        "draws_per_chain": collected.draws_made,
        "ended_by": ended,
        "seconds": time.perf_counter() - started + keeper.seconds_before,
        "seconds_warmup": collected.seconds["warmup"],
        "seconds_draws": collected.seconds["draws"],
        "gradients": collected.total(algorithm.gradients),
        **found,
        **({EXCHANGEABLE: 1} if has_exchangeable_heads(problem) else {}),
    }
    left_out = leave_one_out_table(problem, collected, settings.space)
    prior = draws_without_data(problem, settings)
    return draws_tree(problem, collected, attributes, weights, prior, left_out, fixed)


def has_exchangeable_heads(problem: AnyProblem) -> bool:
    """Whether chains may differ by an exchange of heads."""
    return isinstance(problem, LearnedProblem) and problem.exchangeable


def collect_draws(
    problem: AnyProblem,
    algorithm: Algorithm,
    space: Space,
    settings: Sampler,
    collected: DrawCollector,
    keeper: DrawKeeper,
    show: bool,
) -> str:
    """Collect all draws, from the keeper's checkpoint → the reason to stop."""
    rule, chains = None, chain_settings(settings)
    if settings.until == "trusted":
        judged = partial(is_judged, exchangeable=has_exchangeable_heads(problem))
        arguments = settings.max_minutes, judged, settings.weight_draws
        rule = rule_for(algorithm, collected, chains, *arguments)
        chains = replace(chains, next_end=rule.next_end)
    listeners = [] if rule is None else [rule]
    if settings.precision == SINGLE:
        listeners.append(PrecisionCheck(space, partial(problem.space, settings.space)))
    with Progress() if show else nullcontext() as progress:
        if progress is not None:
            progress.wait("compiling")
            steps = chains.end("draws", 0, chains.draws) * settings.thinning
            listeners.append(SamplingProgress(progress, algorithm, steps, rule))
        earlier, place = keeper.go_on(collected, rule), None

        def on_chunk(chunk: Chunk) -> None:
            nonlocal place
            place = chunk.place
            for listen in (collected, *listeners, keeper):
                listen(chunk)

        try:
            algorithm.draw(space, chains, on_chunk, earlier)
        except SnapshotMismatch as misfit:
            raise keeper.checkpoints.unfit(misfit) from None
    if rule is None:
        return "draws"
    if not rule.has_enough:
        raise OutOfTimeError(
            f"sampler.max_minutes = {settings.max_minutes:g}: over at {place}, with too few "
            "draws; everything is saved: resume it for as many minutes again, or raise them"
        )
    print_and_log(rule.explain(), show)
    return rule.ended or "draws"


def chain_settings(settings: Sampler) -> ChainSettings:
    """The draws that the recipe asks for, as an algorithm takes it."""
    return ChainSettings(
        chains=settings.chain_count,
        warmup=settings.warmup_steps,
        draws=settings.most_draws,
        thinning=settings.thinning,
        seed=settings.seed,
    )


def print_and_log(text: str, show: bool) -> None:
    LOG.info(text)
    if show:
        print_line(text)


def found_beside(
    problem: AnyProblem,
    algorithm: Algorithm,
    space: Space,
    settings: Sampler,
    collected: DrawCollector,
    show: bool,
) -> dict[str, Any]:
    """Results besides the draws: of the density, and the evidence."""
    found, evidence = {}, algorithm.evidence(collected.statistics)
    if np.min(collected.statistics.get("step_size", np.inf)) < SMALLEST_STEP:
        found = roughness_attributes(space, settings.seed)
    if evidence is None and settings.evidence:
        evidence = evidence_of_chains(problem, space, settings, collected, show)
    if evidence is None:
        return found
    print_and_log(evidence.text, show)
    return found | evidence.attributes


# Draws at which ln p is computed in both precisions, and by how much it may differ.
CHECKED_DRAWS, LARGEST_SHIFT = 5, 0.01


@dataclass
class PrecisionCheck:
    """Refuses chains in single precision whose ln p rounding moves; call it with every chunk.

    The first draws are looked at, before the others are made.

    double  makes the space in double precision
    """

    space: Space
    double: Callable[[], Space]
    checked: int = 0

    def __call__(self, chunk: Chunk) -> None:
        left = CHECKED_DRAWS - self.checked
        if chunk.points is None or left <= 0:
            return
        points = np.swapaxes(chunk.points, 0, 1).reshape(-1, self.space.size)[:left]
        self.checked += len(points)
        shift = shift_in_single_precision(self.space, self.double, points)
        if not shift <= LARGEST_SHIFT:
            remedy = f'rounding moves ln p by {shift:.2g} at draws (limit {LARGEST_SHIFT:g}); use "'
            raise InputError("sampler.precision", SINGLE, f'{remedy}float64"')


# --- results stored with the draws


def mode_attributes(space: Space) -> dict[str, Any]:
    """The search for the mode by which chains are whitened; empty without a mode."""
    if space.mode is None:
        return {}
    return {"mode_converged": int(space.mode.converged), "mode_search": space.mode.explain()}


def weights_observed(problem: AnyProblem, space: str, draws: int) -> tuple[str, ...]:
    """Names of the weights that draws have where these are asked for and sampled themselves.

    Without logit weights, which are always kept.
    """
    if not draws or space == ORDER_PARAMETERS:
        return ()
    network = problem.network if isinstance(problem, TokenProblem) else problem.architecture
    return tuple(name for name in network.weight_shapes if not name.startswith(LOGITS))


def weights_of_draws(
    problem: AnyProblem, settings: Sampler, collected: DrawCollector
) -> WeightDraws | None:
    """Weights of evenly spaced draws of each chain, as many as are asked for, or of all.

    They are those of the draws themselves, or drawn back from order parameters.
    """
    count = collected.weight_draws
    if not count:
        return None
    if collected.weights:
        some = {name: collected.thinned[name] for name in collected.weights}
        numbers = some[collected.weights[0]].draws
        count = min(count, len(numbers))
        chosen = np.arange(1, count + 1) * len(numbers) // count - 1
        weights = {name: kept.values[:, chosen] for name, kept in some.items()}
        return WeightDraws(weights, numbers[chosen])
    sites, numbers = (
        stored_sites(collected.draws, problem.temperature),
        np.arange(collected.draws_made),
    )
    if isinstance(problem, LearnedProblem):
        logits, numbers = kept_logits(collected, [name for name, _ in problem.sites])
        sites = {name: values[:, numbers] for name, values in sites.items()} | logits
    space = problem.space(ORDER_PARAMETERS, whitened=False)
    count = min(count, len(numbers))
    drawn = draw_weights_back(space, problem.architecture, sites, count, settings.seed)
    return replace(drawn, draws=numbers[drawn.draws])


# Draws without data that are stored, or fewer where their labels would take more than this.
PRIOR_DRAWS, PRIOR_BYTES = 1000, 8 * 2**20


def draws_without_data(problem: AnyProblem, settings: Sampler) -> dict[str, np.ndarray]:
    """Prior draws of the sampled variables and of the training labels."""
    training = problem.training_examples
    numbers = 1 if training is None else training[1].size
    count = int(np.clip(PRIOR_BYTES // (4 * numbers), 1, PRIOR_DRAWS))
    with jax_settings():
        return problem.prior_draws(count, settings.seed, settings.space)


def evidence_of_chains(
    problem: Problem,
    space: Space,
    settings: Sampler,
    collected: DrawCollector,
    show: bool,
) -> Evidence | None:
    """ln p(y) for chains; none of a few draws, where a limit of minutes ended them."""
    if collected.draws_made < BRIDGED_DRAWS:
        needed = f"the evidence needs at least {BRIDGED_DRAWS} draws of each chain"
        print_and_log(f"{needed}; there are {collected.draws_made}", show)
        return None
    sites = stored_sites(collected.draws, problem.temperature)
    points = np.concatenate([sites[name] for name in space.shapes], axis=2)
    return evidence_beside(space, points, settings.seed)
