"""Draws from the posterior: by chains, independent ones, or repetitions of particles."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from sampler.analysis.draws_table import EXCHANGEABLE, draws_tree, is_judged
from sampler.analysis.leave_one_out import leave_one_out_table
from sampler.analysis.matched_heads import kept_logits
from sampler.attention.learned import LOGITS
from sampler.errors import OutOfTimeError
from sampler.jobs.keeper import ChainKeeper
from sampler.jobs.progress import LOG, SamplingProgress
from sampler.jobs.repetitions import run_repetitions
from sampler.mcmc.algorithm import Algorithm, ChainSettings, algorithm_named
from sampler.mcmc.bridge import BridgeEvidence, bridge_evidence
from sampler.mcmc.chains import Chunk, Observer, chain_mesh, sample
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.stopping import StoppingRule
from sampler.posterior.order_parameters import stored_sites
from sampler.posterior.space import TEMPERATURE, Space
from sampler.posterior.spaces import ORDER_PARAMETERS
from sampler.posterior.weights_from_order_parameters import WeightDraws, draw_weights_back
from sampler.presentation.terminal import print_line
from sampler.problem import AnyProblem, Problem
from sampler.runtime import jax_settings
from sampler.settings.sampler import SamplerSection
from sampler.token_problem import LearnedProblem, TokenProblem


def draw_posterior(
    problem: AnyProblem,
    settings: SamplerSection,
    keeper: ChainKeeper | None = None,
    show: bool = True,
) -> xr.DataTree:
    """Draw from the posterior in the space, by the algorithm and in the precision that are named.

    Chains go on from the checkpoint that the keeper finds, if there is one; `show`
    says whether progress is shown.
    """
    keeper = ChainKeeper() if keeper is None else keeper
    started = time.perf_counter()
    kept = weights_observed(problem, settings.space, settings.weight_draws)
    collected = DrawCollector(weights=kept, weight_draws=settings.weight_draws)
    weights = None
    with jax_settings(settings.precision):
        drawn = draw_collected(problem, settings, collected, keeper, show)
        if kept:
            weights = kept_weights(collected)
        elif settings.weight_draws:
            weights = weights_drawn_back(problem, collected, settings)
    evidence = dict(drawn.evidence)
    if settings.evidence and drawn.are_chains:
        found = evidence_of_draws(problem, drawn.space, collected.draws, settings)
        evidence |= {
            "log_evidence": found.log_evidence,
            "log_evidence_error": found.error,
            "log_evidence_method": "bridge",
            "log_evidence_trusted": int(found.trusted),
        }
        log_and_tell(found.explain(), show)
    algorithm = drawn.algorithm
    attributes = {
        **algorithm.settings,
        "space": settings.space,
        "algorithm": drawn.name,
        "gradient_dtype": drawn.space.gradient_dtype,
        **mode_attributes(drawn.space),
        "draws_per_chain": collected.draws_made,
        "ended_by": drawn.ended,
        "seconds": time.perf_counter() - started + keeper.seconds_before,
        "seconds_warmup": collected.seconds["warmup"],
        "seconds_draws": collected.seconds["draws"],
        "gradients": collected.total(algorithm.gradients),
        **evidence,
        **({EXCHANGEABLE: 1} if has_exchangeable_heads(problem) else {}),
    }
    left_out = leave_one_out_table(problem, collected, settings.space)
    prior = draws_without_data(problem, settings)
    return draws_tree(problem, collected, attributes, weights, prior, left_out)


def has_exchangeable_heads(problem: AnyProblem) -> bool:
    """Whether chains may differ by an exchange of heads."""
    return isinstance(problem, LearnedProblem) and problem.exchangeable


def judged_of(problem: AnyProblem) -> Callable[[str], bool]:
    """Tell by their name whether draws of this problem are judged."""
    return partial(is_judged, exchangeable=has_exchangeable_heads(problem))


@dataclass(frozen=True)
class Drawn:
    """Origin of draws that were collected.

    name        of the algorithm in force, as in the table of algorithms
    space       that was sampled
    ended       why no more draws were made
    evidence    attributes that an algorithm adds, the evidence where it knows it
    are_chains  whether they are chains, which the evidence can be found from
    """

    name: str
    algorithm: Algorithm
    space: Space
    ended: str = "draws"
    evidence: Mapping[str, Any] = field(default_factory=dict)
    are_chains: bool = False


def draw_collected(
    problem: AnyProblem,
    settings: SamplerSection,
    collected: DrawCollector,
    keeper: ChainKeeper,
    show: bool,
) -> Drawn:
    """Collect draws of repetitions, independent ones, or those of chains: as the algorithm has it.

    Chains take the place of independent draws that cannot be trusted.
    """
    name = settings.algorithm
    algorithm = algorithm_named(name, settings.values_for(name))
    space = problem.space(settings.space, settings.precision, collected.weights)
    if algorithm.repeated:
        space = algorithm.suited(space)
        judged = judged_of(problem)
        made = run_repetitions(space, algorithm, settings, collected, keeper, show, judged)
        log_and_tell(made.text, show)
        return Drawn(name, algorithm, space, made.ended, made.attributes)
    if space.mode is not None and not space.mode.converged:
        log_and_tell(space.mode.explain(), show)
    independent = algorithm.independent_draws(space, chain_settings(settings))
    evidence = {}
    if independent is not None:
        evidence = dict(independent.attributes)
        if show:
            print_line(independent.text)
        if independent.points is not None:
            count, chains = settings.draws_per_chain, chain_settings(settings)
            observer = Observer.of(space, chains, chain_mesh(chains.chains))
            observables = observer(independent.points, np.arange(count, dtype=np.int32))
            collected(Chunk("draws", count, count, independent.statistics, observables))
            return Drawn(name, algorithm, space, evidence=evidence)
        name = algorithm.fallback
        algorithm = algorithm_named(name, settings.values_for(name))
    space = algorithm.suited(space)
    judged = judged_of(problem)
    rule = run_chains(space, algorithm, settings, collected, keeper, show, judged)
    ended = (rule and rule.ended) or "draws"
    return Drawn(name, algorithm, space, ended, evidence, are_chains=True)


def mode_attributes(space: Space) -> dict[str, Any]:
    """How the mode was found that chains are whitened by; nothing where there is none."""
    if space.mode is None:
        return {}
    return {"mode_converged": int(space.mode.converged), "mode_search": space.mode.explain()}


def log_and_tell(text: str, show: bool) -> None:
    """Log a line, and show it if asked for."""
    LOG.info(text)
    if show:
        print_line(text)


def weights_observed(problem: AnyProblem, space: str, draws: int) -> tuple[str, ...]:
    """Names of the weights that draws have where these are asked for and sampled themselves.

    Without logit weights, which are always kept.
    """
    if not draws or space == ORDER_PARAMETERS:
        return ()
    network = problem.network if isinstance(problem, TokenProblem) else problem.architecture
    return tuple(name for name in network.weight_shapes if not name.startswith(LOGITS))


def kept_weights(collected: DrawCollector) -> WeightDraws:
    """The weights of evenly spaced draws of each chain, as many as were asked for."""
    some = {name: collected.thinned[name] for name in collected.weights}
    numbers, count = some[collected.weights[0]].draws, collected.weight_draws
    chosen = np.arange(1, count + 1) * len(numbers) // count - 1
    return WeightDraws({name: one.values[:, chosen] for name, one in some.items()}, numbers[chosen])


def weights_drawn_back(
    problem: AnyProblem, collected: DrawCollector, settings: SamplerSection
) -> WeightDraws:
    """Draw weights for some of the draws of order parameters."""
    sites = sites_of_draws(collected.draws, problem)
    numbers = np.arange(collected.draws_made)
    if isinstance(problem, LearnedProblem):
        logits, numbers = kept_logits(collected, [name for name, _ in problem.sites])
        sites = {name: values[:, numbers] for name, values in sites.items()} | logits
    space = problem.space(ORDER_PARAMETERS, settings.precision, whitened=False)
    arguments = sites, settings.weight_draws, settings.seed
    drawn = draw_weights_back(space, problem.architecture, *arguments)
    return replace(drawn, draws=numbers[drawn.draws])


# Draws without data that are stored, or fewer where their labels would take more than this.
PRIOR_DRAWS, PRIOR_BYTES = 1000, 8 * 2**20


def draws_without_data(problem: AnyProblem, settings: SamplerSection) -> dict[str, np.ndarray]:
    """Draws from the prior of what is sampled, and of the training labels."""
    training = problem.training_examples
    numbers = 1 if training is None else training[1].size
    count = int(np.clip(PRIOR_BYTES // (4 * numbers), 1, PRIOR_DRAWS))
    with jax_settings():
        return problem.prior_draws(count, settings.seed)


def run_chains(
    space: Space,
    algorithm: Algorithm,
    settings: SamplerSection,
    collected: DrawCollector,
    keeper: ChainKeeper,
    show: bool,
    judged: Callable[[str], bool] = is_judged,
) -> StoppingRule | None:
    """Collect all chunks of chains, from where the keeper says; progress is shown if asked for.

    The result is how the draws were judged on the way, if they are made until they can be trusted.
    """
    rule = None
    if settings.until == "trusted":
        most = settings.max_draws, settings.max_minutes
        fewest = settings.weight_draws, settings.warmup_steps
        rule = StoppingRule(algorithm, collected, *most, judged, *fewest)
    draws = settings.draws_per_chain if rule is None else rule.next_end("draws", 0)
    shown = SamplingProgress(algorithm, draws * settings.thinning, rule) if show else nullcontext()
    with shown as progress:
        earlier = keeper.go_on(collected, rule)
        listeners = [each for each in (collected, rule, progress, keeper) if each is not None]

        def on_chunk(chunk: Chunk) -> None:
            for listen in listeners:
                listen(chunk)

        chains, ends = chain_settings(settings, settings.most_draws), rule and rule.next_end
        sample(space, algorithm, chains, on_chunk, earlier, ends)
    if rule is not None and not collected.draws_made:
        raise out_of_time(settings, "warm-up")
    if rule is not None:
        log_and_tell(rule.explain(), show)
    return rule


def out_of_time(settings: SamplerSection, where: str) -> OutOfTimeError:
    """The error of a run that has no draws when its minutes are over."""
    return OutOfTimeError(
        f"sampler.max_minutes = {settings.max_minutes:g}: over in {where}, before any draw; "
        "everything is saved: resume it for as many minutes again, or raise them"
    )


def evidence_of_draws(
    problem: Problem, space: Space, draws: dict, settings: SamplerSection
) -> BridgeEvidence:
    """ln p(y) by bridge sampling, in double precision whatever the draws were made in."""
    with jax_settings():
        if settings.precision != "float64":
            space = problem.space(settings.space)
        sites = sites_of_draws(draws, problem)
        points = np.concatenate([sites[name] for name in space.shapes], axis=2)
        return bridge_evidence(space, points, settings.seed)


def sites_of_draws(draws: dict, problem: AnyProblem) -> dict[str, np.ndarray]:
    """Sites of the order parameters [chain, draw, …] from stored draws."""
    sites = stored_sites(draws)
    if "temperature" in draws:
        sites[TEMPERATURE] = np.log(draws["temperature"] / problem.temperature)[..., None]
    return sites


def chain_settings(settings: SamplerSection, draws: int | None = None) -> ChainSettings:
    """The chains that the recipe asks for, with this number of draws or that of the recipe."""
    return ChainSettings(
        chains=settings.chain_count,
        warmup=settings.warmup_steps,
        draws=settings.draws_per_chain if draws is None else draws,
        thinning=settings.thinning,
        seed=settings.seed,
    )
