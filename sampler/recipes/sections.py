"""The sections of a recipe: every setting with its type, limits, default and meaning.

A setting is declared here, or in the section of its task, and nowhere else: recipes, keywords of
Python functions, help, the reference of the site and the hash follow from the field. The docstring
of a field is its meaning; marks in its `Annotated` type say what else there is to know.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from sys import maxsize
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from sampler.errors import InputError
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.recipes.limits import (
    DEFAULT_WARMUP,
    INFINITE,
    OF_ANY_NETWORK,
    counts_or_infinite,
    different_heads,
    draws_or_table,
    none_or_several,
    positive_or_positives,
)
from theory.architecture import Architecture, Values


class Mark(Enum):
    """Properties of a setting besides type, limits, default and meaning."""

    CHANGES_NO_DRAW = "may differ between a run and its continuation"
    NOT_IN_PYTHON = "belongs to sweeps or run directories; no Python function has the keyword"
    OPEN_DEFAULT = "has a default that other settings can change; in Python it is None"


@dataclass(frozen=True)
class InPython:
    """Name and type of the keyword in Python, where they are not those of the setting."""

    name: str = ""
    type: Any = None


@dataclass(frozen=True)
class RelativePath:
    """A mark of settings that name files or folders, relative to the recipe.

    suffixes  endings of file names; a text that ends otherwise is no path
    """

    suffixes: tuple[str, ...] = ("",)

    def absolute(self, value: Any, folder: Path) -> Any:
        """Return the value, absolute where it is a path; a table has one path per key."""
        if isinstance(value, Mapping):
            return {key: self.absolute(one, folder) for key, one in value.items()}
        if not isinstance(value, str) or not value or not value.endswith(self.suffixes):
            return value
        return str((folder / value).resolve())


Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
# `strict` refuses true and false, and text, where a number is meant.
Count = Annotated[int, Field(strict=True, ge=1)]
CountFromZero = Annotated[int, Field(strict=True, ge=0)]
Several = Annotated[int, Field(strict=True, ge=2)]
Even = Annotated[int, Field(strict=True, ge=2, multiple_of=2)]
Repetitions = Annotated[int, Field(strict=True, ge=4)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(strict=True, ge=0, le=1)]
Fraction = Annotated[float, Field(strict=True, gt=0, lt=1)]
Switch = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True, min_length=1)]
FilePath = Annotated[Text, RelativePath()]
# How names of files of images end: NumPy's, and those of MNIST, IDX.
IMAGE_FILES = (".npz", "-ubyte", "-ubyte.gz")
ImagesOrName = Annotated[Text, RelativePath(IMAGE_FILES)]
DEFAULT_DRAWS = 1000
Space = Literal["order_parameters", "upper_weights", "hidden_weights", "weights", "attention"]
# Left to the sizes of the problem: `sampler.jobs.choice`.
AUTO = "auto"


ValidationCount = Annotated[CountFromZero, AfterValidator(none_or_several)]
HeadNumbers = Annotated[tuple[tuple[CountFromZero, ...], ...], AfterValidator(different_heads)]


def marks_of(annotation: Any, metadata: Iterable[Any] = ()) -> Iterator[Any]:
    """Yield what `Annotated` adds to a type, or to a member of a union."""
    yield from metadata
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from marks_of(inner[0], inner[1:])
    elif origin is not Literal:
        for one in inner:
            yield from marks_of(one)


class Section(BaseModel):
    """A frozen group of settings in which an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def known_algorithm(value: object) -> object:
    """Accept the name of a registered algorithm, or "auto"."""
    if value != AUTO and value not in ALGORITHMS:
        *others, last = (f"'{name}'" for name in (AUTO, *ALGORITHMS))
        raise ValueError(f"use {', '.join(others)} or {last}")
    return value


class MlpSection(Section):
    """The layers between attention layers: W_2 φ(W_1 z/√N)/√M for each token."""

    width: Count
    """M, the units of each."""
    activation: Literal["relu", "erf", "gelu"] = "relu"
    """φ, scaled so that it keeps the second moment of a standard normal number."""


@dataclass(frozen=True)
class OutsideTheory:
    """A setting that the theory does not cover, by its dotted key, and the value that it does."""

    key: str
    value: Any
    covered: Any


class NetworkSection(Section):
    """The network: widths, prior variances, token readout, the heads it keeps, and its layers.

    Lists by layer meet the layers of attention of the task.
    """

    widths: Annotated[
        int | tuple[int, ...] | Literal["infinite"], BeforeValidator(counts_or_infinite)
    ]
    """N of all layers, or [N_1, …, N_L, N_a]; with learned heads also "infinite", a network of
    which only attention is left to be sampled."""
    variances: Annotated[float | tuple[float, ...], BeforeValidator(positive_or_positives)] = 1.0
    """Prior variance of all weights, or [σ0², σ1², …, σL², σa²]."""
    readout: Annotated[Literal["last", "first", "mean"], Mark.OPEN_DEFAULT] = "last"
    """The token that is read out, or "mean" of all, which tasks of images and of trained models set
    by default."""
    heads: HeadNumbers | None = None
    """The heads that each layer of attention keeps, by number from 0; all by default."""
    hypernetwork: Switch | tuple[Switch, ...] = False
    """Whether heads make two layers of weights, of values and of outputs, each with a width and a
    variance of its own: in all layers of attention, or a list by layer."""
    values: Values = "linear"
    """The function of values, scaled to keep the second moment. All but "linear" are outside the
    theory: they have that of infinite width, and two approximations."""
    norm: Literal["none", "before", "after"] = "none"
    """Normalisation of the hidden vector z of each token: of what attention, MLP and readout read
    ("before"), or of z after each attention and MLP ("after"); outside the theory, and only
    sampled."""
    residual: Switch = False
    """Whether attention and MLP are added to what they read, (z + …)/√2, which needs equal widths;
    outside the theory, and only sampled."""
    mlp: Annotated[MlpSection | None, InPython(type=Mapping[str, Any])] = None
    """A layer W_2 φ(W_1 z/√N)/√M after each attention: a table with `width` M and `activation`
    "relu", "erf" or "gelu"; outside the theory, and only sampled. Its weights have the prior
    variance of the values below it."""

    @property
    def outside_theory(self) -> "OutsideTheory | None":
        """A setting that the theory does not cover; None where it covers the network."""
        covered = {"values": "linear", "norm": "none", "residual": False, "mlp": None}
        for name, value in covered.items():
            if getattr(self, name) != value:
                return OutsideTheory(f"network.{name}", getattr(self, name), value)
        return None

    def hypernetworks(self, attention_layers: int) -> tuple[bool, ...]:
        """Whether each layer of attention is a hypernetwork; InputError if a list does not fit."""
        return by_attention_layer("network.hypernetwork", self.hypernetwork, attention_layers)

    def layers(self, attention_layers: int) -> int:
        """L, the layers of value weights: two for each hypernetwork."""
        return attention_layers + sum(self.hypernetworks(attention_layers))

    @property
    def is_infinite(self) -> bool:
        """Whether all layers are infinitely wide."""
        return self.widths == INFINITE

    @property
    def widest(self) -> int:
        """The largest width of any layer."""
        if self.is_infinite:
            return maxsize
        return self.widths if isinstance(self.widths, int) else max(self.widths)

    def layer_widths(self, layers: int) -> tuple[int, ...]:
        """Hidden widths (N_1, …, N_L, N_a); InputError if the list does not fit the layers.

        Where they are infinite it is 1 for each, and nothing depends on them.
        """
        if self.is_infinite:
            return (1,) * (layers + 1)
        return expanded("network.widths", self.widths, layers + 1, "[N_1, …, N_L, N_a]", layers)

    def layer_variances(self, layers: int) -> tuple[float, ...]:
        """Prior variances (σ0², σ1², …, σL², σa²); InputError if the list does not fit."""
        form = "[σ0², σ1², …, σL², σa²]"
        return expanded("network.variances", self.variances, layers + 2, form, layers)

    def architecture(self, heads: tuple[int, ...], channels: int, outputs: int) -> Architecture:
        """The network on a task of these sizes: widths and prior variances of every layer."""
        widths, variances = self.layer_widths(len(heads)), self.layer_variances(len(heads))
        return Architecture(heads, widths, variances, channels, outputs)


class PosteriorSection(Section):
    """The posterior, with what is not known of it beforehand.

    With a spread, the temperature or every prior variance of the network by itself is sampled with
    the rest, log-normal about the value that is given. The theory is solved at that value.
    """

    temperature: Positive = 0.01
    """𝒯, the variance of the likelihood."""
    temperature_spread: NotNegative = 0.0
    """Prior standard deviation of ln 𝒯; above 0, 𝒯 is sampled too."""
    variance_spread: NotNegative = 0.0
    """Prior standard deviation of the logarithm of each prior variance; above 0, they are sampled
    too."""


class TheorySection(Section):
    """The saddle point, its correction, and sub-networks whose GP limit is wanted as well."""

    tolerance: Positive | None = None
    """Where the saddle point counts as found; the solver's own by default."""
    max_steps: Count = 100
    """Newton steps at most."""
    starts: Count = 2
    """Starting points, the first being the GP limit."""
    seed: Seed = 0
    """Seed of the other starting points."""
    next_order: Switch = True
    """The correction of order 1/N as well, where it can be computed."""
    next_order_evidence: Switch | Literal[AUTO] = AUTO
    """The correction of the evidence, too, which takes most of its time; "auto": where it takes
    little, or where an evidence is sampled or selected by."""
    subnetworks: tuple[HeadNumbers, ...] = ()
    """The heads kept, layer by layer, of each sub-network whose GP limit is wanted, counted within
    the heads that the network itself keeps."""
    own: Annotated[dict[Text, Text], RelativePath(), Mark.NOT_IN_PYTHON] = Field(
        default_factory=dict
    )
    """Theories of your own, a name for each and where its predictions are: an .npz or NetCDF file
    of arrays, or FILE.py:FUNCTION."""


class SamplerSection(Section):
    """The sampler: what it samples and how, and which points of a sweep it samples.

    What is "auto" is chosen from the sizes of the problem: the fastest, by prediction, among those
    that the other settings allow. With `until` = "trusted" chains go on until their diagnostics
    pass at two checks in a row, or `max_draws` or `max_minutes` are reached. With `points` =
    "selected" only the best temperature is sampled, chosen by the theory for each value of the
    other swept keys.
    """

    space: Literal[AUTO, Space] = AUTO
    """The coordinates: order parameters, whose number depends on no width; the weights of the upper
    layers; those below the readout, which every network has; or all weights; "attention", logit
    weights alone, at infinite width; "auto": the fastest."""
    algorithm: Annotated[str, BeforeValidator(known_algorithm)] = AUTO
    """The algorithm: "split_hmc", "nuts", "hmc", "importance", "tempered", or one of another
    package; "auto": the fastest."""
    chains: Count = 4
    """Chains; one alone is never trusted, and makes the default number of draws."""
    warmup: CountFromZero | None = None
    """Steps of each chain before its draws. By default "split_hmc" makes 50 in at most 2,500 order
    parameters of layers that are no narrower than these, and 200 in all weights of a network within
    the theory; every other chain makes 150 in order parameters, 400 in upper or hidden weights and
    500 in all weights."""
    until: Annotated[Literal["trusted", "draws"], Mark.CHANGES_NO_DRAW, Mark.OPEN_DEFAULT] = (
        "trusted"
    )
    """How chains end. "trusted": when their diagnostics pass at two checks in a row; "draws": after
    so many, the default where these are given or there is one chain."""
    draws: Annotated[
        int | dict[Space, int] | None, BeforeValidator(draws_or_table), Mark.CHANGES_NO_DRAW
    ] = None
    """Draws of each chain, or a table of them by space for sweeps over spaces, where a space that
    it leaves out makes 1000; by default until they can be trusted."""
    max_draws: Annotated[Several, Mark.CHANGES_NO_DRAW] = 20_000
    """Draws of each chain at most, until they are trusted."""
    max_minutes: Annotated[Positive, Mark.CHANGES_NO_DRAW] = 60.0
    """Minutes of computing at most, until the draws are trusted."""
    thinning: Count = 1
    """Steps from one draw to the next."""
    seed: Seed = 0
    """Seed of all random numbers of the chains."""
    precision: Literal["float64", "float32"] = "float64"
    """Precision of the floating-point numbers."""
    weight_draws: CountFromZero = 0
    """Exact draws of all weights, from so many draws of order parameters of each chain."""
    keep_weights: Switch = False
    """Keep the weights of every draw, in the three spaces of weights."""
    evidence: Switch = False
    """ln p(y) as well, from chains over order parameters; importance draws always know it."""
    particles: Annotated[int, Field(strict=True, ge=16)] = 512
    """Particles of each repetition, for "tempered"."""
    repetitions: Annotated[Repetitions, Mark.CHANGES_NO_DRAW] = 4
    """Repetitions of "tempered", independent of each other, and fewest of them where `until` =
    "trusted"."""
    max_repetitions: Annotated[Repetitions, Mark.CHANGES_NO_DRAW] = 32
    """Repetitions at most, until their draws are trusted."""
    leapfrog_steps: Count = 64
    """Steps of a trajectory, for "hmc"."""
    max_tree_depth: Annotated[int, Field(strict=True, ge=1, le=20)] = 10
    """Depth of the largest trajectory of "nuts": 2^depth steps."""
    target_acceptance: Fraction | None = None
    """Mean acceptance that step sizes are adapted to; by default the algorithm's own, and 0.8 for
    "split_hmc" of a network outside the theory."""
    gradient_precision: Literal["auto", "float64", "float32"] = "auto"
    """Precision of gradients in algorithms that accept or refuse whole trajectories; "auto": single
    where that costs no acceptance."""
    largest_width: Annotated[dict[Space, Count], Mark.NOT_IN_PYTHON] = Field(default_factory=dict)
    """By space: wider points of a sweep are theory only."""
    at_widths: Annotated[tuple[Count, ...] | None, Mark.NOT_IN_PYTHON] = None
    """Widths of the points of a sweep that are sampled, the others being theory only; all by
    default."""
    points: Annotated[Literal["all", "selected"], Mark.NOT_IN_PYTHON] = "all"
    """The points of a sweep that are sampled: all, or of the temperatures only the best one."""
    selected_by: Annotated[Literal["accuracy", "log_evidence"], Mark.NOT_IN_PYTHON] = "accuracy"
    """What the theory selects by: its accuracy on the validation split, or its evidence on training
    data."""
    attention_theories: Annotated[CountFromZero, Mark.CHANGES_NO_DRAW] = 128
    """Draws of learned attention at which the theories of fixed attention are solved, to be held
    against the exact posterior; 0: none."""
    start_from: FilePath | None = None
    """Directory of a finished run: chains begin where its chains ended, with their step size and
    masses, and adapt on from there."""
    checkpoint_seconds: Annotated[NotNegative, Mark.CHANGES_NO_DRAW, Mark.NOT_IN_PYTHON] = 10.0
    """Seconds of computing after which draws and state are saved."""

    @property
    def warmup_steps(self) -> int:
        """Warm-up steps in force: those asked for or planned, or as many as any algorithm needs."""
        return DEFAULT_WARMUP[self.space] if self.warmup is None else self.warmup

    @property
    def repeated(self) -> bool:
        """Whether chains are repetitions of particles."""
        return self.algorithm != AUTO and ALGORITHMS[self.algorithm].repeated

    @property
    def chain_count(self) -> int:
        """Chains, or the repetitions that are asked for."""
        return self.repetitions if self.repeated else self.chains

    @property
    def draws_per_chain(self) -> int:
        """Draws of each chain that are asked for, in the space in force; else the default."""
        if self.repeated:
            return self.particles
        if isinstance(self.draws, dict):
            return self.draws.get(self.space, DEFAULT_DRAWS)
        return DEFAULT_DRAWS if self.draws is None else self.draws

    @property
    def most_draws(self) -> int:
        """Draws of each chain at most."""
        if self.repeated:
            return self.particles
        return self.max_draws if self.until == "trusted" else self.draws_per_chain

    def with_draws(self, draws: int) -> "SamplerSection":
        """Return the section with a number of draws of each chain, or of repetitions."""
        if self.repeated:
            return self.model_copy(update={"until": "draws", "repetitions": draws})
        return self.model_copy(update={"until": "draws", "draws": draws})

    @model_validator(mode="before")
    @classmethod
    def draws_are_named_or_looked_for(cls, settings: Any) -> Any:
        """Say by which rule the chains end where only one of `until` and `draws` is given."""
        if not isinstance(settings, dict):
            return settings
        named, until = settings.get("draws") is not None, settings.get("until")
        if until == "trusted" and named:
            raise ValueError(
                'until = "trusted" finds the number of draws itself; remove draws, '
                "or set max_draws instead"
            )
        if until == "trusted" and settings.get("chains") == 1:
            raise ValueError('until = "trusted" needs at least 2 chains; or set draws instead')
        if until is None:
            until = "draws" if named or settings.get("chains") == 1 else "trusted"
        unnamed = until == "draws" and not named and settings.get("algorithm") != "tempered"
        draws = {"draws": DEFAULT_DRAWS} if unnamed else {}
        return {**settings, "until": until, **draws}

    @property
    def demands(self) -> list[tuple[tuple[str, ...], str]]:
        """The spaces of each setting that not all spaces have, and the words that say so."""
        own = None if self.algorithm == AUTO else ALGORITHMS[self.algorithm].spaces
        exact = ("order_parameters",)
        of_weights = ("upper_weights", *OF_ANY_NETWORK)
        found = [
            (self.evidence, exact, 'evidence needs space = "order_parameters"'),
            (
                self.weight_draws,
                exact,
                'weight_draws needs space = "order_parameters"; use keep_weights in this space',
            ),
            (
                self.keep_weights,
                of_weights,
                'keep_weights needs a space of weights; use weight_draws with "order_parameters"',
            ),
        ]
        if own is not None:
            needed = " or ".join(f'"{space}"' for space in own)
            text = f'algorithm = "{self.algorithm}" needs space = {needed}'
            found.insert(0, (True, own, text))
        return [(spaces, text) for in_force, spaces, text in found if in_force]

    @property
    def spaces(self) -> tuple[str, ...]:
        """The space that is named, or those that the other settings allow."""
        named = get_args(Space) if self.space == AUTO else (self.space,)
        return tuple(s for s in named if all(s in allowed for allowed, _ in self.demands))

    def spaces_for(self, network: NetworkSection, fits_theory: bool) -> tuple[str, ...]:
        """Those in which this network may be sampled: as the theory fits or not, and by width."""
        return tuple(
            space
            for space in self.spaces
            if (fits_theory or space in OF_ANY_NETWORK)
            and (space == "attention") == network.is_infinite
            and network.widest <= self.largest_width.get(space, network.widest)
        )

    def samples(self, network: NetworkSection, fits_theory: bool) -> bool:
        """Whether a network of these widths is sampled."""
        listed = self.at_widths is None or network.widest in self.at_widths
        return listed and bool(self.spaces_for(network, fits_theory))

    @property
    def of_chains(self) -> tuple[str, ...]:
        """The settings of Markov chains that are not as they are by default."""
        names = ("chains", "warmup", "draws", "thinning", "start_from")
        fields = type(self).model_fields
        return tuple(name for name in names if getattr(self, name) != fields[name].default)

    @property
    def asks_for_chains(self) -> bool:
        """Whether a setting has no meaning but for Markov chains."""
        return bool(self.of_chains) or self.precision != "float64"

    @model_validator(mode="after")
    def repetitions_are_no_chains(self) -> "SamplerSection":
        """Refuse what says something of Markov chains where there are none."""
        if not self.repeated:
            return self
        word = f'algorithm = "{self.algorithm}"'
        if self.precision != "float64":
            raise ValueError(
                f'{word} needs precision = "float64"; gradient_precision = "float32" is allowed'
            )
        for name in self.of_chains:
            raise ValueError(
                f"{word} has no Markov chains: remove {name}; particles and repetitions say how "
                "many draws it makes"
            )
        if self.max_repetitions < self.repetitions:
            raise ValueError(
                f"max_repetitions = {self.max_repetitions} is below repetitions = "
                f"{self.repetitions}; raise it"
            )
        return self

    @model_validator(mode="after")
    def fits_the_space(self) -> "SamplerSection":
        left = set(get_args(Space) if self.space == AUTO else (self.space,))
        for allowed, text in self.demands:
            left &= set(allowed)
            if not left:
                raise ValueError(text)
        return self


def expanded(field: str, value: object, length: int, form: str, layers: int) -> tuple:
    """One value repeated for every layer, or the list itself if its length is right."""
    if not isinstance(value, tuple):
        return (value,) * length
    if len(value) != length:
        raise InputError(
            field,
            list(value),
            f"give one number or a list {form} of {length} numbers, for {layers} layers of values",
        )
    return value


def by_attention_layer(field: str, value: bool | tuple, layers: int) -> tuple[bool, ...]:
    """A switch for all layers of attention, or one for each, as a list; InputError if none fits."""
    if isinstance(value, bool):
        return (value,) * layers
    if len(value) != layers:
        remedy = f"give true, false, or a list of {layers}, one per layer of attention"
        raise InputError(field, list(value), remedy)
    return value


def paired(of_attention: tuple, hypernetworks: tuple[bool, ...]) -> tuple:
    """One entry per layer of attention as one per layer of weights: two for a hypernetwork."""
    return tuple(
        entry
        for entry, is_pair in zip(of_attention, hypernetworks, strict=True)
        for _ in range(1 + is_pair)
    )


def lowest_layers(hypernetworks: Sequence[bool]) -> tuple[int, ...]:
    """For each attention the first layer l of weights that it serves, from 1."""
    return tuple(1 + place + sum(hypernetworks[:place]) for place in range(len(hypernetworks)))


def mlp_shapes(
    mlp: MlpSection | None, widths: Sequence[int], hypernetworks: Sequence[bool]
) -> dict[str, tuple[int, ...]]:
    """Shapes of `mlp_in_l` [M, N] and `mlp_out_l` [N, M], the weights of the MLP above layer l.

    widths         N_1 … N_L, N_a
    hypernetworks  whether each attention serves two layers of weights
    """
    found: dict[str, tuple[int, ...]] = {}
    layers = zip(lowest_layers(hypernetworks), hypernetworks, strict=True)
    for layer, is_pair in layers if mlp is not None else ():
        above = layer + is_pair
        found[f"mlp_in_{above}"] = (mlp.width, widths[above])
        found[f"mlp_out_{above}"] = (widths[above], mlp.width)
    return found
