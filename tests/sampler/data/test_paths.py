"""Heads that make more paths than anything can hold: named, kept, refused before they are made."""

import math

import numpy as np
import pytest

import sampler
from sampler.data.task import MOST_PATHS, name_paths, refuse_too_many_paths
from sampler.errors import InputError

EXAMPLES, TOKENS, CHANNELS = 6, 3, 4


def with_tokens(heads: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Random tokens and attention of layers with so many heads, as in a file."""
    rng = np.random.default_rng(2)
    arrays = {"labels_train": rng.choice([-1.0, 1.0], EXAMPLES)}
    for name in ("train", "test"):
        arrays[f"inputs_{name}"] = rng.standard_normal((EXAMPLES, TOKENS, CHANNELS))
        for layer, count in enumerate(heads, start=1):
            shape = (EXAMPLES, count, TOKENS, TOKENS)
            arrays[f"attention_{name}_{layer}"] = rng.dirichlet(np.ones(TOKENS), shape[:3])
            arrays[f"attention_{name}_{layer}"] = arrays[f"attention_{name}_{layer}"].swapaxes(2, 3)
    return arrays


def recipe_of(arrays: dict[str, np.ndarray], heads=None) -> sampler.Recipe:
    return sampler.Recipe(
        task=sampler.Arrays(**arrays),
        network={"widths": 20, "heads": heads},
        posterior={"temperature": 0.2},
        theory={"starts": 1},
    )


def test_heads_of_a_deep_transformer_are_refused():
    recipe = recipe_of(with_tokens((16,) * 24))
    for command in (sampler.solve, sampler.sample):
        with pytest.raises(InputError) as refused:
            command(recipe)
        assert refused.value.field == "network.heads"


@pytest.mark.slow
def test_kept_heads_of_a_deep_transformer_have_the_theory_of_those_alone():
    deep, kept = with_tokens((8,) * 6), ((5, 1), *((2,),) * 5)
    few = {
        key: array[:, list(kept[int(key[-1]) - 1])] if key.startswith("attention_") else array
        for key, array in deep.items()
    }
    expected, received = (
        sampler.solve(recipe_of(arrays, heads)) for arrays, heads in ((few, None), (deep, kept))
    )
    assert received["path"].values.tolist() == ["5·2·2·2·2·2", "1·2·2·2·2·2"]
    for name in ("order_parameter", "head_score", "predictor_mean"):
        np.testing.assert_array_equal(received[name], expected[name])


def test_the_limit_is_a_number_of_paths():
    names = [["a", "b"]] * int(math.log2(MOST_PATHS))
    assert len(name_paths(names)) == MOST_PATHS
    assert name_paths([*names, ["c"]])[-1].endswith("b·c")
    assert name_paths([*names, ["c", "d"]]) == ()
    refuse_too_many_paths([2] * len(names))
    with pytest.raises(InputError):
        refuse_too_many_paths([2, 3, 4000])
