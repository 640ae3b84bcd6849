"""The sections [network], [posterior] and [theory]: model and theory."""

from sys import maxsize
from typing import Any, ClassVar, Literal, NamedTuple

from sampler.errors import InputError
from sampler.settings.section import Section
from sampler.settings.types import (
    INFINITE,
    Count,
    HeadNumbers,
    NotNegative,
    Positive,
    Seed,
    Switch,
    Variances,
    WidthsOrInfinite,
)
from theory.architecture import Architecture, Values

FORM_OF_WIDTHS = "[N_1, …, N_L, N_a]"


class Mlp(Section):
    """The layers between attention layers: W_2 φ(W_1 z/√N)/√M for each token."""

    table: ClassVar = "network.mlp"

    width: Count
    """M, the units of each."""
    activation: Literal["relu", "erf", "gelu"] = "relu"
    """φ, scaled so that it keeps the second moment of a standard normal number."""


class OutsideTheory(NamedTuple):
    """A setting that the theory does not cover, and its value."""

    setting: str
    value: Any


class Network(Section):
    """The network: widths, prior variances, token readout, the heads it keeps, and its layers.

    Lists by layer meet the layers of attention of the task.
    """

    table: ClassVar = "network"

    widths: WidthsOrInfinite
    """N of all layers, or [N_1, …, N_L, N_a]; with learned heads also "infinite", where only
    attention is sampled."""
    variances: Variances = 1.0
    """Prior variance of all weights, or [σ0², σ1², …, σL², σa²]."""
    readout: Literal["last", "first", "mean"] = "last"
    """The token that is read out, or "mean" of all, which tasks of images and of trained models set
    by default."""
    heads: HeadNumbers | None = None
    """The heads that each layer of attention keeps, by number from 0; all by default."""
    hypernetwork: Switch | tuple[Switch, ...] = False
    """Whether heads make two layers of weights, of values and of outputs, each with a width and a
    variance of its own: in all layers of attention, or a list by layer."""
    values: Values = "linear"
    """The function of values, scaled to keep the second moment. All but "linear" are outside the
    theory: of these the infinite-width limit is solved."""
    norm: Literal["none", "before", "after"] = "none"
    """Normalisation of the hidden vector z of each token: of what attention, MLP and readout read
    ("before"), or of z after each attention and MLP ("after"); outside the theory, and only
    sampled."""
    residual: Switch = False
    """Whether attention and MLP are added to their input, (z + …)/√2, which needs equal widths;
    outside the theory, and only sampled."""
    mlp: Mlp | None = None
    """A layer W_2 φ(W_1 z/√N)/√M after each attention: a table with `width` M and `activation`
    "relu", "erf" or "gelu"; outside the theory, and only sampled. Its weights have the prior
    variance of the values below it."""

    @property
    def outside_theory(self) -> OutsideTheory | None:
        """A setting that the theory does not cover; None where it covers the network."""
        for key in ("values", "norm", "residual", "mlp"):
            value = getattr(self, key)
            if value != type(self).model_fields[key].default:
                return OutsideTheory(f"network.{key}", value)
        return None

    def hypernetworks(self, attention_layers: int) -> tuple[bool, ...]:
        """Whether each layer of attention is a hypernetwork; InputError if a list does not fit."""
        form = "[true, false, …]"
        return by_layer("network.hypernetwork", self.hypernetwork, attention_layers, form)

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
        return by_layer("network.widths", self.widths, layers + 1, FORM_OF_WIDTHS)

    def layer_variances(self, layers: int) -> tuple[float, ...]:
        """Prior variances (σ0², σ1², …, σL², σa²); InputError if the list does not fit."""
        form = "[σ0², σ1², …, σL², σa²]"
        return by_layer("network.variances", self.variances, layers + 2, form)

    def architecture(self, heads: tuple[int, ...], channels: int, outputs: int) -> Architecture:
        """The network on a task of these sizes: widths and prior variances of every layer."""
        widths, variances = self.layer_widths(len(heads)), self.layer_variances(len(heads))
        return Architecture(heads, widths, variances, channels, outputs)


class Posterior(Section):
    """The posterior.

    With a spread, the temperature is sampled with the rest, log-normal about the value that is
    given. The theory is solved at that value.
    """

    table: ClassVar = "posterior"

    temperature: Positive = 0.01
    """𝒯, the variance of the likelihood."""
    temperature_spread: NotNegative = 0.0
    """Prior standard deviation of ln 𝒯; above 0, 𝒯 is sampled."""

    @property
    def given_temperature(self) -> float | None:
        """The temperature; None where it is sampled."""
        return None if self.temperature_spread else self.temperature


class Theory(Section):
    """The saddle point, its correction, and sub-networks whose GP limit is wanted as well."""

    table: ClassVar = "theory"

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


def by_layer(setting: str, value: Any, length: int, form: str) -> tuple:
    """Return one value for every layer, or the list of them.

    Raises InputError if the list has another length.
    """
    if not isinstance(value, tuple):
        return (value,) * length
    if len(value) != length:
        remedy = f"give one value, or a list {form} of {length} values for the layers of attention"
        raise InputError(setting, list(value), remedy)
    return value
