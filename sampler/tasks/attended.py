"""Attended inputs of the examples of a task, without JAX."""

import numpy as np
from jaxtyping import Float

from sampler.tasks.splits import AttendedSplit, Split


def attended_by_numpy(
    split: Split | AttendedSplit, readout: str, pairs: tuple[bool, ...]
) -> Float[np.ndarray, "example path channel"]:
    """Attended inputs ξ^π(x) = x Ω^{h_1} ··· Ω^{h_L} t*, as `theory.attended_inputs` has them."""
    if isinstance(split, AttendedSplit):
        return split.attended
    examples, tokens, _ = split.inputs.shape
    lengths = np.full(examples, tokens) if split.lengths is None else split.lengths
    if readout == "mean":
        read = (np.arange(tokens) < lengths[:, None]) / lengths[:, None]
    else:
        read = np.eye(tokens)[lengths - 1 if readout == "last" else np.zeros(examples, int)]
    weights = read[:, None, :]  # [example, paths through the layers above, key]
    for omega, is_pair in zip(reversed(split.attention), reversed(pairs), strict=True):
        if is_pair:
            omega = (omega[:, :, None] * omega[:, None]).reshape(examples, -1, tokens, tokens)
        weights = np.einsum("ehkq,epq->ehpk", omega, weights, optimize=True)
        weights = weights.reshape(examples, -1, tokens)
    return weights @ split.inputs
