"""Which token of a sequence a label is read off: the same for all, or one for every label."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped

from sampler.attention.padding import Real, read_weights, tokens_in_order
from sampler.errors import InputError
from sampler.transformer.forward_pass import torch_module
from sampler.transformer.recording import RecordedAttention
from theory.attended import Readout

NONE = -1


@dataclass(frozen=True)
class ReadTokens:
    """Tokens that labels are read off.

    positions  [example, label], numbers of the tokens as the model has them, from 0, or −1 where a
               sequence has fewer labels; None where `readout` is the same for all sequences
    before     examples before these, of which they are a part
    """

    positions: Int[np.ndarray, "example label"] | None
    readout: Readout | None = None
    before: int = 0

    @classmethod
    def of(cls, field: str, given: Any, examples: int) -> "ReadTokens":
        """From [example] or [example, label]; InputError for anything else."""
        numbers = torch_module().as_tensor(given).cpu().numpy()
        if numbers.ndim == 1:
            numbers = numbers[:, None]
        if numbers.ndim != 2 or len(numbers) != examples or numbers.dtype.kind not in "iu":
            remedy = f"give whole numbers [{examples}], or [{examples}, label] with −1 for none"
            raise InputError(field, (numbers.shape, str(numbers.dtype)), remedy)
        if (numbers < NONE).any():
            remedy = "count tokens from 0, as the model has them; −1 stands for no label"
            raise InputError(field, int(numbers.min()), remedy)
        return cls(numbers.astype(np.int64))

    @classmethod
    def everywhere(cls, readout: Readout) -> "ReadTokens":
        """The first, the last, or the mean of the tokens of every sequence."""
        return cls(None, readout)

    @property
    def starts(self) -> Int[np.ndarray, " boundary"]:
        """Places where the labels of each example begin among all, and where the last ends."""
        return np.concatenate([[0], np.cumsum((self.positions != NONE).sum(axis=1))])

    def part(self, examples: slice) -> "ReadTokens":
        before = self.before + examples.start
        return replace(self, positions=self.positions[examples], before=before)

    def flat(self, values: Shaped[np.ndarray, "example label *rest"]) -> np.ndarray:
        """Numbers of every label in one row, example by example."""
        if self.positions is None:
            return values.reshape(-1, *values.shape[2:])
        return values[self.positions != NONE]

    def flat_labels(self, field: str, labels: Any) -> Any:
        """Labels in one row; InputError unless there is one for each token that is read."""
        if labels is None:
            return None
        tensor = torch_module().as_tensor(labels)
        if self.positions.shape[1] == 1 and tensor.shape[:2] != self.positions.shape:
            tensor = tensor[:, None]
        if tensor.shape[:2] != self.positions.shape or tensor.ndim > 3:
            examples, most = self.positions.shape
            remedy = f"the shape must be ({examples}, {most}) or ({examples}, {most}, outputs)"
            raise InputError(field, tuple(torch_module().as_tensor(labels).shape), remedy)
        return tensor[torch_module().as_tensor(self.positions != NONE)]

    def weights(self, real: Real, examples: list[int]) -> Float[np.ndarray, "example label token"]:
        """τ of these examples, real being false for padding.

        Raises InputError for a token that there is not, or that is padding.
        """
        if self.positions is None:
            return read_weights(real, self.readout)[:, None]
        positions = self.positions[examples]
        refuse_padding(positions, real, [self.before + example for example in examples])
        read = np.arange(real.shape[1]) == positions[:, :, None]
        return np.where(positions[:, :, None] == NONE, 0.0, read)

    def moved_last(self, recorded: RecordedAttention) -> RecordedAttention:
        """An example for every label, its tokens in their order but for that which is read, last.

        What a path leads to does not depend on the order of tokens.
        """
        examples, tokens, _ = recorded.inputs.shape
        real = np.ones((examples, tokens), bool) if recorded.real is None else recorded.real
        refuse_padding(self.positions, real, list(range(self.before, self.before + examples)))
        rows, labels = np.nonzero(self.positions != NONE)
        # Padding is behind the tokens by now.
        place = np.cumsum(real, axis=1)[rows, self.positions[rows, labels]] - 1
        lengths = real.sum(axis=1)[rows]
        keys = np.arange(tokens, dtype=np.float64)[None] + np.zeros((len(rows), 1))
        keys[np.arange(len(rows)), place] = lengths - 0.5
        order = np.argsort(keys, axis=1, kind="stable")
        attention = tuple(matrices[rows] for matrices in recorded.attention)
        inputs, attention = tokens_in_order(recorded.inputs[rows], attention, order)
        kept = None if recorded.lengths is None else lengths
        return replace(recorded, inputs=inputs, attention=attention, lengths=kept, real=None)


def refuse_padding(
    positions: Int[np.ndarray, "example label"], real: Real, examples: list[int]
) -> None:
    """Raise InputError for the first token to be read that is padding, or beyond the last."""
    places = real.shape[1]
    for row, number in enumerate(examples):
        for position in positions[row]:
            if position >= places or (position != NONE and not real[row, position]):
                tokens = int(real[row].sum())
                remedy = f"is no token of that sequence, which has {tokens} in {places} places"
                raise InputError(f"token read of example {number}", int(position), remedy)
