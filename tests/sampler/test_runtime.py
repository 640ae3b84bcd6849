"""What every process sees to before it computes, and a jaxlib whose factorisations end."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler import runtime
from tests.commands import SMALLEST, TINY_SAMPLED, assert_same_bits, command, in_process

# Eight independent batches of triangular solves, each of them ready at the same time.
MANY_SOLVES = """
import jax, jax.numpy as jnp

@jax.jit
def solve_all(lower):
    lower = 0.01 * jnp.tril(jnp.sin(lower)) + 2 * jnp.eye(lower.shape[-1])
    right = jnp.broadcast_to(jnp.eye(lower.shape[-1]), lower.shape[1:])
    return [jax.scipy.linalg.solve_triangular(one, right, lower=True).sum() for one in lower]

for seed in range(40):
    jax.block_until_ready(solve_all(jax.random.normal(jax.random.key(seed), (8, 4, 200, 200))))
"""


@pytest.mark.long
def test_independent_triangular_solves_of_one_function_end():
    """With jaxlib 0.10.0 to 0.11.0 on two cores they wait for each other within seconds."""
    subprocess.run([sys.executable, "-c", MANY_SOLVES], check=True, timeout=240)


@pytest.mark.heavy
def test_compiled_programs_are_dropped_where_memory_maps_run_short(tmp_path, monkeypatch):
    granted = tmp_path / "granted"
    monkeypatch.setattr(runtime, "MOST_MAPS", granted)
    factorise = jax.jit(lambda matrix: jnp.sort(jnp.linalg.cholesky(matrix @ matrix.T).ravel()))

    def taken() -> int:
        return len(runtime.MAPS.read_text().splitlines())

    runtime.free_memory_maps()
    jax.clear_caches()
    before = taken()
    for size in range(2, 22):
        factorise(np.eye(size))
    after = taken()
    assert after > before + 20
    granted.write_text(str(3 * after))
    runtime.free_memory_maps()
    assert taken() >= after
    granted.write_text(str(after))
    runtime.free_memory_maps()
    assert taken() < before + (after - before) / 2


@pytest.mark.heavy
def test_a_cache_of_compiled_functions_is_read_in_silence(tmp_path):
    """A jaxlib that takes each of them for another machine's says so on stderr, untruly."""
    recipe, cache = tmp_path / "recipe.toml", tmp_path / "cache"
    recipe.write_text(SMALLEST)
    cache.mkdir()
    for number in range(2):
        code, errors = command("solve", recipe, "--out", tmp_path / f"{number}", cache=cache)
        assert code == 0, errors
    assert any(cache.iterdir())
    assert "cpu_aot_loader" not in errors


@pytest.mark.heavy
def test_chains_on_two_devices_are_sampled_in_silence(tmp_path):
    """XLA warns of its own plans for every function that is compiled for several devices."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(SMALLEST)
    _, errors = command("sample", recipe, "--out", tmp_path / "run")
    lines = [line for line in errors.splitlines() if line.strip()]
    assert lines
    assert all(line.startswith(("compiling", "warmup", "draws")) for line in lines), errors


@pytest.mark.slow
def test_draws_follow_from_the_recipe_whatever_generator_the_shell_asks_for(tmp_path, monkeypatch):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(TINY_SAMPLED)
    for name in ("here", "elsewhere"):
        if name == "elsewhere":
            monkeypatch.setenv("JAX_THREEFRY_PARTITIONABLE", "0")
            monkeypatch.setenv("JAX_DEFAULT_PRNG_IMPL", "rbg")
        code, errors = command("run", recipe, "--no-figures", "--out", tmp_path / name)
        assert code in (0, 3), errors
    assert_same_bits(tmp_path / "elsewhere", tmp_path / "here")


@pytest.mark.parametrize(
    ("words", "set_before", "expected"),
    [
        (["run", "RECIPE"], None, f"--{runtime.HOST_DEVICES}=2"),
        (["sweep", "RECIPE", "--point", "0"], None, f"--{runtime.HOST_DEVICES}=2"),
        (["sweep", "RECIPE", "--workers", "2"], None, None),
        (["sweep", "RECIPE", "--scheduler", "tcp://one:8786"], None, None),
        (["check", "RECIPE"], None, None),
        (["sample", "RECIPE"], "--xla_dump_to=x", f"--xla_dump_to=x --{runtime.HOST_DEVICES}=2"),
        (["run", "RECIPE"], f"--{runtime.HOST_DEVICES}=3", f"--{runtime.HOST_DEVICES}=3"),
    ],
)
def test_a_process_that_has_the_machine_divides_the_processor(
    words, set_before, expected, monkeypatch, tmp_path
):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if set_before:
        monkeypatch.setenv("XLA_FLAGS", set_before)
    missing = str(tmp_path / "missing.toml")
    assert in_process(*(missing if word == "RECIPE" else word for word in words)) != 0
    assert os.environ.get("XLA_FLAGS") == expected
