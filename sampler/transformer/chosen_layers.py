"""Which layers and heads of a model are recorded, numbered over the whole model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from sampler.errors import InputError


@dataclass(frozen=True)
class ChosenLayers:
    """A window of layers, and heads to keep in them.

    window  numbers of its first and last layer, from 1; None for all layers
    heads   numbers of the heads to keep, from 0, by the number of their layer; of layers that are
            not named all are kept

    Raises InputError for a window that is none.
    """

    window: tuple[int, int] | None = None
    heads: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        window = self.window
        if window is not None:
            both = isinstance(window, tuple | list) and len(window) == 2
            if not both or not all(map(is_whole, window)):
                raise InputError("layers", window, "give the first and the last layer: (3, 5)")
            if not 1 <= window[0] <= window[1]:
                raise InputError("layers", window, "must rise, and begin at 1 or later")
            object.__setattr__(self, "window", tuple(map(int, window)))
        if not isinstance(self.heads, Mapping):
            remedy = "give heads by the number of their layer, from 1: {1: [0, 2], 3: [1]}"
            raise InputError("heads", self.heads, remedy)
        for number, heads in self.heads.items():
            if not is_whole(number):
                raise InputError("heads", dict(self.heads), "layers have numbers, from 1")
            if not hasattr(heads, "__len__") or not all(map(is_whole, heads)):
                raise InputError(f"heads[{number}]", heads, "list numbers of heads, as in [0, 2]")

    @property
    def are_all(self) -> bool:
        """Whether nothing is left out."""
        return self.window is None and not self.heads

    def places(self, numbers: Sequence[int]) -> list[int]:
        """Places of the layers in the window, among layers with these numbers.

        Raises InputError for a window, or heads of a layer, that the model has not.
        """
        known = ", ".join(map(str, numbers))
        first, last = self.window or (numbers[0], numbers[-1])
        missing = [number for number in range(first, last + 1) if number not in numbers]
        if missing and self.window is not None:
            raise InputError("layers", self.window, f"the layers of the model are {known}")
        outside = sorted(number for number in self.heads if number not in range(first, last + 1))
        if outside:
            remedy = f"heads are kept in layers {first} to {last}, which count from 1"
            raise InputError("heads", outside, remedy)
        return [place for place, number in enumerate(numbers) if first <= number <= last]

    def kept(self, number: int, count: int, *, all_may_go: bool = False) -> list[int]:
        """The heads kept in the layer of this number, which has so many.

        Raises InputError for a head that there is not or that comes twice, and for none at all
        unless they may all go.
        """
        given: Any = self.heads.get(number, range(count))
        kept = sorted({int(head) for head in given})
        if len(kept) != len(given) or kept != [head for head in kept if 0 <= head < count]:
            remedy = f"layer {number} has heads 0 to {count - 1}; name none twice"
            raise InputError(f"heads[{number}]", list(given), remedy)
        if not kept and not all_may_go:
            remedy = "keep one head of each layer at least, or leave the layer out of the window"
            raise InputError(f"heads[{number}]", [], remedy)
        return kept

    def kept_numbers(self, number: int, count: int) -> list[int]:
        """Numbers of the heads of a layer of which so many are left."""
        return sorted(map(int, self.heads.get(number, range(count))))


def is_whole(number: Any) -> bool:
    """Whether this is a whole number, of Python or NumPy; True and False are none."""
    return isinstance(number, Integral) and not isinstance(number, bool)


EVERY_LAYER = ChosenLayers()
