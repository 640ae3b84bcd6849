"""Tasks made from the settings that a test names, and arrays that a user brings, changed."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from sampler.data.markov_chain import MarkovChain
from sampler.data.time_series import TimeSeries
from sampler.settings.task_sections import Attention


def markov_chain(heads=(("good",), ("uniform",)), beta=10.0, **settings):
    section = MarkovChain(**settings)
    return section.make(Attention(heads=heads, inverse_temperature=beta))


def time_series(heads=(("lag",), ("uniform",)), look_back=2, beta=10.0, form=None, **settings):
    section = TimeSeries(**settings)
    attention = Attention(heads=heads, lag=look_back, inverse_temperature=beta, form=form)
    return section.make(attention)


# A sub-network of two layers with 2 and 3 heads.
KEPT_HEADS = "network = {widths = [3, 4, 5], heads = [[1], [2, 0]]}\n"


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray], settings: str) -> Path:
    """A file of arrays and a recipe that reads it, with further settings in TOML: the recipe."""
    np.savez_compressed(folder / "mine.npz", **arrays)
    recipe = folder / "mine.toml"
    task = 'name = "mine"\ntask = {kind = "arrays", path = "mine.npz"}\n'
    recipe.write_text(task + settings, encoding="utf-8")
    return recipe


# Changes that are made to arrays by name, in place.
Change = Callable[[dict[str, np.ndarray]], object]


def replace(key: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Another array in its place, made from it."""
    return lambda arrays: arrays.update({key: change(arrays[key])})


def remove(key: str) -> Change:
    """The array is absent."""
    return lambda arrays: arrays.pop(key)


def spoil(value: float, place: int | tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """For `replace`: a copy with one entry set to this value."""

    def spoiled(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[place] = value
        return array

    return spoiled
