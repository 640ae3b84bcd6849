"""Work of sampling by the sizes of a network and its data: gradients, draws, and their operations.

Counted to leading order, before anything is built. Free of JAX: recipes in these functions have
space and algorithm named.
"""

from dataclasses import dataclass

from sampler.attention.learned import LearnedHeads
from sampler.jobs.choice import ATTENDING, EFFECTIVE_DRAWS, Sizes, speed_of
from sampler.recipes.recipe import Recipe
from sampler.tasks.task import Task

FEWEST_TRUSTED = 520  # draws of a chain at the second check
LONGEST_TRAJECTORY = 1023.0  # leapfrog steps
# Repetitions from the prior alone that tempered particles are held against, pilots of both starts,
# and draws of NUTS that cost about as much as a particle on its way.
FROM_PRIOR, PILOTS, DRAWS_OF_PARTICLE = 4, 2, 3.0
# Gradients of a particle on its way, by the form of learned heads: so many, times P 𝒯^{−1/4}. They
# vary by a factor of two from one data set to the next.
OF_LEARNED = {"full": 1.5, "low_rank": 1.5, "positions": 0.2}
DESCENDING = 12000  # gradients of the search for modes


@dataclass(frozen=True)
class SamplingWork:
    """Work of all chains or particles of a run together, warm-up included.

    gradients  of the log posterior
    draws      whose observables are read off
    """

    gradients: float
    draws: float


def sampling_work(
    recipe: Recipe, sizes: Sizes, learned: LearnedHeads | None = None
) -> SamplingWork:
    """Gradients and draws of a run by the settings in force, and the heads that it samples."""
    settings = recipe.sampler
    speed = speed_of(settings.space, settings.algorithm)
    draws = settings.chain_count * settings.draws_per_chain * settings.thinning
    if settings.until == "trusted":
        draws = max(EFFECTIVE_DRAWS * speed.draws, settings.chain_count * FEWEST_TRUSTED)
    if settings.repeated:
        particles = (settings.repetitions + FROM_PRIOR + PILOTS) * settings.particles
        draws = DRAWS_OF_PARTICLE * particles
        if learned is not None:
            each = OF_LEARNED[learned.form] * sizes.examples
            each *= recipe.posterior.temperature**-0.25
            return SamplingWork(DESCENDING + each * particles, 0.0)
    else:
        draws += speed.warmup * settings.chain_count * settings.warmup_steps
    return SamplingWork(draws * speed.gradients_of_draw(sizes, LONGEST_TRAJECTORY), draws)


def gradient_operations(recipe: Recipe, task: Task, sizes: Sizes) -> int:
    """Operations of one gradient of the log posterior, leading order."""
    if recipe.fits_theory:
        return sizes.gradient_operations(recipe.sampler.space)
    each, more = ATTENDING * sizes.attending, 0
    if recipe.sampler.space == "hidden_weights":
        more, sizes = sizes.readout_operations, sizes.with_units_as_outputs
    each += token_operations(task, sizes)
    return 6 * (task.train.examples * each + more)


def token_operations(task: Task, sizes: Sizes) -> int:
    """Products of one example that is followed token by token, leading order.

    Every token meets the values of all heads, T H N_l N_{l+1}, and is mixed with all others,
    T² H N_{l+1}; a hypernetwork mixes twice and has the outputs of its heads besides. Every token
    meets all weights of MLPs.
    """
    network, tokens, layer = sizes.architecture, task.train.tokens, 0
    widths = network.widths
    total = tokens * (network.channels * widths[0] + sizes.added)
    for is_pair in task.pairs:
        heads = network.heads[layer]
        mixing = tokens**2 * heads * widths[layer + 1]
        for step in range(1 + is_pair):
            total += tokens * heads * widths[layer + step] * widths[layer + step + 1] + mixing
        layer += 1 + is_pair
    return total + network.outputs * widths[-1]
