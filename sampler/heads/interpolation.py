"""Inputs of a PyTorch module between those of each example and the mean over all other examples.

Floating-point inputs are interpolated themselves, tokens with numbers where
`torch.nn.Embedding` looks them up.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from sampler.transformer.forward_pass import hooks, torch_module

# An input by its name, empty where there is one; or an embedding, and which of its calls.
Key = tuple[str, int]
# Something of a batch [example, …] → what takes its place
Mix = Callable[[Key, Any], Any]
# Runs the model on examples by their numbers, inputs mixed.
Run = Callable[[list[int], Mix], Any]


@dataclass(frozen=True)
class OtherExamples:
    """Sums over examples of what enters a model, from which means over all others follow.

    sums    [token, …] of each input, padding left out
    counts  of the examples that a sum is over [token or 1, …]
    real    the tokens [example, token] that are no padding; None where all are tokens
    """

    sums: Mapping[Key, Any]
    counts: Mapping[Key, Any]
    real: np.ndarray | None

    @classmethod
    def of(
        cls, run: Run, batches: Iterable[list[int]], some: list[int], real: np.ndarray | None
    ) -> "OtherExamples | None":
        """Sum up over all batches what has the examples on its first axis.

        some  examples that go through the model together: two, where there are as many

        None where nothing is found that can be interpolated, or its tokens are not those of which
        padding is known.
        """
        alike = set.intersection(*(keys_of(run, some[:count]) for count in (1, len(some))))
        found = cls({}, {}, real)
        fits = [bool(alike)]
        for batch in batches:

            def add(key: Key, own: Any, batch: list[int] = batch) -> Any:
                if key in alike:
                    here = found.tokens_here(own, batch)
                    fits.append(here is not None)
                    if here is not None:
                        found.add(key, own, here)
                return own

            run(batch, add)
        return found if all(fits) else None

    def add(self, key: Key, own: Any, here: Any) -> None:
        """Add what some examples have, where they have tokens."""
        torch = torch_module()
        kept = torch.where(here, own.double(), 0.0).sum(dim=0)
        for sums, more in ((self.sums, kept), (self.counts, here.double().sum(dim=0))):
            sums[key] = added(sums[key], more) if key in sums else more

    def tokens_here(self, own: Any, batch: list[int]) -> Any:
        """Mark tokens of some examples, [example, token or 1, …]; None where they are unknown."""
        torch = torch_module()
        shape = (len(batch), *[1] * (own.ndim - 1))
        if self.real is None or own.ndim < 2:
            return torch.ones(shape, dtype=torch.bool, device=own.device)
        real = self.real[batch]
        if own.shape[1] > real.shape[1] or real[:, own.shape[1] :].any():
            return None
        real = torch.from_numpy(real[:, : own.shape[1]]).to(own.device)
        return real.reshape(*real.shape, *shape[2:])

    def mixed(self, batch: list[int], share: float) -> Mix:
        """Inputs with this share of the example, and the rest of the mean over all others.

        A token that no other example has stays as it is.
        """
        torch = torch_module()

        def mix(key: Key, own: Any) -> Any:
            if key not in self.sums:
                return own
            here = self.tokens_here(own, batch)
            sums, counts = (
                of[key][: own.shape[1]] if own.ndim > 1 else of[key]
                for of in (self.sums, self.counts)
            )
            others = (sums - own.double()) / (counts - 1.0).clamp(min=1.0)
            moved = share * own.double() + (1.0 - share) * others
            return torch.where(here & (counts > 1.0), moved.to(own), own)

        return mix


def keys_of(run: Run, batch: list[int]) -> set[Key]:
    """Keys of all that has the examples of a batch on its first axis."""
    found = set()

    def note(key: Key, own: Any) -> Any:
        if len(own) == len(batch):
            found.add(key)
        return own

    run(batch, note)
    return found


def added(one: Any, other: Any) -> Any:
    """The sum of arrays of which one may have fewer tokens, its first axis."""
    if len(one) == len(other):
        return one + other
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    found = longer.clone()
    found[: len(shorter)] += shorter
    return found


def continuous_inputs(inputs: Any) -> set[str]:
    """Names of the inputs that can be interpolated; "" where there is one without a name.

    Masks among those with names have no more than two different values.
    """
    if isinstance(inputs, dict):
        floating = {name: one for name, one in inputs.items() if one.is_floating_point()}
        return {name for name, one in floating.items() if len(one.unique()) > 2}
    first = inputs[0] if isinstance(inputs, list) else inputs
    return {""} if first.is_floating_point() else set()


def mixed_inputs(inputs: Any, names: set[str], mix: Mix) -> Any:
    """Inputs of a batch with those of these names mixed."""
    if isinstance(inputs, dict):
        return {name: mix((name, 0), one) if name in names else one for name, one in inputs.items()}
    return mix(("", 0), inputs) if names else inputs


@contextmanager
def mixed_embeddings(model: Any, mix: Mix) -> Iterator[None]:
    """The model with what its embeddings look up mixed, in one forward pass."""
    embedding = torch_module().nn.Embedding
    names = {one: name for name, one in model.named_modules() if isinstance(one, embedding)}
    counts: Counter[str] = Counter()

    def before(*_: Any) -> None:
        """Leave what is given as it is."""

    def after(module: Any, positional: tuple, named: dict, returned: Any) -> Any:
        name = names[module]
        counts[name] += 1
        return mix((f"embedding {name}", counts[name]), returned)

    with hooks(names, before, after):
        yield
