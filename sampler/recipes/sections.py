"""The sections of a recipe: every setting with its type, limits, default and meaning.

A setting is declared here, or in the section of its task, and nowhere else: recipes, keywords of
Python functions, help, the reference of the site and the hash follow from the field. The docstring
of a field is its meaning; marks in its `Annotated` type say what else there is to know.
"""

from collections.abc import Iterable, Iterator, Mapping
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
)

from sampler.errors import InputError
from sampler.recipes.limits import (
    INFINITE,
    counts_or_infinite,
    different_heads,
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
        """Return the value, absolute where it is a path."""
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
    """The posterior.

    With a spread, the temperature is sampled with the rest, log-normal about the value that is
    given. The theory is solved at that value.
    """

    temperature: Positive = 0.01
    """𝒯, the variance of the likelihood."""
    temperature_spread: NotNegative = 0.0
    """Prior standard deviation of ln 𝒯; above 0, 𝒯 is sampled too."""


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
    """The correction of order 1/N as well, where it can be computed; that of the evidence where it
    takes little time, or where an evidence is sampled."""
    subnetworks: tuple[HeadNumbers, ...] = ()
    """The heads kept, layer by layer, of each sub-network whose GP limit is wanted, counted within
    the heads that the network itself keeps."""


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
