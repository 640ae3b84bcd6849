"""Numbers whose squares overflow are refused where data are read, before anything is computed."""

from dataclasses import replace

import numpy as np
import pytest

import sampler
from sampler.data.examples import Examples, attended_by_numpy
from sampler.data.task import Task
from sampler.errors import ExitCode, InputError
from sampler.jobs.plan import make_plan
from sampler.settings.recipe import Recipe
from tests.commands import in_process

EXAMPLES, TOKENS, CHANNELS, HEADS = 6, 4, 3, (2, 2)


def split_of(inputs=1.0, labels=1.0, attention=(1.0, 1.0), seed=0):
    """Tokens, or attended inputs where there is no attention."""
    rng = np.random.default_rng(seed)
    own = np.where(rng.random((EXAMPLES, 1)) < 0.5, -labels, labels)
    if not attention:
        attended = inputs * rng.standard_normal((EXAMPLES, 4, CHANNELS))
        return Examples(attended, own, path_heads=HEADS)
    tokens = inputs * rng.standard_normal((EXAMPLES, TOKENS, CHANNELS))
    matrices = rng.random((2, EXAMPLES, 2, TOKENS, TOKENS))
    matrices /= matrices.sum(axis=3, keepdims=True)
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
    ({"inputs": 1e160}, "inputs"),
    ({"inputs": 1e152, "attention": ()}, None),
    ({"inputs": 1e160, "attention": ()}, "attended"),
    ({"labels": 1e152}, None),
    ({"labels": 1e160}, "labels"),
    ({"inputs": 1e60, "attention": (1e50, 1e40)}, None),
    ({"inputs": 1e60, "attention": (1e50, -1e60)}, "inputs"),
    ({"attention": (1e200, 1e200)}, "inputs"),
    # Attention that makes tokens smaller: these are read by the layers above.
    ({"inputs": 1e160, "attention": (1e-100, 1.0)}, "inputs"),
]


@pytest.mark.parametrize(("sizes", "refused"), CASES)
@pytest.mark.parametrize("name", ["train", "test", "validation"])
def test_what_has_no_finite_kernel_is_refused(name, sizes, refused):
    plain = {"attention": ()} if sizes.get("attention") == () else {}
    splits = {n: split_of(**plain, seed=s) for s, n in enumerate(("train", "test", "validation"))}
    splits[name] = split_of(**sizes, seed=9)
    if refused is None:
        Task.of(**splits)
        assert is_finite(splits[name])
        return
    assert not is_finite(splits[name]) or sizes.get("attention") == (1e-100, 1.0)
    with pytest.raises(InputError, match="overflow; scale inputs and labels") as caught:
        Task.of(**splits)
    assert caught.value.field == f"{refused}_{name}"


def recipe_of(**sections):
    task = {"kind": "arrays", "path": "own.npz"}
    return Recipe(**{"name": "x", "task": task, "network": {"widths": 10}} | sections)


def write(file, **sizes):
    arrays = {}
    for seed, name in enumerate(("train", "test")):
        split = split_of(**sizes, seed=seed)
        arrays |= {f"inputs_{name}": split.inputs, f"labels_{name}": split.labels}
        arrays |= {f"attention_{name}_{n}": m for n, m in enumerate(split.attention, start=1)}
    np.savez(file, **arrays)


def test_check_refuses_a_file_of_such_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text(recipe_of().to_toml())
    for inputs, code in ((1e140, ExitCode.OK), (1e160, ExitCode.BAD_INPUT)):
        write(tmp_path / "own.npz", inputs=inputs)
        assert in_process("check", tmp_path / "x.toml") == code
    assert "inputs_train" in capsys.readouterr().err


# The trace of K has six examples of a square of a few times the size's.
SINGLE = [
    ({"inputs": 1e18}, {}, None),
    ({"inputs": 1e20}, {}, "precision"),
    ({"labels": 1e17}, {}, None),
    ({"labels": 1e20}, {}, "precision"),
    ({"labels": 1e15}, {"temperature": 1e-9}, "precision"),
]


@pytest.mark.parametrize(("sizes", "posterior", "refused"), SINGLE)
def test_single_precision_is_refused_where_the_kernel_has_none(sizes, posterior, refused, tmp_path):
    write(tmp_path / "own.npz", **sizes)
    task = {"kind": "arrays", "path": str(tmp_path / "own.npz")}
    sampled = {"space": "weights", "algorithm": "nuts", "precision": "float32"}
    recipe = recipe_of(task=task, sampler=sampled, posterior=posterior)
    split = split_of(**sizes)
    scaled = replace(split, labels=split.labels / np.sqrt(recipe.posterior.temperature))
    assert is_finite(scaled, "float32") == (refused is None)
    if refused is None:
        make_plan("sample", recipe)
        return
    with pytest.raises(InputError, match="overflow") as caught:
        make_plan("sample", recipe)
    assert caught.value.field == "sampler.precision"
    make_plan("sample", recipe_of(task=task, posterior=posterior))


def test_variances_and_temperatures_count():
    plain = {"attention": ()}
    with pytest.raises(InputError, match="overflow") as caught:
        sample(split_of(**plain), network={"widths": 5, "variances": [1e160, 1e160, 1.0, 1.0]})
    assert caught.value.field == "network.variances"
    with pytest.raises(InputError, match="overflow") as caught:
        sample(split_of(**plain, labels=1e10), posterior={"temperature": 1e-300})
    assert caught.value.field == "posterior.temperature"


def sample(split, **sections):
    """Sampling, which is planned before anything is computed."""
    arrays = {"attended": split.inputs, "labels": split.labels}
    both = {f"{key}_{name}": value for key, value in arrays.items() for name in ("train", "test")}
    recipe = recipe_of(task=sampler.Arrays(**both, heads=HEADS), **sections)
    sampler.sample(recipe, draws=4, progress=False)
