"""What Attention-SH saves: multiply-adds and time of attention whose keys and values are pooled.

One layer of heads, Z = A V of every head with its own values, forward alone and with the gradient
of Σ sin Z. With A = S P, S = softmax(Q (P K)ᵀ/√G), the product S (P V) is compared with softmax
over all keys, and with the same A multiplied out before it meets the values.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from sampler.attention.heads import by_head, head_groups, layer_matrices
from sampler.attention.variants import AttentionVariant, ScaledHeads, Softmax

HEADS, SIZE = 4, 32
# Examples by tokens: about as many rows of queries in each.
EXAMPLES = {48: 64, 256: 12, 512: 6}


@dataclass(frozen=True)
class Variant:
    """Scales of the heads, and whether A is multiplied out."""

    name: str
    scales: tuple[int, ...]
    whole: bool = False

    @property
    def of_heads(self) -> tuple[AttentionVariant, ...]:
        return tuple(
            ScaledHeads(scale=scale) if max(self.scales) > 1 else Softmax() for scale in self.scales
        )


VARIANTS = (
    Variant("softmax", (1,) * HEADS),
    Variant("scales 1, 1, 2, 4", (1, 1, 2, 4)),
    Variant("the same, A multiplied out", (1, 1, 2, 4), whole=True),
    Variant("scale 2 in every head", (2,) * HEADS),
    Variant("scale 4 in every head", (4,) * HEADS),
)


def attended(of_heads: tuple[AttentionVariant, ...], queries, keys, values):
    """Ωᵀ V [example, head, query, channel], with Ω never multiplied out."""
    groups = head_groups(of_heads, queries, keys)
    found = []
    for group in groups:
        of_group = jnp.concat([values[:, head : head + 1] for head in group.heads], axis=1)
        found.append(group.weights.swapaxes(2, 3) @ group.variant.pooled(of_group))
    return by_head(groups, found)


def multiply_adds(variant: Variant, tokens: int, examples: int) -> int:
    """Multiply-adds of Q (P K)ᵀ and S (P V), an addition of an average counted as one.

    Multiplied out, A V takes the place of S (P V), after S P with the matrix P. No softmax.
    """
    count = 0
    for scale in variant.scales:
        pooled, averaged = tokens // scale, tokens * SIZE if scale > 1 else 0
        count += tokens * pooled * SIZE + averaged
        if variant.whole:
            count += tokens * tokens * SIZE + (tokens * pooled * tokens if scale > 1 else 0)
        else:
            count += tokens * pooled * SIZE + averaged
    return examples * count


def operations(program: jax.stages.Compiled) -> float:
    """Floating-point operations as XLA counts them, 2 for a multiply-add; NaN where it does not."""
    return float((program.cost_analysis() or {}).get("flops", float("nan")))


def measure_pooling(repetitions: int) -> Iterator[str]:
    """A table with a row for each length and variant; ratios to softmax of the same repetition."""
    yield (
        "| tokens | attention | multiply-adds, 10⁶ | XLA's operations, 10⁶ | forward, ms | "
        "times faster (min–max) | with gradient, ms | times faster (min–max) |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for tokens, examples in EXAMPLES.items():
        yield from rows_for(tokens, examples, repetitions)


def rows_for(tokens: int, examples: int, repetitions: int) -> list[str]:
    """All variants on the same queries, keys and values."""
    shape = (3, examples, HEADS, tokens, SIZE)
    drawn = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    arguments = tuple(map(jnp.asarray, drawn))
    programs = {}
    for variant in VARIANTS:

        def forward(queries, keys, values, variant=variant):
            if variant.whole:
                return layer_matrices(variant.of_heads, queries, keys).swapaxes(2, 3) @ values
            return attended(variant.of_heads, queries, keys, values)

        def objective(queries, keys, values, forward=forward):
            return jnp.sum(jnp.sin(forward(queries, keys, values)))

        gradient = jax.grad(objective, argnums=(0, 1, 2))
        programs[variant.name] = tuple(
            jax.jit(function).lower(*arguments).compile() for function in (forward, gradient)
        )
    seconds: dict[tuple[str, int], list[float]] = {}
    for _ in range(repetitions):
        for name, compiled in programs.items():
            for which, program in enumerate(compiled):
                taken = seconds_of(program, arguments)
                seconds.setdefault((name, which), []).append(taken)
    rows = []
    for variant in VARIANTS:
        cells = [str(tokens), variant.name]
        cells.append(f"{multiply_adds(variant, tokens, examples) / 1e6:.1f}")
        cells.append(f"{operations(programs[variant.name][0]) / 1e6:.1f}")
        for which in range(2):
            taken, softmax = seconds[variant.name, which], seconds["softmax", which]
            ratios = [one / other for one, other in zip(softmax, taken, strict=True)]
            cells.append(f"{1e3 * statistics.median(taken):.3g}")
            cells.append(
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
                if variant.name != "softmax"
                else "1"
            )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def seconds_of(program: Callable, arguments: tuple) -> float:
    """The least of three calls, one right after the other."""
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        taken.append(time.perf_counter() - start)
    return min(taken)
