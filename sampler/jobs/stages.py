"""The stages of a run, each from stored or given data to one result file."""

import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from sampler.analysis.comparison import compare_draws, hyper_parameter_comparison
from sampler.analysis.draws_table import (
    comparison_table,
    draws_tree,
    stored_draws,
    stored_labels,
    stored_moments,
    stored_statistics,
)
from sampler.analysis.predictive_quality import predictive_quality
from sampler.analysis.theory_table import evidence_comparison, theory_table
from sampler.analysis.validation import validation_comparison
from sampler.jobs.keeper import ChainKeeper
from sampler.jobs.progress import LOG, SamplingProgress
from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.chunks import OBSERVATION_STREAM, Chunk, sample_in_chunks
from sampler.mcmc.diagnostics import Diagnostics, diagnose
from sampler.mcmc.draws import DrawCollector
from sampler.posterior.bridge import BridgeEvidence, bridge_evidence
from sampler.posterior.density import Density
from sampler.posterior.hyper_parameters import hyper_positions
from sampler.posterior.importance import ImportanceDraws, importance_draws, systematic_resampling
from sampler.posterior.order_parameters import OrderParameterPosterior
from sampler.posterior.weight_draws import (
    WeightDraws,
    refuse_unusable_count,
    side_by_side,
    weight_draws,
)
from sampler.problem import AnyProblem, Problem
from sampler.recipes.recipe import Recipe
from sampler.recipes.sections import SamplerSection
from sampler.storage.results import (
    RunResults,
    read_draws,
    write_comparison,
    write_draws,
    write_theory,
)
from theory import LearningProblem, solve_saddle_point

# Resampling adds the noise of the kept draws to that of the weighted ones: with this many effective
# draws for each kept one, the errors of the kept ones are short by a tenth at most.
EFFECTIVE_PER_KEPT = 4
FIRST_EVALUATIONS = 20_000
MOST_EVALUATIONS = 1_000_000
OBSERVED_TOGETHER = 16


@dataclass(frozen=True)
class ImportanceOutcome:
    """Weighted draws, and the equally weighted ones resampled from them (None if not trusted)."""

    weighted: ImportanceDraws
    chunk: Chunk | None

    def explain(self) -> str:
        """One line: how good the weights are, and what follows where they do not suffice."""
        if self.chunk is not None or not self.weighted.trusted:
            return self.weighted.explain() + ("" if self.chunk else " (done here)")
        return f"{self.weighted.explain()}: fewer than the draws asked for; running NUTS instead"

    def attributes(self) -> dict:
        """What `draws.nc` says of the weights."""
        return {
            "importance_pareto_k": self.weighted.pareto_k,
            "importance_efficiency": self.weighted.efficiency,
            "importance_effective_draws": self.weighted.effective_sample_size,
            "importance_evaluations": len(self.weighted.log_weights),
            "log_evidence": self.weighted.log_evidence,
            "log_evidence_error": self.weighted.log_evidence_error,
            "log_evidence_method": "importance",
            "log_evidence_trusted": int(self.weighted.trusted),
        }


def draw_independently(density: Density, settings: ChainSettings) -> ImportanceOutcome:
    """chains × draws equally weighted draws, if the weights can be trusted and suffice."""
    kept = settings.chains * settings.draws
    weighted = importance_draws(density, FIRST_EVALUATIONS, settings.seed)
    wanted = EFFECTIVE_PER_KEPT * kept
    if weighted.trusted and weighted.effective_sample_size < wanted:
        evaluations = int(1.2 * wanted / weighted.efficiency)
        if evaluations <= MOST_EVALUATIONS:
            weighted = importance_draws(density, evaluations, settings.seed)
    if not weighted.trusted or weighted.effective_sample_size < kept:
        return ImportanceOutcome(weighted, None)
    chosen = systematic_resampling(weighted.weights, kept, settings.seed)
    points = jnp.asarray(weighted.points[chosen])
    key = jax.random.fold_in(jax.random.key(settings.seed), OBSERVATION_STREAM)
    keys = jax.random.split(key, kept)
    observables = _observe(density, keys, points)
    proposed = weighted.proposal.log_density(weighted.points[chosen])
    statistics = {"lp": weighted.log_weights[chosen] + proposed}
    shape = (settings.chains, settings.draws)
    observables, statistics = jax.tree.map(
        lambda values: np.asarray(values).reshape(*shape, *np.shape(values)[1:]),
        (observables, statistics),
    )
    chunk = Chunk("draws", settings.draws, settings.draws, observables, statistics, 0.0)
    return ImportanceOutcome(weighted, chunk)


def _observe(density: Density, keys, points):
    """The observables of every draw."""
    unflatten = density.coordinates.unflatten

    @jax.jit
    def all_draws(keys, points, observed):
        return jax.lax.map(
            lambda one: density.observe(one[0], unflatten(one[1]), *observed),
            (keys, points),
            batch_size=side_by_side(OBSERVED_TOGETHER),
        )

    return all_draws(keys, points, density.observed)


def solve_stage(problem: Problem, recipe: Recipe, directory: Path) -> xr.Dataset:
    """Solve the theory in float64 and store `theory.nc`."""
    table = solve_problem(problem, recipe)
    write_theory(directory, table)
    return table


def solve_problem(problem: Problem, recipe: Recipe) -> xr.Dataset:
    """Solve the theory as the recipe says."""
    settings = recipe.theory
    saddle_point = solve_saddle_point(
        problem.learning,
        tolerance=settings.tolerance,
        max_steps=settings.max_steps,
        starts=settings.starts,
        seed=settings.seed,
    )
    return theory_table(problem, saddle_point, settings.subnetworks)


def sample_stage(
    problem: AnyProblem, recipe: Recipe, directory: Path, keeper: ChainKeeper
) -> xr.DataTree:
    """Draw from the posterior and store `draws.nc`, going on where the keeper says."""
    tree = draw_posterior(problem, recipe, keeper)
    write_draws(directory, tree)
    return tree


def draw_posterior(
    problem: AnyProblem, recipe: Recipe, keeper: ChainKeeper | None = None, show: bool = True
) -> xr.DataTree:
    """Draw from the posterior in the recipe's space and precision.

    Chains go on from the checkpoint that the keeper finds, if there is one; `show` says whether
    progress is shown.
    """
    settings = recipe.sampler
    refuse_impossible_weights(problem, recipe)
    started = time.perf_counter()
    collected = DrawCollector(settings.draws_per_chain)
    precise = settings.precision == "float64"
    with jax.enable_x64(precise), SamplingProgress() if show else nullcontext() as progress:
        density = problem.density(settings.space, settings.precision, settings.keep_weights)
        chains, outcome = chain_settings(recipe), None
        if settings.algorithm == "importance":
            outcome = draw_independently(density, chains)
            LOG.info(outcome.weighted.explain())
            if show:
                print(outcome.explain())
        if outcome is not None and outcome.chunk is not None:
            collected(outcome.chunk)
        else:
            every = settings.checkpoint_seconds
            earlier = None if keeper is None else keeper.go_on(collected, every)
            listeners = [each for each in (collected, progress, keeper) if each is not None]

            def on_chunk(chunk) -> None:
                for listen in listeners:
                    listen(chunk)

            sample_in_chunks(density, chains, on_chunk, earlier)
        weights = None
        if settings.weight_draws:
            learning = problem.learning.astype(settings.precision)
            weights = draw_weights_back(learning, collected.draws, settings)
    independent = outcome is not None and outcome.chunk is not None
    evidence = outcome.attributes() if outcome is not None else {}
    if settings.evidence and not independent:
        found = evidence_of_draws(problem, density, collected.draws, settings)
        evidence |= evidence_attributes(found)
        LOG.info(found.explain())
        if show:
            print(found.explain())
    attributes = {
        "space": settings.space,
        "algorithm": "importance" if independent else chains.algorithm,
        "max_tree_depth": settings.max_tree_depth,
        "seconds": time.perf_counter() - started + (keeper.seconds_before if keeper else 0.0),
        "seconds_warmup": collected.seconds["warmup"],
        "seconds_draws": collected.seconds["draws"],
        "gradients": collected.gradients,
        **evidence,
    }
    return draws_tree(problem, collected, attributes, weights)


def refuse_impossible_weights(problem: AnyProblem, recipe: Recipe) -> None:
    """Raise InputError before any sampling if the weight draws asked for would not fit."""
    settings = recipe.sampler
    if settings.weight_draws:
        refuse_unusable_count(
            settings.weight_draws,
            settings.chains,
            settings.draws_per_chain,
            problem.architecture,
            np.dtype(settings.precision).itemsize,
        )


def draw_weights_back(learning: LearningProblem, draws: dict, settings) -> WeightDraws:
    """Exact weights for `settings.weight_draws` draws of every chain."""
    positions = stored_positions(draws, learning)
    posterior = OrderParameterPosterior.of(learning)
    return weight_draws(posterior, positions, settings.weight_draws, settings.seed)


def evidence_of_draws(
    problem: Problem, density: Density, draws: dict, settings: SamplerSection
) -> BridgeEvidence:
    """ln p(y) by bridge sampling, in double precision whatever the draws were made in."""
    with jax.enable_x64(True):
        if settings.precision != "float64":
            density = problem.density(settings.space, "float64", False)
        positions = stored_positions(draws, problem.learning)
        return bridge_evidence(density, positions, settings.seed)


def evidence_attributes(found: BridgeEvidence) -> dict:
    """What `draws.nc` says of it, as of that of importance draws."""
    return {
        "log_evidence": found.log_evidence,
        "log_evidence_error": found.error,
        "log_evidence_method": "bridge",
        "log_evidence_trusted": int(found.trusted),
    }


def stored_positions(draws: dict, learning: LearningProblem) -> dict:
    """Positions of the order parameter model from stored draws, under the names of its sites."""
    prefix = "bartlett_"
    bartlett = {
        name.removeprefix(prefix): values
        for name, values in draws.items()
        if name.startswith(prefix)
    }
    return bartlett | hyper_positions(draws, learning)


def chain_settings(recipe: Recipe) -> ChainSettings:
    """The sampler section of a recipe, as the chains see it."""
    settings = recipe.sampler
    names = set(ChainSettings.__dataclass_fields__) - {"warmup", "draws", "algorithm"}
    return ChainSettings(
        algorithm="hmc" if settings.algorithm == "hmc" else "nuts",
        warmup=settings.warmup_steps,
        draws=settings.draws_per_chain,
        **{name: getattr(settings, name) for name in names},
    )


def diagnose_stage(tree: xr.DataTree) -> Diagnostics:
    """Judge stored draws."""
    attributes = tree["sample_stats"].attrs
    nuts = attributes["algorithm"] == "nuts"
    return diagnose(
        stored_draws(tree),
        stored_statistics(tree),
        max_tree_depth=int(attributes["max_tree_depth"]) if nuts else None,
    )


def compare_stage(directory: Path) -> dict:
    """Compare stored draws with the stored theory, and store `comparison.json`."""
    tree = read_draws(directory)
    theory = RunResults(directory).theory
    comparison, table = compare_tables(theory, tree)
    if table is not None:
        tree["comparison"] = xr.DataTree(table)
        write_draws(directory, tree)
    write_comparison(directory, comparison)
    return comparison


def compare_tables(theory: xr.Dataset | None, tree: xr.DataTree) -> tuple[dict, xr.Dataset | None]:
    """What `comparison.json` says of theory and draws, and its arrays with their axes.

    Without a theory there is what the samples say, None for everything that needs a theory, and no
    arrays.
    """
    diagnostics = diagnose_stage(tree)
    comparison = {"diagnostics": diagnostics.as_dict(), "cost": cost(tree, diagnostics)}
    comparison |= validation_comparison(theory, tree)
    compared = compare_draws(theory, stored_draws(tree), stored_moments(tree), stored_labels(tree))
    comparison |= compared | {"predictive_quality": predictive_quality(theory, tree)}
    comparison |= {"log_evidence": evidence_comparison(theory, tree)}
    comparison |= {"hyper_parameters": hyper_parameter_comparison(tree)}
    return comparison, None if theory is None else comparison_table(compared, theory)


def cost(tree: xr.DataTree, diagnostics: Diagnostics) -> dict:
    """Seconds, gradients, and effective draws per second of the worst element of U_1.

    Seconds include compilation and warm-up. Without U_1 it is the worst test example that counts.
    """
    attributes = tree["sample_stats"].attrs
    judged = diagnostics.quantities
    worst = judged.get("order_parameter", judged.get("predictor"))
    ess = float("nan") if worst is None else min(worst.ess_bulk, worst.ess_tail)
    return {
        "seconds": float(attributes["seconds"]),
        "seconds_warmup": float(attributes["seconds_warmup"]),
        "seconds_draws": float(attributes["seconds_draws"]),
        "gradients": int(attributes["gradients"]),
        "effective_draws": ess,
        "effective_draws_per_second": ess / float(attributes["seconds"]),
    }
