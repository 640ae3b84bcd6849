"""The shape of a deep multi-head attention network, validated once."""

import math
from dataclasses import dataclass
from numbers import Integral


@dataclass(frozen=True)
class Architecture:
    """Heads, widths, prior variances, input channels and outputs of one network.

    heads      H_1 … H_L, heads kept in each layer
    widths     N_1 … N_L, N_a, hidden widths, readout last
    variances  σ_0², σ_1² … σ_L², σ_a², prior variances of V_0, V_1 … V_L, a
    channels   D, input channels
    outputs    O

    Raises ValueError when lengths disagree, a size is not a positive integer, or a variance is not
    positive and finite.
    """

    heads: tuple[int, ...]
    widths: tuple[int, ...]
    variances: tuple[float, ...]
    channels: int
    outputs: int = 1

    def __post_init__(self) -> None:
        for name in ("heads", "widths", "variances"):
            if not isinstance(getattr(self, name), tuple):
                raise ValueError(f"{name} = {getattr(self, name)!r}: must be a tuple")
        if not self.heads:
            raise ValueError("heads = (): the network needs at least one attention layer")
        layers = len(self.heads)
        if len(self.widths) != layers + 1:
            raise ValueError(
                f"widths = {self.widths}: {layers} attention layers need {layers + 1} widths "
                "(N_1 … N_L, N_a)"
            )
        if len(self.variances) != layers + 2:
            raise ValueError(
                f"variances = {self.variances}: {layers} attention layers need {layers + 2} "
                "variances (σ_0² … σ_L², σ_a²)"
            )
        sizes = (
            *((f"heads[{i}]", n) for i, n in enumerate(self.heads)),
            *((f"widths[{i}]", n) for i, n in enumerate(self.widths)),
            ("channels", self.channels),
            ("outputs", self.outputs),
        )
        for name, size in sizes:
            if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
                raise ValueError(f"{name} = {size!r}: must be a positive integer")
        for i, variance in enumerate(self.variances):
            if not (math.isfinite(variance) and variance > 0):
                raise ValueError(f"variances[{i}] = {variance!r}: must be positive and finite")

    @classmethod
    def uniform(
        cls,
        heads: tuple[int, ...],
        width: int,
        channels: int,
        outputs: int = 1,
        variance: float = 1.0,
    ) -> "Architecture":
        """One width and one prior variance for every layer."""
        layers = len(heads)
        return cls(heads, (width,) * (layers + 1), (variance,) * (layers + 2), channels, outputs)

    @property
    def layers(self) -> int:
        """L, the number of attention layers."""
        return len(self.heads)

    @property
    def path_count(self) -> int:
        """Π = H_1 ··· H_L."""
        return math.prod(self.heads)

    @property
    def order_parameter_sizes(self) -> tuple[int, ...]:
        """Rows p_1 … p_{L+1} of the order parameters U_l [p_l, p_l]: p_l = H_l ··· H_L · O."""
        return order_parameter_sizes(self.heads, self.outputs)

    @property
    def order_parameter_variances(self) -> tuple[float, ...]:
        """Prior variances σ_1² … σ_L², σ_a² that scale each U_l given U_{l+1}."""
        return self.variances[1:]

    @property
    def coordinate_count(self) -> int:
        """Σ_l p_l (p_l + 1)/2, the free numbers in all order parameters."""
        return sum(p * (p + 1) // 2 for p in self.order_parameter_sizes)

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of V_0 [N_1, D], V_l [head, N_{l+1}, N_l] and a [output, N_a]."""
        shapes: dict[str, tuple[int, ...]] = {"V_0": (self.widths[0], self.channels)}
        for layer, heads in enumerate(self.heads):
            shapes[f"V_{layer + 1}"] = (heads, self.widths[layer + 1], self.widths[layer])
        shapes["a"] = (self.outputs, self.widths[-1])
        return shapes

    @property
    def weight_count(self) -> int:
        """Number of weights in the network."""
        return sum(math.prod(shape) for shape in self.weight_shapes.values())

    @property
    def weight_variances(self) -> dict[str, float]:
        """Prior variance of each array of `weight_shapes`."""
        return dict(zip(self.weight_shapes, self.variances, strict=True))


def order_parameter_sizes(heads: tuple[int, ...], outputs: int) -> tuple[int, ...]:
    """p_1 … p_{L+1}, p_l = H_l ··· H_L · O, for given heads per layer and outputs."""
    return tuple(math.prod(heads[layer:]) * outputs for layer in range(len(heads) + 1))
