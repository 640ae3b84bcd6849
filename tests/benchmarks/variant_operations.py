"""What attention variants cost: operations, bytes and memory as XLA counts them, and time.

One layer of four heads, Z = A V of every head with its own values, forward alone and with the
gradient of Σ sin Z by queries, keys and values. Counts are those of the compiled program: they are
the same on a busy machine. Everything is relative to softmax.
"""

import statistics
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from sampler.attention.variants import AttentionVariant, BatchNormalised, ScaledHeads, Softmax
from tests.benchmarks.pooled_attention import attended, operations, seconds_of

HEADS = 4
LENGTHS, CHANNELS = (64, 256, 1024), (16, 64)
# Rows of queries in each call, so that examples are fewer the longer they are.
ROWS = 4096


def scaled(scales: tuple[int, ...], beta: float | None = None) -> tuple[AttentionVariant, ...]:
    """Attention-SH, and with a β BN+SH."""
    return tuple(ScaledHeads(scale=scale, beta=beta) for scale in scales)


VARIANTS = {
    "softmax": (Softmax(),) * HEADS,
    "BN": (BatchNormalised(),) * HEADS,
    "SH, scales 1, 1, 2, 4": scaled((1, 1, 2, 4)),
    "BN + SH, scales 1, 1, 2, 4": scaled((1, 1, 2, 4), beta=1.0),
    "SH, scale 4 in every head": scaled((4,) * HEADS),
    "BN + SH, scale 4 in every head": scaled((4,) * HEADS, beta=1.0),
}


def programs_of(
    of_heads: tuple[AttentionVariant, ...], arguments: tuple
) -> tuple[jax.stages.Compiled, jax.stages.Compiled]:
    """Forward, and with the gradient."""

    def forward(queries, keys, values):
        return attended(of_heads, queries, keys, values)

    def objective(*arguments):
        return jnp.sum(jnp.sin(forward(*arguments)))

    functions = (forward, jax.grad(objective, argnums=(0, 1, 2)))
    forward, gradient = (jax.jit(function).lower(*arguments).compile() for function in functions)
    return forward, gradient


def counts(program: jax.stages.Compiled) -> tuple[float, float, float]:
    """Floating-point operations, bytes read and written, and bytes of temporary memory."""
    accessed = (program.cost_analysis() or {}).get("bytes accessed", float("nan"))
    return operations(program), float(accessed), float(program.memory_analysis().temp_size_in_bytes)


def measure_variants(repetitions: int) -> Iterator[str]:
    """A row for each length, number of channels and variant, relative to softmax."""
    yield (
        "| tokens | channels | attention | operations | bytes | memory | time (min–max) | "
        "gradient: operations | bytes | memory | time (min–max) |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for tokens in LENGTHS:
        for channels in CHANNELS:
            yield from rows_for(tokens, channels, repetitions)


def rows_for(tokens: int, channels: int, repetitions: int) -> Iterator[str]:
    """All variants on the same queries, keys and values; that of softmax in units, not ratios."""
    shape = (3, ROWS // tokens, HEADS, tokens, channels)
    drawn = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    arguments = tuple(map(jnp.asarray, drawn))
    programs = {name: programs_of(of_heads, arguments) for name, of_heads in VARIANTS.items()}
    seconds = {(name, which): [] for name in programs for which in range(2)}
    for _ in range(repetitions):
        for name, which in seconds:
            seconds[name, which].append(seconds_of(programs[name][which], arguments))
    for name, both in programs.items():
        cells = [str(tokens), str(channels), name]
        for which, program in enumerate(both):
            found, softmax = counts(program), counts(programs["softmax"][which])
            if name == "softmax":
                taken = statistics.median(seconds[name, which])
                flops, accessed, memory = (count / 1e6 for count in found)
                cells += [f"{flops:.0f}·10⁶", f"{accessed:.0f} MB", f"{memory:.1f} MB"]
                cells.append(f"{1e3 * taken:.3g} ms")
                continue
            cells += [f"{one / other:.2f}" for one, other in zip(found, softmax, strict=True)]
            pairs = zip(seconds[name, which], seconds["softmax", which], strict=True)
            ratios = [one / other for one, other in pairs]
            cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})")
        yield f"| {' | '.join(cells)} |"
