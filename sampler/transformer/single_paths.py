"""Every head of every layer as one attention path, with the embedding and the MLPs: ξ of each.

The residual stream at the readout is the embedding and what every head and every MLP wrote into it.
Each of them is a path of a network with one layer,
    ξ^{l,h} = Σ_t τ_t r^l_t Σ_s Ω^{l,h}_{st} u^l_s,
    ξ^0 = Σ_t τ_t r^0_t x_t,   ξ^l = Σ_t τ_t r_t m^l_t,
where τ reads the answer off, u^l is what the values of layer l multiply, x the stream before the
first layer, m^l the output of an MLP, and r the product of 1/σ of all normalisations that the
stream passes afterwards.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from sampler.attention.padding import PADDING_WEIGHT, Real
from sampler.errors import InputError
from sampler.transformer.chosen_layers import ChosenLayers
from sampler.transformer.forward_pass import Forward, SeenAttention, as_numpy, device_of
from sampler.transformer.recording import (
    as_tensors,
    recorded_batches,
    refuse_infinite,
    taken,
)
from sampler.transformer.stream import Call, Stream, counted, find_stream, first_given

EMBEDDING = "embedding"
# τ of every example, and of every label of its sequence.
Reading = Float[np.ndarray, "example label token"]


@dataclass(frozen=True)
class SinglePaths:
    """Which paths of a model are recorded, and along which stream.

    stream   the normalisations that each of them passes
    heads    kept heads of every layer, by number from 0
    numbers  of the layers in the model, from 1
    modules  of the layers, by their names in the model
    mlps     whether there is a path of every MLP
    """

    stream: Stream
    heads: tuple[tuple[int, ...], ...]
    numbers: tuple[int, ...]
    modules: tuple[str, ...]
    mlps: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all paths: "3.0" is head 0 of layer 3, "mlp 3" the MLP behind it."""
        heads = [
            f"{number}.{head}"
            for number, of_layer in zip(self.numbers, self.heads, strict=True)
            for head in of_layer
        ]
        mlps = [f"mlp {number}" for number in self.numbers] if self.mlps else []
        return (*heads, EMBEDDING, *mlps)


@dataclass
class Along:
    """Numbers that a forward pass has along its stream, by calls of modules.

    spreads  1/σ [example, token] of each normalisation
    start    x before the first layer, where a normalisation comes between
    mlps     m of each MLP [example, token, channel]
    """

    spreads: dict[Call, np.ndarray] = field(default_factory=dict)
    start: np.ndarray | None = None
    mlps: dict[Call, np.ndarray] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget one pass before the next."""
        self.spreads, self.start, self.mlps = {}, None, {}


def find_paths(
    model: Any, inputs: Any, chosen: ChosenLayers, mlps: bool, forward: Forward | None
) -> SinglePaths:
    """Find the paths of a model from the first of these examples.

    Raises InputError where there is no residual stream, no such head, or no MLP in each layer.
    """
    first = taken(as_tensors(inputs), [0], device_of(model))
    stream, seen = find_stream(model, first, forward)
    numbers = [layer.number for layer in seen.layers]
    heads = {
        numbers[place]: chosen.kept(numbers[place], seen.weights[place].shape[1], all_may_go=True)
        for place in chosen.places(numbers)
    }
    if mlps and stream.mlps is None:
        remedy = "each layer must write what its heads send, and then what its MLP does"
        raise InputError("mlps", True, remedy)
    modules = tuple(layer.module for layer in seen.layers)
    kept = tuple(tuple(heads.get(number, ())) for number in numbers)
    return SinglePaths(stream, kept, tuple(numbers), modules, mlps)


def recorded_paths(
    model: Any,
    inputs: Any,
    paths: SinglePaths,
    reading: Callable[[Real, list[int]], Reading],
    forward: Forward | None,
    batch_size: int,
) -> Float[np.ndarray, "example label path channel"]:
    """ξ of every path, example and label; `reading(real, examples)` gives τ of some examples.

    real is false for padding [example, token], and examples are their numbers. Raises InputError
    where a token that is read attends to padding, and for numbers that are not finite.
    """
    tensors, along, stream = as_tensors(inputs), Along(), paths.stream
    writers = set(stream.writers or ()) if paths.mlps else set()
    order: list[int] = []
    found: list[np.ndarray] = []

    def note(module: Any, positional: tuple, named: dict, returned: Any) -> None:
        call, given = calls.innermost, first_given(positional, named)
        if call in stream.norms:
            along.spreads[call] = as_numpy(stream.norms[call].inverse_spread(given))
        if call == stream.start:
            along.start = as_numpy(given)
        if call in writers:
            along.mlps[call] = as_numpy(returned)

    with counted(model, note) as calls:
        for examples, seen, real in recorded_batches(model, tensors, forward, batch_size):
            refuse_other_layers(paths, seen, along)
            found.append(attended_paths(paths, seen, along, reading(real, examples), real))
            order += examples
            calls.counts.clear()
            along.clear()
    attended = np.concatenate(found)[np.argsort(order)]
    refuse_infinite("attended inputs", attended)
    return attended


def refuse_other_layers(paths: SinglePaths, seen: SeenAttention, along: Along) -> None:
    """Raise InputError where layers, normalisations or MLPs ran that the first example had not."""
    modules = tuple(layer.module for layer in seen.layers or ())
    writers = set(paths.stream.writers or ()) if paths.mlps else set()
    passed = set(along.spreads) == set(paths.stream.norms) and set(along.mlps) == writers
    if modules == paths.modules and passed:
        return
    remedy = (
        f"were {len(paths.modules)} for the first example: layers must not depend on it; export "
        "examples of which all layers run"
    )
    raise InputError("layers of attention", len(modules), remedy)


def attended_paths(
    paths: SinglePaths, seen: SeenAttention, along: Along, read: Reading, real: Real
) -> Float[np.ndarray, "example label path channel"]:
    """ξ of every path of the examples of one batch."""
    stream, shape = paths.stream, real.shape
    spreads = [tokens_second(along.spreads[call], shape) for call in stream.norms]

    def scaled(passes: np.ndarray) -> Reading:
        """τ r of what passes these normalisations."""
        passed = [one for one, is_passed in zip(spreads, passes, strict=True) if is_passed]
        return read * np.prod([np.ones(shape), *passed], axis=0)[:, None]

    is_read = (read != 0).any(axis=1)
    found = []
    for layer, kept in enumerate(paths.heads):
        weights = seen.weights[layer][:, list(kept)]  # [example, head, query, key]
        hidden = np.where(is_read[:, None, :, None] & ~real[:, None, None], np.abs(weights), 0.0)
        if hidden.max(initial=0.0) > PADDING_WEIGHT:
            remedy = "is a weight that the token read gives to padding; hide it from every layer"
            field = f"attention of layer {paths.numbers[layer]}"
            raise InputError(field, float(hidden.max()), remedy)
        weights = np.where(is_read[:, None, :, None], weights, 0.0)
        reached = np.einsum("pcq,phqk->pchk", scaled(stream.heads[layer]), weights)
        found.append(reached @ as_numpy(seen.layers[layer].entering)[:, None])
    start = as_numpy(seen.layers[0].entering) if along.start is None else along.start
    others = [(start, stream.embedding)]
    if paths.mlps:
        outputs = [along.mlps[call] for call in stream.writers]
        others += zip(outputs, stream.mlps, strict=True)
    for tokens, passes in others:
        tokens = tokens_second(tokens, shape)
        found.append((scaled(passes) @ tokens)[:, :, None])
    return np.concatenate(found, axis=2)


def tokens_second(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Numbers [example, token, …] of a model that may have the tokens first."""
    return values if values.shape[:2] == shape else values.swapaxes(0, 1)
