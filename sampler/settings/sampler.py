"""The section [sampler]: how the posterior is sampled."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypedDict, get_args

from pydantic import BeforeValidator, Field, model_validator

from sampler.mcmc.algorithm import ALGORITHMS, Algorithm
from sampler.posterior.spaces import (
    ATTENTION,
    HIDDEN_WEIGHTS,
    OF_TOKENS,
    ORDER_PARAMETERS,
    SPACES,
    WEIGHTS,
    SpaceName,
    kind_of,
)
from sampler.registry import Registry
from sampler.settings.network_sections import Network
from sampler.settings.section import Section
from sampler.settings.types import (
    AUTO,
    Count,
    CountFromZero,
    Fraction,
    Mark,
    Positive,
    Repetitions,
    Seed,
    Several,
    Switch,
)

# The precision that only chains over weights can be made in.
SINGLE = "float32"
# Defaults that other settings decide: draws of each chain where their number is asked for.
DEFAULT_DRAWS = 1000
# Acceptance that steps of each algorithm adapt to. Of long trajectories through all weights of a
# narrow network a quarter of a percent diverge at 0.9, more than are accepted; the smaller steps of
# 0.95 cost a sixth more gradients.
DEFAULT_ACCEPTANCE = {"nuts": 0.8, "hmc": 0.8, "split_hmc": 0.95, "tempered": 0.8}
# Steps of warm-up in each space.
DEFAULT_WARMUP = {ORDER_PARAMETERS: 150, HIDDEN_WEIGHTS: 400, WEIGHTS: 500, ATTENTION: 500}
# Steps that are enough about a known mode, where only a step size is to be adapted, and from the
# prior, where a short descent leads to it (runs/benchmarks/RESULTS.md).
SHORT_WARMUP = {(ORDER_PARAMETERS, "split_hmc"): 50, (WEIGHTS, "split_hmc"): 200}
# Acceptance of trajectories about a Gaussian, outside the theory: half the steps of the default of
# the algorithm, which is for posteriors that nearly are this Gaussian.
OUTSIDE_ACCEPTANCE = 0.8


def registered(table: Registry) -> BeforeValidator:
    """Accept the name of an entry of a table, or "auto"."""

    def check(value: object) -> object:
        if value != AUTO and value not in table:
            raise ValueError(f"use one of {', '.join(map(repr, (AUTO, *table)))}")
        return value

    return BeforeValidator(check)


def lacked_by(algorithm: str) -> tuple[str, ...]:
    """The settings of the sampler that an algorithm does not have."""
    return () if algorithm == AUTO else ALGORITHMS[algorithm].lacks


FewestDraws = Annotated[int, Field(strict=True, ge=4)]


class Sampler(Section):
    """The sampler: space, algorithm, number of draws, and the points of a sweep.

    "auto" chooses by the sizes of the problem: the fastest, by prediction, among those
    that the other settings allow. With `until` = "trusted" chains continue until their diagnostics
    pass at two checks in a row, or `max_draws` or `max_minutes` are reached. With `points` =
    "selected" only the best temperature is sampled, chosen by the theory for each value of the
    other swept keys.
    """

    table: ClassVar = "sampler"

    space: Annotated[str, registered(SPACES)] = AUTO
    """The sampled variables: order parameters, whose number does not grow with the width; hidden
    weights, all but the readout; all weights; "attention", logit weights alone, at infinite
    width; a space of another package; "auto": the fastest."""
    algorithm: Annotated[str, registered(ALGORITHMS)] = AUTO
    """The algorithm: "split_hmc", "nuts", "hmc", "tempered", or one of another package; "auto": the
    fastest."""
    chains: Count = 4
    """Chains; one alone is never trusted, and makes the default number of draws."""
    warmup: CountFromZero | None = None
    """Steps of each chain before its draws. By default "split_hmc" makes 50 in at most 2,500 order
    parameters of layers that are no narrower than these, and 200 in all weights of a network within
    the theory; every other chain makes 150 in order parameters, 400 in hidden weights and
    500 in all weights."""
    until: Annotated[Literal["trusted", "draws"], Mark.CHANGES_NO_DRAW] = "trusted"
    """End of the chains. "trusted": when their diagnostics pass at two checks in a row; "draws":
    after this number, the default if it is given or there is one chain."""
    draws: Annotated[FewestDraws | dict[SpaceName, FewestDraws] | None, Mark.CHANGES_NO_DRAW] = None
    """Draws of each chain, or a table of them by space for sweeps over spaces, where missing spaces
    make 1000; by default until the diagnostics pass."""
    max_draws: Annotated[Several, Mark.CHANGES_NO_DRAW, Mark.CAN_BE_RAISED] = 20_000
    """Draws of each chain at most, until they are trusted; a larger limit continues a run that
    ended by it."""
    max_minutes: Annotated[Positive, Mark.CHANGES_NO_DRAW, Mark.CAN_BE_RAISED] = 60.0
    """Minutes of computing at most, since a start or resume, until the draws are trusted; a larger
    limit continues a run that ended by it."""
    thinning: Count = 1
    """Steps from one draw to the next."""
    seed: Seed = 0
    """Seed of all random numbers of the chains."""
    precision: Literal["float64", "float32"] = "float64"
    """Precision of the floating-point numbers; "float32" in spaces of weights, where it moves the
    log density by no more than 0.01."""
    weight_draws: CountFromZero = 0
    """Number of draws per chain, evenly spaced, with all weights; in order parameters these are
    drawn back exactly."""
    evidence: Switch = False
    """Whether to compute ln p(y) from chains over order parameters: by importance if its weights
    are reliable (Pareto k at most 0.7), else by bridge sampling."""
    particles: Annotated[int, Field(strict=True, ge=16)] = 512
    """Particles of each repetition, for "tempered"."""
    repetitions: Annotated[Repetitions, Mark.CHANGES_NO_DRAW] = 4
    """Repetitions of "tempered", independent of each other, and fewest of them where `until` =
    "trusted"."""
    leapfrog_steps: Count = 64
    """Steps of a trajectory, for "hmc"."""
    max_tree_depth: Annotated[int, Field(strict=True, ge=1, le=20)] = 10
    """Depth of the largest trajectory of "nuts": 2^depth steps."""
    target_acceptance: Fraction | None = None
    """Target of the mean acceptance; by default 0.8, and 0.95 for "split_hmc" of a
    network within the theory."""
    points: Literal["all", "selected"] = "all"
    """The sampled points of a sweep: all, or at each network the temperature with the best
    predicted validation accuracy."""

    @model_validator(mode="after")
    def choose_end(self) -> "Sampler":
        """Choose how chains end, where only one of `until` and `draws` is given, or none.

        The choice does not count as given: if other settings change it is made again.
        """
        given, fewest = self.model_fields_set, type(self).model_fields["repetitions"].default
        if "until" not in given:
            counted = "draws" in given or self.chains == 1
            vars(self)["until"] = "draws" if counted else "trusted"
        counted_otherwise = "draws" in lacked_by(self.algorithm) or (
            self.algorithm == AUTO and self.repetitions != fewest
        )
        if "draws" not in given and self.until == "draws" and not counted_otherwise:
            vars(self)["draws"] = DEFAULT_DRAWS
        return self

    @property
    def warmup_steps(self) -> int:
        """Warm-up steps in force: those asked for or planned, or as many as any algorithm needs."""
        return DEFAULT_WARMUP[kind_of(self.space)] if self.warmup is None else self.warmup

    @property
    def algorithm_class(self) -> type[Algorithm]:
        """The class of the algorithm in force."""
        return Algorithm if self.algorithm == AUTO else ALGORITHMS[self.algorithm]

    @property
    def chain_count(self) -> int:
        """Chains, or repetitions."""
        return getattr(self, self.algorithm_class.counts.chains)

    @property
    def draws_per_chain(self) -> int:
        """Draws of each chain that are asked for, in the space in force; else the default."""
        asked = getattr(self, self.algorithm_class.counts.draws)
        if isinstance(asked, dict):
            return asked.get(self.space, DEFAULT_DRAWS)
        return DEFAULT_DRAWS if asked is None else asked

    @property
    def most_draws(self) -> int:
        """Draws of each chain at most."""
        grows = self.until == "trusted" and self.algorithm_class.counts.axis == "draw"
        return self.max_draws if grows else self.draws_per_chain

    def with_draws(self, draws: int) -> "Sampler":
        """Return the section with this number of draws, in the unit of its algorithm."""
        return self.model_copy(update={"until": "draws", self.algorithm_class.counts.more: draws})

    def lacking(self, algorithm: str) -> tuple[str, ...]:
        """The settings that are not as they are by default and that an algorithm does not have."""
        fields = type(self).model_fields
        return tuple(n for n in lacked_by(algorithm) if getattr(self, n) != fields[n].default)

    def values_for(self, algorithm: str) -> dict[str, Any]:
        """All settings by key, as an algorithm takes them: with the acceptance of its own."""
        default = DEFAULT_ACCEPTANCE.get(algorithm)
        own = default if self.target_acceptance is None else self.target_acceptance
        return {**dict(self), "target_acceptance": own}

    @property
    def spaces(self) -> tuple[str, ...]:
        """The space that is named, or those that the other settings allow."""
        asked = get_args(SpaceName) if self.space == AUTO else (self.space,)
        if self.precision == SINGLE:
            asked = tuple(s for s in asked if kind_of(s) in OF_TOKENS)
        return tuple(s for s in asked if s == ORDER_PARAMETERS or not self.evidence)

    def spaces_for(self, network: Network, fits_theory: bool) -> tuple[str, ...]:
        """Those in which this network may be sampled, as the theory fits or not."""
        return tuple(
            space
            for space in self.spaces
            if (fits_theory or kind_of(space) in OF_TOKENS)
            and (space == ATTENTION) == network.is_infinite
        )


class SamplerSettings(TypedDict, total=False):
    """The fields of `Sampler` as keywords of a function: their meaning is documented there."""

    space: str
    algorithm: str
    chains: int
    warmup: int | None
    until: Literal["trusted", "draws"]
    draws: int | Mapping[SpaceName, int] | None
    max_draws: int
    max_minutes: float
    thinning: int
    seed: int
    precision: Literal["float64", "float32"]
    weight_draws: int
    evidence: bool
    particles: int
    repetitions: int
    leapfrog_steps: int
    max_tree_depth: int
    target_acceptance: float | None
    points: Literal["all", "selected"]
