"""The space and the algorithm of a recipe: as they are named, or by operations per effective draw.

Nothing is timed: the same recipe is sampled in the same way on any machine. Free of JAX.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter

from sampler.jobs.sizes import Sizes, narrowness
from sampler.posterior.spaces import HIDDEN_WEIGHTS, OF_TOKENS, ORDER_PARAMETERS, WEIGHTS, kind_of
from sampler.settings.recipe import Recipe
from sampler.settings.sampler import DEFAULT_WARMUP, OUTSIDE_ACCEPTANCE, SHORT_WARMUP
from sampler.settings.types import AUTO
from theory.architecture import Architecture
from theory.size_limits import HESSIAN_COORDINATES


@dataclass(frozen=True)
class Gradients:
    """Gradients per effective draw of the worst element, measured over many problems.

    wide      in wide networks
    narrow    how many times more there are for each unit of max_l p_l / N_l
    few       the same for each unit of max_l 1 / N_l², in the space of all weights
    stiff     exponent of the condition number 1 + λ_max(K)/𝒯 in the number of gradients: ½ for
              chains of all weights, which follow the directions that the examples fix
    singular  gradients more, for each unit of λ_max(K)/𝒯 and of what max_l p_l / N_l is above 1:
              singular order parameters have the stiff directions of the weights
    """

    wide: float
    narrow: float = 0.0
    few: float = 0.0
    stiff: float = 0.0
    singular: float = 0.0

    def needed(self, sizes: Sizes) -> float:
        """Gradients of a network of these sizes."""
        narrow, fewest = narrowness(sizes.architecture), min(sizes.architecture.widths)
        stiffness = (1.0 + sizes.stiffness) ** self.stiff if self.stiff else 1.0
        widths = 1.0 + self.narrow * narrow + self.few / fewest**2
        singular = self.singular * sizes.stiffness * max(0.0, narrow - 1.0)
        return self.wide * stiffness * widths + singular


# Space and algorithm of networks in the theory.
GRADIENTS = {
    (ORDER_PARAMETERS, "split_hmc"): Gradients(1.7, narrow=3.11, singular=0.309),
    (ORDER_PARAMETERS, "nuts"): Gradients(9.82, narrow=0.001, singular=0.333),
    (WEIGHTS, "split_hmc"): Gradients(12.2, few=63.9, stiff=0.5),
    (WEIGHTS, "nuts"): Gradients(28.5, few=50.9, stiff=0.5),
}
MEASURED = tuple(dict.fromkeys(algorithm for _, algorithm in GRADIENTS))
# Order parameters are left for a space with fewer operations by this factor: theirs are products
# of large matrices, 3.5 times as fast, and their draws give mean and variance of the predictor
# exactly, which is worth twice as many draws.
PREFERRED, ADVANTAGE = ORDER_PARAMETERS, 7.0
# An algorithm that is not in the table is taken to be like this one.
LIKE_OTHERS = "nuts"
# The algorithm of posteriors with many modes.
TEMPERED = "tempered"


@dataclass(frozen=True)
class SamplingMethod:
    """The space in which a posterior is sampled, the algorithm, and the reason for both.

    warmup             steps of warm-up; None: as the space has them by default
    target_acceptance  that step sizes are adapted to; None: as the algorithm has it by default
    """

    space: str
    algorithm: str
    reason: str
    warmup: int | None = None
    target_acceptance: float | None = None

    def applied_to(self, recipe: Recipe) -> Recipe:
        """The recipe with space, algorithm, warm-up and acceptance named."""
        further = {"warmup": self.warmup, "target_acceptance": self.target_acceptance}
        named = {"space": self.space, "algorithm": self.algorithm}
        named |= {name: value for name, value in further.items() if value is not None}
        return recipe.model_copy(update={"sampler": recipe.sampler.model_copy(update=named)})


NAMED = "named in the recipe"


def choose_method(recipe: Recipe, sizes: Sizes) -> SamplingMethod:
    """Space and algorithm of the fewest operations per effective draw that the recipe allows.

    Order parameters are left only for a space of `ADVANTAGE` times fewer.
    """
    space, algorithm, reason = choose_pair(recipe, sizes)
    warmup, target = recipe.sampler.warmup, recipe.sampler.target_acceptance
    if warmup is None and recipe.has_theory:
        warmup = warmup_of(space, algorithm, sizes.architecture)
    if target is None and not recipe.fits_theory and algorithm == "split_hmc":
        target = OUTSIDE_ACCEPTANCE
    return SamplingMethod(space, algorithm, reason, warmup, target)


def warmup_of(space: str, algorithm: str, architecture: Architecture) -> int:
    """Steps of warm-up by default: fewer where they were measured to be enough.

    In order parameters that is where the Hessian at the mode is known, as masses, and no layer is
    narrower than its order parameter, which would be singular.
    """
    count = architecture.bartlett_coordinate_count
    fitted = count <= HESSIAN_COORDINATES and narrowness(architecture) <= 1.0
    if space == ORDER_PARAMETERS and not fitted:
        return DEFAULT_WARMUP[space]
    like = kind_of(space)
    return SHORT_WARMUP.get((like, algorithm), DEFAULT_WARMUP[like])


def choose_pair(recipe: Recipe, sizes: Sizes) -> tuple[str, str, str]:
    """Space and algorithm, and the reason for both."""
    settings, network = recipe.sampler, recipe.network
    named = None if settings.algorithm == AUTO else settings.algorithm
    if settings.space != AUTO and named:
        return settings.space, named, NAMED
    spaces = settings.spaces_for(network, recipe.fits_theory)
    if not recipe.fits_theory:
        space = next(space for space in spaces if kind_of(space) in OF_TOKENS)
        fewer = "fewer gradients than all weights, " if space == HIDDEN_WEIGHTS else ""
        return space, named or "split_hmc", f"{fewer}of a network outside the theory"
    if settings.space == AUTO:
        spaces = tuple(space for space in spaces if space != HIDDEN_WEIGHTS) or spaces
    if recipe.learns_attention:
        space, reason = PREFERRED if PREFERRED in spaces else spaces[0], "attention is sampled, too"
        if named or settings.lacking(TEMPERED):
            return space, named or LIKE_OTHERS, reason
        return space, TEMPERED, f"{reason}, and chains may stay in one mode"
    if spaces == (HIDDEN_WEIGHTS,):
        return *spaces, named or "split_hmc", "no other space is left"
    (best, operations), *others = ranked(sizes, spaces, (named,) if named else MEASURED)
    reason = f"{operations:.1e} operations per effective draw"
    if others:
        (space, algorithm), more = others[0]
        reason += f"; {algorithm} in {space} needs {more:.1e}"
    return *best, reason


def ranked(
    sizes: Sizes, spaces: Sequence[str], algorithms: Sequence[str] = MEASURED
) -> list[tuple[tuple[str, str], float]]:
    """Pairs of space and algorithm with operations per effective draw, the one to choose first."""
    found = []
    for space, algorithm in product(spaces, algorithms):
        like = kind_of(space)
        gradients = GRADIENTS.get((like, algorithm)) or GRADIENTS[like, LIKE_OTHERS]
        operations = gradients.needed(sizes) * sizes.gradient_operations(space)
        weighed = operations * (1.0 if space == PREFERRED else ADVANTAGE)
        found.append((weighed, ((space, algorithm), operations)))
    return [pair for _, pair in sorted(found, key=itemgetter(0))]
