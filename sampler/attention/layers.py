"""The layers of weights that layers of attention serve, and the MLPs between them."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Mlp(Protocol):
    """W_2 ψ(W_1 z/√N)/√M for each token: M and the name of ψ."""

    width: Any
    activation: Any


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
    mlp: Mlp | None, widths: Sequence[int], hypernetworks: Sequence[bool]
) -> dict[str, tuple[int, ...]]:
    """Shapes of `mlp_in_l` [M, N] and `mlp_out_l` [N, M], the weights of the MLP above layer l.

    widths         N_1 … N_L, N_a
    hypernetworks  whether each attention serves two layers of weights
    """
    shapes: dict[str, tuple[int, ...]] = {}
    layers = zip(lowest_layers(hypernetworks), hypernetworks, strict=True)
    for layer, is_pair in layers if mlp is not None else ():
        above = layer + is_pair
        shapes[f"mlp_in_{above}"] = (mlp.width, widths[above])
        shapes[f"mlp_out_{above}"] = (widths[above], mlp.width)
    return shapes
