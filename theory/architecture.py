"""The network that the theory describes: its sizes, prior variances and attention paths.

Nothing here needs JAX, so that sizes are known without it.
"""

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int

# Functions of values.
Values = Literal["linear", "relu", "erf", "gelu"]


@dataclass(frozen=True)
class Architecture:
    """Heads, widths, prior variances, input channels and outputs of one network.

    heads      H_1 … H_L, heads of each layer
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
        layers = len(self.heads)
        if layers == 0:
            raise ValueError("heads = (): the network needs at least one attention layer")
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
        sizes = {"channels": self.channels, "outputs": self.outputs}
        sizes |= {f"heads[{i}]": count for i, count in enumerate(self.heads)}
        sizes |= {f"widths[{i}]": width for i, width in enumerate(self.widths)}
        for name, size in sizes.items():
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
        """Return an architecture with one width and one prior variance for every layer."""
        layers = len(heads)
        return cls(heads, (width,) * (layers + 1), (variance,) * (layers + 2), channels, outputs)

    @property
    def layers(self) -> int:
        """Number of attention layers, L."""
        return len(self.heads)

    @property
    def path_count(self) -> int:
        """Number of attention paths, Π = H_1 ··· H_L."""
        return math.prod(self.heads)

    def rows_of(self, examples: int) -> int:
        """Rows that represent a number of examples (`theory.learning_problem`): Π D at most."""
        return min(examples, self.path_count * self.channels)

    @property
    def order_parameter_sizes(self) -> tuple[int, ...]:
        """Rows p_1 … p_{L+1} of the order parameters U_l [p_l, p_l]: p_l = H_l ··· H_L · O."""
        return tuple(
            math.prod(self.heads[layer:]) * self.outputs for layer in range(self.layers + 1)
        )

    @property
    def order_parameter_variances(self) -> tuple[float, ...]:
        """Prior variances σ_1² … σ_L², σ_a² that scale each U_l given U_{l+1}."""
        return self.variances[1:]

    @property
    def coordinate_count(self) -> int:
        """Number of free entries of all order parameters, Σ_l p_l (p_l + 1)/2."""
        return sum(p * (p + 1) // 2 for p in self.order_parameter_sizes)

    @property
    def bartlett_shapes(self) -> tuple["BartlettShape", ...]:
        """Shapes of the Bartlett factors B_1 … B_{L+1} of `theory.wishart_chain`.

        B_l has H_l r_{l+1} rows and rank r_l = min(N_l, H_l r_{l+1}), that of the readout O rows.
        """
        rows, shapes = self.outputs, []
        for width, heads_below in zip(self.widths[::-1], (*self.heads[::-1], 1), strict=True):
            shapes.append(BartlettShape(rows, min(width, rows)))
            rows = heads_below * shapes[-1].rank
        return tuple(shapes[::-1])

    @property
    def bartlett_coordinate_count(self) -> int:
        """Number of coordinates of all Bartlett factors.

        Equal to `coordinate_count` where every N_l ≥ p_l.
        """
        return sum(shape.size for shape in self.bartlett_shapes)

    @property
    def is_regular(self) -> bool:
        """Whether every layer is at least as wide as its order parameter is large, N_l ≥ p_l."""
        sizes = zip(self.widths, self.order_parameter_sizes, strict=True)
        return all(width >= size for width, size in sizes)

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of V_0 [N_1, D], V_l [head, N_{l+1}, N_l] and a [output, N_a]."""
        shapes = {"V_0": (self.widths[0], self.channels)}
        for layer, count in enumerate(self.heads):
            shapes[f"V_{layer + 1}"] = (count, self.widths[layer + 1], self.widths[layer])
        return shapes | {"a": (self.outputs, self.widths[-1])}

    @property
    def weight_count(self) -> int:
        """Number of weights in the network, N_1 D + Σ_l H_l N_l N_{l+1} + O N_a."""
        return sum(map(math.prod, self.weight_shapes.values()))

    @property
    def weight_layers(self) -> dict[str, int]:
        """Place of each array of `weight_shapes` among the variances."""
        return {name: place for place, name in enumerate(self.weight_shapes)}

    @property
    def sizes(self) -> "Architecture":
        """This architecture with variances of 1: equal for all whose weights have equal shapes."""
        return replace(self, variances=(1.0,) * len(self.variances))


@dataclass(frozen=True)
class BartlettShape:
    """Shape of one Bartlett factor, which has entries on and below its diagonal only."""

    rows: int
    rank: int

    @property
    def below_diagonal(self) -> int:
        """Number of entries below the diagonal."""
        return self.rows * self.rank - self.rank * (self.rank + 1) // 2

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.rank + self.below_diagonal


@dataclass(frozen=True)
class AttentionPaths:
    """All attention paths π = (h_1 … h_L); flat order: h_1 slowest, h_L fastest."""

    heads: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of attention paths, Π = H_1 ··· H_L."""
        return math.prod(self.heads)

    @property
    def indices(self) -> Int[np.ndarray, "path layer"]:
        """Head index of every path in every layer."""
        return np.array(list(itertools.product(*map(range, self.heads))), dtype=int)

    def uses(self, layer: int, head: int) -> Bool[np.ndarray, " path"]:
        """Which paths pass through `head` of `layer` (both counted from 0)."""
        return self.indices[:, layer] == head

    def through(self, heads: Collection[tuple[int, int]]) -> Bool[np.ndarray, " path"]:
        """Which paths pass through any of these heads (layer, head)."""
        return sum((self.uses(*head) for head in heads), np.zeros(self.count, bool))

    def subset(self, chosen: Sequence[Sequence[int]]) -> Int[np.ndarray, " chosen_path"]:
        """Flat positions of the paths all of whose heads are chosen, in the order of these heads.

        `chosen` lists head indices per layer. Raises IndexError for a head that does not exist.
        """
        if len(chosen) != len(self.heads):
            raise IndexError(f"heads of {len(chosen)} layers: the network has {len(self.heads)}")
        for layer, (heads, count) in enumerate(zip(chosen, self.heads, strict=True), start=1):
            for head in heads:
                if not 0 <= head < count:
                    raise IndexError(f"head {head}: layer {layer} has heads 0 … {count - 1}")
        places = np.arange(self.count).reshape(self.heads)
        return places[np.ix_(*chosen)].reshape(-1)


def order_parameter_names(layers: int) -> tuple[str, ...]:
    """Names of U_1, U_2 … U_L and U_a in every table."""
    upper = (f"order_parameter_layer_{layer}" for layer in range(2, layers + 1))
    return "order_parameter", *upper, "readout_order_parameter"
