"""The sections of a recipe: every setting, its default and its limits."""

from sys import float_info
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from sampler.errors import InputError, shortened
from sampler.mcmc.algorithm import ALGORITHMS

Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
# `strict` refuses true and false, and text, where a number is meant.
Count = Annotated[int, Field(strict=True, ge=1)]
CountFromZero = Annotated[int, Field(strict=True, ge=0)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(strict=True, ge=0, le=1)]
Switch = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True, min_length=1)]
DEFAULT_WARMUP = {"order_parameters": 150, "upper_weights": 400, "weights": 500}
DEFAULT_DRAWS = 1000
Space = Literal["order_parameters", "upper_weights", "weights"]
# Left to the sizes of the problem: `sampler.jobs.choice`.
AUTO = "auto"


# In the declaration of a setting: it may differ between a run and its continuation.
CHANGES_NO_DRAW = Field(json_schema_extra={"changes_draws": False})


def changes_draws(field: FieldInfo) -> bool:
    """Whether a setting must stay as it is when a run is resumed."""
    extra = field.json_schema_extra
    return not isinstance(extra, dict) or extra.get("changes_draws", True) is True


def none_or_several(examples: int) -> int:
    """Accept any number of examples but one."""
    if examples == 1:
        raise ValueError("use at least 2 examples, or 0 for no validation split")
    return examples


Several = Annotated[int, Field(strict=True, ge=2)]
ValidationCount = Annotated[CountFromZero, AfterValidator(none_or_several)]


class Section(BaseModel):
    """A frozen group of settings in which an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def count_or_counts(value: object) -> object:
    """Accept a whole number from 1 to 10⁹, or a list of them."""
    values = value if isinstance(value, list | tuple) else [value]
    if not values or any(type(item) is not int or not 1 <= item <= 10**9 for item in values):
        raise ValueError("use a whole number from 1 to 10^9, or a list [N_1, …, N_L, N_a] of them")
    return tuple(value) if isinstance(value, list) else value


def positive_or_positives(value: object) -> object:
    """Accept a positive finite number, or a list of them."""
    values = value if isinstance(value, list | tuple) else [value]
    if not values or any(
        type(item) not in (int, float) or not 0 < item <= float_info.max for item in values
    ):
        raise ValueError("use a positive number, or a list [σ0², σ1², …, σL², σa²] of them")
    return tuple(map(float, value)) if isinstance(value, list | tuple) else float(value)


def draws_or_table(value: object) -> object:
    """Accept a whole number of at least 4, or a table of them by space, or nothing."""
    if value is None:
        return None
    values = list(value.values()) if isinstance(value, dict) else [value]
    spaces = set(value) if isinstance(value, dict) else set()
    if spaces - set(DEFAULT_WARMUP) or any(type(item) is not int or item < 4 for item in values):
        raise ValueError(
            "use a whole number of at least 4, or a table of them by space, "
            "as in { order_parameters = 4000, weights = 500 }"
        )
    return value


def known_algorithm(value: object) -> object:
    """Accept the name of a registered algorithm, or "auto"."""
    if value != AUTO and value not in ALGORITHMS:
        *others, last = (f"'{name}'" for name in (AUTO, *ALGORITHMS))
        raise ValueError(f"use {', '.join(others)} or {last}")
    return value


class NetworkSection(Section):
    """The network: widths, prior variances, token readout, the heads it keeps, and its layers.

    `hypernetwork` says, for all layers of attention or in a list for each, whether its heads make
    two layers of weights, of values and of outputs, each with a width and a variance of its own.
    `values` "relu" and `layer_norm` are outside the theory: such a network is only sampled. `heads`
    counts the heads of attention, layer by layer.
    """

    widths: Annotated[int | tuple[int, ...], BeforeValidator(count_or_counts)]
    variances: Annotated[float | tuple[float, ...], BeforeValidator(positive_or_positives)] = 1.0
    readout: Literal["last", "first", "mean"] = "last"
    heads: tuple[tuple[CountFromZero, ...], ...] | None = None
    hypernetwork: Switch | tuple[Switch, ...] = False
    values: Literal["linear", "relu"] = "linear"
    layer_norm: Switch = False

    @field_validator("heads")
    @classmethod
    def keeps_different_heads(cls, heads):
        return heads if heads is None else check_kept_heads(heads)

    @property
    def fits_theory(self) -> bool:
        """Whether the network is a sum over attention paths."""
        return self.values == "linear" and not self.layer_norm

    def hypernetworks(self, attention_layers: int) -> tuple[bool, ...]:
        """Whether each layer of attention is a hypernetwork; InputError if a list does not fit."""
        if isinstance(self.hypernetwork, bool):
            return (self.hypernetwork,) * attention_layers
        if len(self.hypernetwork) != attention_layers:
            raise InputError(
                "network.hypernetwork",
                list(self.hypernetwork),
                f"give true, false, or a list of {attention_layers}, one per layer of attention",
            )
        return self.hypernetwork

    def layers(self, attention_layers: int) -> int:
        """L, the layers of value weights: two for each hypernetwork."""
        return attention_layers + sum(self.hypernetworks(attention_layers))

    @property
    def widest(self) -> int:
        """The largest width of any layer."""
        return self.widths if isinstance(self.widths, int) else max(self.widths)

    def layer_widths(self, layers: int) -> tuple[int, ...]:
        """Hidden widths (N_1, …, N_L, N_a); InputError if the list does not fit the layers."""
        return expanded("network.widths", self.widths, layers + 1, "[N_1, …, N_L, N_a]", layers)

    def layer_variances(self, layers: int) -> tuple[float, ...]:
        """Prior variances (σ0², σ1², …, σL², σa²); InputError if the list does not fit."""
        form = "[σ0², σ1², …, σL², σa²]"
        return expanded("network.variances", self.variances, layers + 2, form, layers)


class PosteriorSection(Section):
    """The posterior: its temperature is the variance of the likelihood.

    A spread is the standard deviation of the logarithm of what is not known beforehand: with one
    the temperature, or every prior variance of the network by itself, is sampled with the rest,
    log-normal about the value that is given. The theory is solved at that value.
    """

    temperature: Positive = 0.01
    temperature_spread: NotNegative = 0.0
    variance_spread: NotNegative = 0.0


class TheorySection(Section):
    """The saddle point: where to stop, and sub-networks whose GP limit is wanted as well.

    Without a tolerance the solver uses its own. `starts` counts the starting points, the first
    being the GP limit. `next_order` adds the correction of order 1/N where it can be computed, and
    `next_order_evidence` that of the evidence, which takes most of its time: by default where it
    takes little, or where an evidence is sampled or selected by. A sub-network lists the heads it
    keeps, layer by layer, counted within the heads that the network itself keeps. `own` gives
    theories of your own a name each and says where their predictions are: an .npz or NetCDF file of
    arrays, or FILE.py:FUNCTION.
    """

    tolerance: Positive | None = None
    max_steps: Count = 100
    starts: Count = 2
    seed: Seed = 0
    next_order: Switch = True
    next_order_evidence: Switch | Literal[AUTO] = AUTO
    subnetworks: tuple[tuple[tuple[CountFromZero, ...], ...], ...] = ()
    own: dict[Text, Text] = Field(default_factory=dict)

    @field_validator("subnetworks")
    @classmethod
    def keep_different_heads(cls, subnetworks):
        return tuple(check_kept_heads(kept) for kept in subnetworks)


class SamplerSection(Section):
    """The sampler: what it samples and how, and which points of a sweep it samples.

    A `space` or `algorithm` that is "auto" is chosen from the sizes of the problem: the one that is
    predicted to be fastest among those that the other settings allow.
    `largest_width` maps a space to a width: points of a sweep that are wider are theory only, and
    so are those that `at_widths`, where it is set, does not name. With `points` = "selected" only
    the best temperature is sampled, chosen by the theory for each value of the other swept keys:
    by its accuracy on the validation split, or by `selected_by` = "log_evidence" on training data.
    `warmup` has its default by space: whitened order parameters need little of it.
    `weight_draws` asks for so many exact draws of all weights from draws of order parameters;
    `keep_weights` keeps the weights that are sampled in the other two spaces.
    `evidence` asks for ln p(y) from chains over order parameters; importance draws always know it.
    `draws` may be a table by space, for sweeps over spaces; a space it leaves out gets the default.
    Without `target_acceptance` each algorithm uses its own. `gradient_precision` is that of
    algorithms that accept or refuse a whole trajectory: "auto" takes single precision where that
    costs no acceptance.
    With `until` = "trusted", the default of a recipe that does not name `draws`, chains go on until
    their diagnostics pass at two looks in a row, or `max_draws` a chain or `max_minutes` of
    computing are reached; one chain alone is never trusted and makes the default number of draws.
    `start_from` is the directory of a finished run: chains begin where its chains ended, with their
    step size and masses, and adapt on from there.
    `checkpoint_seconds` is the computing time after which draws and state are saved.
    """

    space: Literal[AUTO, Space] = AUTO
    algorithm: Annotated[str, BeforeValidator(known_algorithm)] = AUTO
    chains: Count = 4
    warmup: CountFromZero | None = None
    until: Annotated[Literal["trusted", "draws"], CHANGES_NO_DRAW] = "trusted"
    draws: Annotated[
        int | dict[Space, int] | None, BeforeValidator(draws_or_table), CHANGES_NO_DRAW
    ] = None
    max_draws: Annotated[Several, CHANGES_NO_DRAW] = 20_000
    max_minutes: Annotated[Positive, CHANGES_NO_DRAW] = 60.0
    thinning: Count = 1
    seed: Seed = 0
    precision: Literal["float64", "float32"] = "float64"
    weight_draws: CountFromZero = 0
    keep_weights: Switch = False
    evidence: Switch = False
    leapfrog_steps: Count = 64
    max_tree_depth: Annotated[int, Field(strict=True, ge=1, le=20)] = 10
    target_acceptance: Annotated[float, Field(strict=True, gt=0, lt=1)] | None = None
    gradient_precision: Literal["auto", "float64", "float32"] = "auto"
    largest_width: dict[Space, Count] = Field(default_factory=dict)
    at_widths: tuple[Count, ...] | None = None
    points: Literal["all", "selected"] = "all"
    selected_by: Literal["accuracy", "log_evidence"] = "accuracy"
    start_from: Text | None = None
    checkpoint_seconds: Annotated[NotNegative, CHANGES_NO_DRAW] = 10.0

    @property
    def warmup_steps(self) -> int:
        """Warm-up steps in force: those asked for, or the default of the space."""
        return DEFAULT_WARMUP[self.space] if self.warmup is None else self.warmup

    @property
    def draws_per_chain(self) -> int:
        """Draws of each chain that are asked for, in the space in force; else the default."""
        if isinstance(self.draws, dict):
            return self.draws.get(self.space, DEFAULT_DRAWS)
        return DEFAULT_DRAWS if self.draws is None else self.draws

    @property
    def most_draws(self) -> int:
        """Draws of each chain at most."""
        return self.max_draws if self.until == "trusted" else self.draws_per_chain

    def with_draws(self, draws: int) -> "SamplerSection":
        """The same sampler with a number of draws."""
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
        draws = {"draws": DEFAULT_DRAWS} if until == "draws" and not named else {}
        return {**settings, "until": until, **draws}

    @property
    def demands(self) -> list[tuple[tuple[str, ...], str]]:
        """The spaces of each setting that not all spaces have, and the words that say so."""
        own = None if self.algorithm == AUTO else ALGORITHMS[self.algorithm].spaces
        exact, of_weights = ("order_parameters",), ("upper_weights", "weights")
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

    def spaces_for(self, network: NetworkSection) -> tuple[str, ...]:
        """Those in which this network may be sampled: as it is linear or not, and by its width."""
        return tuple(
            space
            for space in self.spaces
            if (network.fits_theory or space == "weights")
            and network.widest <= self.largest_width.get(space, network.widest)
        )

    def samples(self, network: NetworkSection) -> bool:
        """Whether a network of these widths is sampled."""
        listed = self.at_widths is None or network.widest in self.at_widths
        return listed and bool(self.spaces_for(network))

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


def paired(of_attention: tuple, hypernetworks: tuple[bool, ...]) -> tuple:
    """One entry per layer of attention as one per layer of weights: two for a hypernetwork."""
    return tuple(
        entry
        for entry, is_pair in zip(of_attention, hypernetworks, strict=True)
        for _ in range(1 + is_pair)
    )


def check_kept_heads(kept: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Accept the heads kept per layer if each layer keeps some, none of them twice."""
    if not kept:
        raise ValueError("list the heads kept in each layer, as in [[0, 1], [0]]")
    for layer, heads in enumerate(kept, start=1):
        if not heads or len(set(heads)) != len(heads):
            raise ValueError(
                f"keep at least one head in layer {layer}, and none twice "
                f"(received {shortened(list(heads))})"
            )
    return kept
