"""The network that the theory describes: its sizes, its attention paths, its priors.

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
# Up to this many coordinates the Hessian is formed and factorised; above, only its products.
DENSE_COORDINATES = 500
# Up to this many Bartlett coordinates the Hessian of the exact posterior is formed at its mode.
HESSIAN_COORDINATES = 2500
# The explicit second derivative of the energy holds (p_1 D)² numbers, with about four copies at its
# peak (2.2 GB at this limit); above it, products only.
DENSE_HESSIAN_NUMBERS = 2**26
# The second derivatives of the next order hold (p_1 D)² and p_1⁴ numbers, with some copies of each.
LARGEST_BLOCKS = 2**26


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
        """Rows that stand for so many examples (`theory.learning_problem`): Π D at most."""
        return min(examples, self.path_count * self.channels)

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
        """Number of free entries of all order parameters, Σ_l p_l (p_l + 1)/2."""
        return sum(p * (p + 1) // 2 for p in self.order_parameter_sizes)

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of V_0 [N_1, D], V_l [head, N_{l+1}, N_l] and a [output, N_a]."""
        return weight_shapes(self.heads, self.widths, self.channels, self.outputs)

    @property
    def weight_count(self) -> int:
        """Number of weights in the network, N_1 D + Σ_l H_l N_l N_{l+1} + O N_a."""
        return weight_count(self.heads, self.widths, self.channels, self.outputs)

    @property
    def sizes(self) -> "Architecture":
        """This architecture with variances of 1: equal for all whose weights have equal shapes."""
        return replace(self, variances=(1.0,) * len(self.variances))

    @property
    def weight_layers(self) -> dict[str, int]:
        """Place of each array of `weight_shapes` among the variances."""
        return {name: place for place, name in enumerate(self.weight_shapes)}

    @property
    def weight_variances(self) -> dict[str, float]:
        """Prior variance of each array of `weight_shapes`."""
        return dict(zip(self.weight_shapes, self.variances, strict=True))


def is_regular(architecture: Architecture) -> bool:
    """Whether every layer is at least as wide as its order parameter is large, N_l ≥ p_l."""
    sizes = zip(architecture.widths, architecture.order_parameter_sizes, strict=True)
    return all(width >= size for width, size in sizes)


def is_dense(architecture: Architecture) -> bool:
    """Whether the Hessian of the action is small enough to be formed and factorised."""
    numbers = (architecture.order_parameter_sizes[0] * architecture.channels) ** 2
    return architecture.coordinate_count <= DENSE_COORDINATES and numbers <= DENSE_HESSIAN_NUMBERS


def has_next_order(architecture: Architecture, coordinates: int) -> bool:
    """Whether the second derivatives of the next order, in so many coordinates, can be stored."""
    rows = architecture.order_parameter_sizes[0]
    numbers = max((rows * architecture.channels) ** 2, rows**4, rows**2 * coordinates)
    return coordinates <= HESSIAN_COORDINATES and numbers <= LARGEST_BLOCKS


def order_parameter_sizes(heads: Sequence[int], outputs: int) -> tuple[int, ...]:
    """Sizes p_1 … p_{L+1}, p_l = H_l ··· H_L · O, for given heads per layer and outputs."""
    return tuple(math.prod(heads[layer:]) * outputs for layer in range(len(heads) + 1))


def bartlett_coordinate_count(heads: Sequence[int], widths: Sequence[int], outputs: int) -> int:
    """Number of coordinates of all Bartlett factors, Σ_l rows · rank − rank (rank − 1)/2.

    The factor of layer l has H_l r_{l+1} rows and rank r_l = min(N_l, H_l r_{l+1}), the one of the
    readout O rows. Equal to `Architecture.coordinate_count` where every N_l ≥ p_l.
    """
    rows, count = outputs, 0
    for width, heads_below in zip(reversed(widths), (*reversed(heads), 1), strict=True):
        rank = min(width, rows)
        count += rows * rank - rank * (rank - 1) // 2
        rows = heads_below * rank
    return count


def weight_shapes(
    heads: Sequence[int], widths: Sequence[int], channels: int, outputs: int
) -> dict[str, tuple[int, ...]]:
    """Shapes of V_0 [N_1, D], V_l [head, N_{l+1}, N_l] and a [output, N_a], by name."""
    shapes: dict[str, tuple[int, ...]] = {"V_0": (widths[0], channels)}
    for layer, count in enumerate(heads):
        shapes[f"V_{layer + 1}"] = (count, widths[layer + 1], widths[layer])
    return shapes | {"a": (outputs, widths[-1])}


def weight_count(heads: Sequence[int], widths: Sequence[int], channels: int, outputs: int) -> int:
    """Number of weights in the network, N_1 D + Σ_l H_l N_l N_{l+1} + O N_a."""
    return sum(
        math.prod(shape) for shape in weight_shapes(heads, widths, channels, outputs).values()
    )


def all_heads(counts: Sequence[int]) -> list[tuple[int, int]]:
    """Layer and number of every head, from 0, of layers with so many; lowest layer first."""
    return [(layer, head) for layer, count in enumerate(counts) for head in range(count)]


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
        return np.array(list(itertools.product(*(range(h) for h in self.heads))), dtype=int)

    def flat(self, path: Sequence[int]) -> int:
        """Position of one path (h_1 … h_L) in the flat order.

        Raises IndexError when a head index does not exist in its layer.
        """
        if len(path) != len(self.heads):
            raise IndexError(f"path {tuple(path)}: needs {len(self.heads)} heads, one per layer")
        for layer, (head, count) in enumerate(zip(path, self.heads, strict=True), start=1):
            if not 0 <= head < count:
                raise IndexError(f"path {tuple(path)}: layer {layer} has heads 0 … {count - 1}")
        return int(np.ravel_multi_index(tuple(path), self.heads))

    def uses(self, layer: int, head: int) -> Bool[np.ndarray, " path"]:
        """Which paths pass through `head` of `layer` (both counted from 0)."""
        return self.indices[:, layer] == head

    def through(self, heads: Collection[tuple[int, int]]) -> Bool[np.ndarray, " path"]:
        """Which paths pass through any of these heads (layer, head)."""
        found = np.zeros(self.count, bool)
        for layer, head in heads:
            found |= self.uses(layer, head)
        return found

    def subset(self, kept: Sequence[Sequence[int]]) -> Int[np.ndarray, " kept_path"]:
        """Flat positions of the paths whose heads are all kept, in the order of the kept heads.

        `kept` lists head indices per layer. Raises IndexError for a head that does not exist.
        """
        return np.array([self.flat(path) for path in itertools.product(*kept)], dtype=int)


@dataclass(frozen=True)
class HyperPriors:
    """A log-normal prior about the temperature that a learning problem gives.

        ln 𝒯 ~ N(ln 𝒯_0, s_𝒯²)

    temperature_spread  s_𝒯; 0 fixes 𝒯

    Samplers draw 𝒯 together with the rest; the theory is solved at 𝒯_0. Raises ValueError for a
    spread that is negative or not finite.
    """

    temperature_spread: float = 0.0

    def __post_init__(self) -> None:
        spread = self.temperature_spread
        if not (math.isfinite(spread) and spread >= 0):
            raise ValueError(f"temperature_spread = {spread!r}: must be finite, and 0 or more")


KNOWN = HyperPriors()


# Rows of K that are stored together, up to the longest of them; fewer rows, less is stored twice.
SMALLEST_BLOCK, BLOCKS = 64, 8
# Above this many bytes path kernels are never stored: the feature form needs far less. Those of the
# training examples with themselves are read in every gradient, and may take more.
STORED_BYTES = 64 * 2**20
STORED_TRAINING_BYTES = 2**29


def row_blocks(examples: int) -> list[tuple[int, int]]:
    rows = max(SMALLEST_BLOCK, -(-examples // BLOCKS))
    return [(start, min(start + rows, examples)) for start in range(0, examples, rows)]


def stored_numbers(examples: int, paths: int) -> int:
    pairs = paths * (paths + 1) // 2
    return pairs * sum((end - start) * end for start, end in row_blocks(examples))


def stored_bytes(examples: int, architecture: Architecture) -> int:
    """Bytes of the path kernels of examples with themselves, all of them."""
    if architecture.outputs == 1:
        return 8 * stored_numbers(examples, architecture.path_count)
    return 8 * (architecture.path_count * examples) ** 2


def storing_pays(examples: int, others: int | None, architecture: Architecture) -> bool:
    """Whether storing the path kernels is small enough and cheaper than the feature form.

    Per assembly the kernel form reads pairs · P · P' numbers once (half of them for a set with
    itself, `others` = None, and one output); the feature form multiplies
    p_1 D P P' + (P + P') D p_1² numbers. Reading a number costs about as much as eight products.
    """
    paths, rows = architecture.path_count, architecture.order_parameter_sizes[0]
    one_output = architecture.outputs == 1
    limit = STORED_BYTES
    if others is None and one_output:
        stored, limit = stored_numbers(examples, paths), STORED_TRAINING_BYTES
    else:
        pairs = paths * (paths + 1) // 2 if one_output else paths**2
        stored = pairs * examples * (others or examples)
    others = others or examples
    assembled = stored * architecture.outputs**2
    features = (
        rows
        * architecture.channels
        * (examples * others * architecture.outputs**2 + (examples + others) * rows)
    )
    return 8 * stored <= limit and 8 * assembled <= features


# Bytes of what is computed at a time for many examples.
CHUNK_BYTES = 256 * 2**20


def examples_at_a_time(examples: int, bytes_of_each: int) -> int:
    """How many examples (or other parts) fit into `CHUNK_BYTES` together; at least one."""
    return max(1, min(examples, CHUNK_BYTES // bytes_of_each))
