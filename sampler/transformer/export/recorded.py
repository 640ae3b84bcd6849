"""What is kept of a forward pass: the tokens that enter the first layer, and all attention."""

from dataclasses import dataclass

import numpy as np

from sampler.errors import InputError
from sampler.tasks.task import Split


@dataclass(frozen=True)
class RecordedAttention:
    """The attention of a model on some examples, as float32.

    inputs     x_0 [example, token, channel], the tokens that the first attention layer sees
    attention  Ω^l [example, head, key, query] for every layer l, in the order of computation

    Raises InputError, naming layer and entry, unless everything is finite and fits together.
    """

    inputs: np.ndarray
    attention: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        if self.inputs.ndim != 3 or self.inputs.size == 0:
            remedy = "the first layer must see [example, token, channel], none of length 0"
            raise InputError("inputs", self.inputs.shape, remedy)
        refuse_infinite("inputs", self.inputs)
        examples, tokens, _ = self.inputs.shape
        for layer, matrices in enumerate(self.attention, start=1):
            field = f"attention of layer {layer}"
            expected = (examples, tokens, tokens)
            if matrices.ndim != 4 or (len(matrices), *matrices.shape[2:]) != expected:
                remedy = (
                    f"the shape must be ({examples}, heads, {tokens}, {tokens}), [example, head, "
                    "key, query]: every token attends to every token of the same sequence"
                )
                raise InputError(field, matrices.shape, remedy)
            refuse_infinite(field, matrices)

    @property
    def heads(self) -> tuple[int, ...]:
        """H_1 … H_L."""
        return tuple(matrices.shape[1] for matrices in self.attention)

    def with_identity_heads(self) -> "RecordedAttention":
        """The same with Ω^{l, H_l + 1} = 1, a last head in each layer that leaves tokens alone."""
        examples, tokens, _ = self.inputs.shape
        identity = np.broadcast_to(np.eye(tokens, dtype=np.float32), (examples, 1, tokens, tokens))
        attention = tuple(np.concatenate([m, identity], axis=1) for m in self.attention)
        return RecordedAttention(self.inputs, attention)

    def with_labels(self, labels: np.ndarray | None) -> Split:
        """The split of a task that these examples make, with labels [example, output]."""
        return Split(self.inputs, labels, self.attention)


def refuse_infinite(field: str, array: np.ndarray) -> None:
    """Raise InputError, with the first place, if an entry is infinite or not a number."""
    finite = np.isfinite(array)
    if not finite.all():
        place = tuple(int(index) for index in np.argwhere(~finite)[0])
        remedy = "every entry must be finite; a query whose keys are all masked has no attention"
        raise InputError(f"{field}{list(place)}", float(array[place]), remedy)
