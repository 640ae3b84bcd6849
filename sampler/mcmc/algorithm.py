"""The interface of sampling algorithms, and the table of all of them.

`draw` is the one way in which draws are made: chunk by chunk, from a snapshot where there is one.
Markov chains are one kind of it, tempered repetitions another. Free of JAX, so that settings are
checked before anything heavy is imported: algorithms import JAX where they compute.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from sampler.errors import InputError
from sampler.registry import Registry

# Draws of each chain that the evidence by bridge sampling needs at least.
BRIDGED_DRAWS = 8
# The error of a logarithm is the relative error of its argument only where that is small.
LARGEST_ERROR = 0.3


@dataclass(frozen=True)
class ChainSettings:
    """Numbers of chains and draws, and the seed, of whatever algorithm.

    chains    independent chains, advanced side by side; or repetitions
    warmup    steps in which an algorithm may adapt; not kept
    draws     kept draws of each chain, at most
    thinning  transitions per kept draw
    seed      one seed fixes every chain
    next_end  from a phase and what is done of it to where a chunk must end next, or to what is done
              where no more is to be made: in warm-up there are then no draws. None: the end of the
              phase
    """

    chains: int
    warmup: int
    draws: int
    thinning: int
    seed: int
    next_end: Callable[[str, int], int] | None = None

    def end(self, phase: str, done: int, total: int) -> int:
        """Where a chunk must end next that begins after `done` of `total`."""
        return total if self.next_end is None else self.next_end(phase, done)


@dataclass(frozen=True)
class Snapshot:
    """All that an algorithm continues from, bit for bit.

    phase   "warmup" or "draws", or a word of the algorithm's own
    done    of this phase
    arrays  by name
    about   further data of a checkpoint, as JSON
    """

    phase: str
    done: int
    arrays: Mapping[str, np.ndarray]
    about: Mapping[str, Any] = field(default_factory=dict)


class SnapshotMismatch(Exception):
    """A snapshot of other settings; the text names the differences."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive steps of chains.

    phase          "warmup" or "draws"
    done, total    finished so far in this phase, and in all
    statistics     ArviZ name → [chain, step] of every step
    observables    name → [chain, draw, …] of every draw; empty in warm-up
    seconds        wall time of this chunk
    compiled       whether the chunk's time includes compilation
    points         the draws; None in warm-up
    make_snapshot  gives the state after this chunk
    first          number of the first of its chains; None: of none that is kept, whose seconds and
                   gradients count alone
    shown          name, steps done and steps in all (None: unknown) of the stage that is shown
                   of it; None: the phase
    at             where it ends, in words; by default by phase and numbers
    thinned        of predictors that not every draw has: name → [chain, kept, …] of the draws whose
                   number in their chain is a multiple of `sampler.mcmc.collected_draws.EVERY`
    """

    phase: str
    done: int
    total: int
    statistics: Mapping[str, np.ndarray]
    observables: Mapping[str, np.ndarray] = field(default_factory=dict)
    seconds: float = 0.0
    compiled: bool = False
    points: Float[np.ndarray, "chain draw coordinate"] | None = None
    make_snapshot: Callable[[], Snapshot] | None = None
    first: int | None = 0
    shown: tuple[str, int, int | None] | None = None
    at: str = ""
    thinned: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def snapshot(self) -> Snapshot:
        """The state after this chunk."""
        return self.make_snapshot()

    @property
    def draws(self) -> int:
        """Steps of this chunk, of each of its chains."""
        return self.statistics["lp"].shape[1]

    @property
    def place(self) -> str:
        """Where it ends, in words."""
        return self.at or f"{self.phase} {self.done} of {self.total}"


OnChunk = Callable[[Chunk], None]


@dataclass(frozen=True)
class Counts:
    """Names of the settings of the number of draws.

    chains  chains, or repetitions
    draws   draws of each
    more    the one of both that is raised where draws cannot be trusted yet
    """

    chains: str = "chains"
    draws: str = "draws"
    more: str = "draws"

    @property
    def axis(self) -> str:
        """The axis of stored draws that grows with it."""
        return "chain" if self.more == self.chains else "draw"


@dataclass(frozen=True)
class Judgement:
    """Findings of an algorithm in its own statistics.

    reasons  why the draws cannot be trusted, each with the value, the limit and the remedy, in
             which names of settings are in backticks
    remarks  information for the user
    numbers  further entries of `diagnostics` in `comparison.json`
    warning  shown first, whatever the verdict; may be empty
    remedy   of everything that fails, where it has one cause; empty if unknown
    """

    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    warning: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Evidence:
    """Log evidence ln p(y) with its error, how it was found, and whether it can be trusted.

    value, error  with its Monte Carlo standard error
    method        "importance", "bridge" or "tempered"
    trusted       whether value and error mean something
    text          one line about it: limits, and why it is not trusted
    lost          draws of proposals at which the density is not a number
    beside        further attributes of `draws.nc`
    """

    value: float
    error: float
    method: str
    trusted: bool
    text: str
    lost: int = 0
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def attributes(self) -> dict[str, Any]:
        """Its attributes in `draws.nc`."""
        return {
            "log_evidence": self.value,
            "log_evidence_error": self.error,
            "log_evidence_method": self.method,
            "log_evidence_trusted": int(self.trusted),
            **self.beside,
        }


def lost_points_text(count: int, points: str) -> str:
    """A reason not to trust draws: points at which the density is not a number."""
    return (
        f"the density is not a number at {count} {points}: draws and evidence leave out what is "
        "there; raise the temperature, rescale inputs and labels, or use double precision"
    )


class Chain:
    """A Markov chain: how it begins and moves, in JAX and without side effects.

    It holds numbers that are the same throughout a sweep, and is hashable: compiled functions are
    made for it, and serve every space whose arrays have equal shapes. Arrays come from `space`.

    The state is any tree of arrays and random keys: it is stored in checkpoints, so
    chains continue from one bit for bit. Chains that learn from each other define `advance` instead
    of `step`, and keep the common state in `shared`.
    """

    # Whether all chains are advanced side by side, on every device: then `advance` can average.
    together: ClassVar[bool] = False

    def init(self, key, point, space):
        """State of one chain before its first step: its key, point and log density by default.

        key    random key of this chain
        point  a first point [coordinate], around the mode if known, else from the prior
        space  `sampler.posterior.space.Space` that is sampled
        """
        return {"key": key, "point": point, "lp": -space.potential(point)}

    def shared(self, key, space):
        """The part of the state that all chains have in common before the first step."""
        return {}

    def step(self, state, space):
        """Make one transition of one chain → (state, statistics by name, each one number).

        A chain that adapts counts its steps in the state: the first `settings.warmup` of them are
        warm-up.
        """
        raise NotImplementedError(f"{type(self).__name__} has no chains")

    def advance(self, shared, state, space, mean):
        """Make one transition of one chain among all → (shared, state, statistics).

        `mean` averages a number or array over all chains; the shared state has to consist of such.
        """
        return shared, *self.step(state, space)

    def point(self, state, space):
        """The point [coordinate] in a state."""
        return state["point"]


@dataclass(frozen=True)
class Algorithm:
    """A sampling algorithm. To add one, derive from this class and register it in `ALGORITHMS`.

    Its fields are its settings: one that has the name of a setting of the sampler takes the value
    given for it, any other its default. It has to define `draw`; everything else has a default. One
    that moves Markov chains derives from a class of `sampler.mcmc.chain_algorithm` instead.
    """

    # ArviZ name → long name of every statistic of a step; "lp", the log density, must be there.
    statistics: ClassVar[Mapping[str, str]] = {"lp": "log posterior density, up to a constant"}
    # Statistics that are added up over the transitions between kept draws (a flag: any of them).
    summed: ClassVar[tuple[str, ...]] = ()
    # The statistic that counts gradients of the density, if there is one.
    gradients: ClassVar[str | None] = None
    # The settings of the number of draws, and those of the sampler that it lacks.
    counts: ClassVar[Counts] = Counts()
    lacks: ClassVar[tuple[str, ...]] = ()
    # Whether it finds the evidence itself.
    gives_evidence: ClassVar[bool] = False
    # Remedy for a chain that does not move.
    remedy_if_frozen: ClassVar[str] = "raise `warmup`"

    def draw(
        self, space, settings: ChainSettings, on_chunk: OnChunk, resume: Snapshot | None = None
    ) -> None:
        """Make draws from the posterior; every finished chunk goes to `on_chunk`.

        space   `sampler.posterior.space.Space` that is sampled
        resume  of the same draws: they continue as if uninterrupted, bit for bit

        Raises SnapshotMismatch for a snapshot of something else.
        """
        raise NotImplementedError

    @property
    def settings(self) -> dict[str, Any]:
        """The settings in force that are numbers or text, as `draws.nc` has them."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: v for name, v in values.items() if isinstance(v, int | float | str)}

    def suited(self, space):
        """The space as this algorithm samples it, such as with gradients in single precision."""
        return space

    def judge(self, statistics: Mapping[str, np.ndarray]) -> Judgement:
        """Judge statistics [chain, draw] beyond R-hat and effective draws."""
        return Judgement()

    def describe(self, statistics: Mapping[str, np.ndarray], totals: Mapping[str, float]) -> str:
        """Health of running chains, from the latest chunk and the sums of `summed` so far."""
        left_out = ("lp", *self.summed)
        shown = [name for name in statistics if name not in left_out]
        return ", ".join(f"{self.statistics[n]} {np.mean(statistics[n]):.3g}" for n in shown)

    def repetitions(self, statistics: Mapping[str, np.ndarray]) -> float | None:
        """Repetitions of equal weight that chains are worth; None where they are Markov chains.

        Of repetitions each counts as one number: their draws share ancestors.
        """
        return None

    def evidence(self, statistics: Mapping[str, np.ndarray]) -> Evidence | None:
        """The log evidence, of an algorithm that finds it itself; else None."""
        return None

    @classmethod
    def stored(cls, statistics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The statistics as `draws.nc` has them."""
        return dict(statistics)


# Add to it from outside by ALGORITHMS.register(name, class).
ALGORITHMS: Registry[type[Algorithm]] = Registry(
    "algorithm",
    {
        "nuts": "sampler.mcmc.hamiltonian:Nuts",
        "hmc": "sampler.mcmc.hamiltonian:StaticHmc",
        "split_hmc": "sampler.mcmc.hamiltonian:SplitHmc",
        "tempered": "sampler.mcmc.tempered:Tempered",
    },
)


def algorithm_named(name: str, settings: Mapping[str, Any]) -> Algorithm:
    """The registered algorithm with those of the settings that are its own.

    Raises InputError for a name that is not registered.
    """
    if name not in ALGORITHMS:
        names = ", ".join(ALGORITHMS)
        raise InputError(
            "algorithm",
            name,
            f"is not registered; there are {names}; import the package that adds it",
        )
    algorithm = ALGORITHMS[name]
    given = {f.name: settings.get(f.name) for f in fields(algorithm)}
    plain = {n: v.item() if isinstance(v, np.generic) else v for n, v in given.items()}
    return algorithm(**{n: v for n, v in plain.items() if v is not None})
