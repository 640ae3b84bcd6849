"""Numbers whose squares overflow are refused where data are read, before anything is computed."""

from dataclasses import replace

import numpy as np
import pytest

import sampler
from sampler.data.examples import Examples, attended_by_numpy
from sampler.data.task import Task
from sampler.errors import InputError
from sampler.jobs.plan import make_plan
from sampler.settings.recipe import Recipe

EXAMPLES, TOKENS, CHANNELS, HEADS = 6, 4, 3, (2, 2)
SPLITS = ("train", "test", "validation")


def split_of(
    inputs=1.0, labels=1.0, attention=(1.0, 1.0), seed=0, to_one_key=False, is_negative=False
):
    """Tokens, or attended inputs where there is no attention.

    Queries attend to any keys, or all to the first.
    """
    rng = np.random.default_rng(seed)
    own = np.where(rng.random((EXAMPLES, 1)) < 0.5, -labels, labels)
    if not attention:
        attended = inputs * rng.standard_normal((EXAMPLES, 4, CHANNELS))
        return Examples(attended, own, path_heads=HEADS)
    tokens = inputs * rng.standard_normal((EXAMPLES, TOKENS, CHANNELS))
    tokens = -np.abs(tokens) if is_negative else tokens
    matrices = rng.random((2, EXAMPLES, 2, TOKENS, TOKENS))
    matrices /= matrices.sum(axis=3, keepdims=True)
    if to_one_key:
        matrices = np.zeros_like(matrices)
        matrices[..., 0, :] = 1.0
    return Examples(tokens, own, tuple(x * m for x, m in zip(attention, matrices, strict=True)))


def is_finite(split, precision="float64"):
    """Whether Σ y² and every entry of the Gram matrices of all readouts are, computed."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = [split.labels.astype(precision).T @ split.labels.astype(precision)]
        for readout in ("last", "first", "mean"):
            attended = attended_by_numpy(split, readout, (False, False)).astype(precision)
            flat = attended.reshape(EXAMPLES, -1)
            found += [flat @ flat.T, flat.T @ flat, np.sum(flat**2)]
    return all(np.isfinite(one).all() for one in found)


# Which array, or none, is refused.
CASES = [
    ({"inputs": 1e152}, None),
    ({"inputs": 1e152, "to_one_key": True}, None),
    ({"inputs": 1e160}, "inputs"),
    ({"inputs": 1e160, "is_negative": True}, "inputs"),
    ({"inputs": 1e160, "attention": ()}, "attended"),
    # Every square is finite, and their sum is not.
    ({"inputs": 2e153, "attention": ()}, "attended"),
    ({"labels": 1e152}, None),
    ({"labels": 1e160}, "labels"),
    ({"inputs": 1e60, "attention": (1e50, 1e40)}, None),
    ({"inputs": 1e60, "attention": (1e50, -1e60)}, "inputs"),
    # Attention that makes tokens smaller: these are read by the layers above.
    ({"inputs": 1e160, "attention": (1e-100, 1.0)}, "inputs"),
]


@pytest.mark.parametrize(("sizes", "refused"), CASES)
def test_what_has_no_finite_kernel_is_refused(sizes, refused):
    plain = {"attention": ()} if sizes.get("attention") == () else {}
    for name in SPLITS:
        splits = {other: split_of(**plain, seed=seed) for seed, other in enumerate(SPLITS)}
        splits[name] = split_of(**sizes, seed=9)
        if refused is None:
            Task.of(**splits)
            assert is_finite(splits[name])
            continue
        assert not is_finite(splits[name]) or sizes.get("attention") == (1e-100, 1.0)
        with pytest.raises(InputError, match="overflow") as caught:
            Task.of(**splits)
        assert caught.value.field == f"{refused}_{name}"


def planned(split, **sections):
    """Plan to sample with the same sequences for training and test."""
    arrays = {}
    for name in ("train", "test"):
        arrays |= {f"inputs_{name}": split.inputs, f"labels_{name}": split.labels}
        arrays |= {f"attention_{name}_{n}": m for n, m in enumerate(split.attention, start=1)}
    settings = {"name": "x", "task": sampler.Arrays(**arrays), "network": {"widths": 10}}
    return make_plan("sample", Recipe(**settings | sections))


SINGLE = {"space": "weights", "algorithm": "nuts", "precision": "float32"}


# The trace of K has six examples of a square of a few times the size's.
@pytest.mark.parametrize(
    ("sizes", "temperature", "fits"),
    [
        ({"inputs": 1e18}, 0.001, True),
        ({"inputs": 1e20}, 0.001, False),
        ({"labels": 1e17}, 0.001, True),
        ({"labels": 1e15}, 1e-9, False),
    ],
)
def test_single_precision_is_refused_where_the_kernel_has_none(sizes, temperature, fits):
    split, posterior = split_of(**sizes), {"temperature": temperature}
    scaled = replace(split, labels=split.labels / np.sqrt(temperature))
    assert is_finite(scaled, "float32") == fits
    planned(split, posterior=posterior)
    if fits:
        planned(split, posterior=posterior, sampler=SINGLE)
        return
    with pytest.raises(InputError, match="overflow") as caught:
        planned(split, posterior=posterior, sampler=SINGLE)
    assert caught.value.field == "sampler.precision"


@pytest.mark.parametrize(
    ("field", "labels", "sections"),
    [
        ("network.variances", 1.0,
         {"network": {"widths": 5, "variances": [1e160, 1e160, 1.0, 1.0]}}),
        ("posterior.temperature", 1e10, {"posterior": {"temperature": 1e-300}}),
    ],
)  # fmt: skip
def test_variances_and_temperatures_count(field, labels, sections):
    with pytest.raises(InputError, match="overflow") as caught:
        planned(split_of(labels=labels), **sections)
    assert caught.value.field == field
