"""Tokens that the values of a layer of attention are made of: those that a product multiplied.

A model may normalise tokens within the module that attends to them. So values are followed back, by
the memory that they share, to the product of matrices that made them.
"""

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass
class Products:
    """Products of activations and weights since the last layer of attention.

    made  result and activations of each, in their order
    """

    made: list[tuple[Any, Any]] = field(default_factory=list)
    # By function: the place of the activations among its arguments.
    _places: dict[Any, int] = field(init=False)

    def __post_init__(self) -> None:
        torch = import_module("torch")
        first = torch.nn.functional.linear, torch.matmul, torch.Tensor.matmul
        self._places = dict.fromkeys((*first, torch.Tensor.__matmul__), 0) | {torch.addmm: 1}

    def note(self, function: Any, args: tuple, returned: Any) -> None:
        """Keep a product; anything else is passed over. Called for every function of a pass."""
        if function in self._places:
            self.made.append((returned, args[self._places[function]]))

    def multiplied(self, result: Any) -> Any:
        """Find what was multiplied by weights to this result; None where it was copied since."""
        return next((given for made, given in reversed(self.made) if shares(made, result)), None)

    def entering(self, value: Any, examples: int, tokens: int, around: Any) -> Any:
        """The tokens [example, token, channel] that these values were made of.

        around  what the module was given, for values that were copied since; it is preferred where
                it is the same
        """
        found = self.multiplied(value)
        self.made.clear()
        if found is None:
            return around
        if found.shape[0] == examples * tokens and found.ndim == 2:
            found = found.reshape(examples, tokens, -1)
        if found.ndim != 3 or tuple(found.shape[:2]) != (examples, tokens):
            return around
        is_same = around is not None and around.shape == found.shape
        return around if is_same and bool((around == found).all()) else found


def shares(one: Any, other: Any) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
