"""Compiled functions: which programs are given up, and processes in which they cannot work."""

import gc
import subprocess
import sys
from itertools import count

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theory import programs
from theory.programs import mappings, program


def test_a_compiled_function_is_what_jax_makes_of_it():
    def raised(values, power, scale=1.0):
        return scale * values**power

    ours = program(raised, static_argnames="power")
    theirs = jax.jit(raised, static_argnames="power")
    values = jnp.linspace(0.5, 2.0, 7)
    for power in (2, 3):
        assert np.array_equal(ours(values, power, scale=3.0), theirs(values, power, scale=3.0))
    gradient = jax.grad(lambda v: ours(v, 3).sum())(values)
    np.testing.assert_allclose(gradient, 3 * values**2, rtol=1e-6)
    inner = jax.jit(jax.vmap(lambda v: ours(v, power=2)))
    np.testing.assert_allclose(inner(values), values**2, rtol=1e-6)
    assert ours.eval_shape(values, 2).shape == (7,)
    assert ours.compilations == 2
    assert ours(values[:3], 2).shape == (3,)
    assert ours.compilations == 3
    ours(values + 1, 3, scale=5.0)  # of equal shapes
    assert ours.compilations == 3


def several_kernels(values):
    for _ in range(4):
        values = jnp.linalg.cholesky(values @ values.T + jnp.eye(len(values)))
    return jnp.sort(values.ravel())


SIZES = [np.eye(size) for size in range(2, 22)]


@pytest.mark.heavy
def test_programs_used_least_recently_are_given_up_and_no_others(monkeypatch):
    """Each is said to take ten mappings, and sixty are granted."""
    counted = count(1000, 10)
    monkeypatch.setattr(program, "_kept", type(program._kept)())
    monkeypatch.setattr(programs, "mappings", lambda: next(counted))
    monkeypatch.setattr(programs, "SHARE", 1.0)
    monkeypatch.setattr(programs, "most_mappings", lambda: 60)
    ours, of_a_user = program(several_kernels), jax.jit(several_kernels)
    of_a_user(SIZES[0])
    gc.collect()
    before = mappings()
    for made, values in enumerate(SIZES, 1):
        ours(values)
        ours(SIZES[0])  # in use throughout: never given up
        assert ours.compilations == made
        assert len(program._kept) == min(made, 6)
    for values in (SIZES[0], *SIZES[-5:]):
        ours(values)
    assert ours.compilations == len(SIZES), "a program of equal shapes was made again"
    ours(SIZES[-6])
    assert ours.compilations == len(SIZES) + 1, "the oldest was not given up"
    assert of_a_user._cache_size() == 1
    # They are gone from memory as well: where none is given up, there are more than twice as many.
    between = mappings()
    for values in SIZES:
        of_a_user(values)
    assert between - before < (mappings() - between) / 2


FORKED = """
import os, sys, signal
import numpy as np
import jax
from theory.programs import program

double = program(lambda values: 2 * values)
if sys.argv[1] == "after":
    double(np.ones(3))
child = os.fork()
if child == 0:
    signal.alarm(100)
    try:
        print("computed", double(np.ones(3)).sum(), flush=True)
    except RuntimeError as problem:
        print(problem, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("when", "said"),
    [("before", "computed 6.0"), ("after", 'start processes with multiprocessing.get_context("sp')],
)
def test_a_fork_computes_or_says_why_not(when, said):
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, when],
        check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert said in found.stdout
