"""What every process sees to before it computes."""

import gc
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler import runtime
from sampler.errors import ExitCode, RequeueError
from sampler.jobs.plan import make_plan
from sampler.jobs.run import start_run
from sampler.settings.recipe import load_recipe
from sampler.storage.manifest import read_manifest
from tests import ROOT
from tests.commands import TINY_SAMPLED, AfterChunks, assert_same_bits, command, in_process

THREADS = """
import json
{before}
from threadpoolctl import threadpool_info

def threads():
    return [one["num_threads"] for one in threadpool_info() if one["internal_api"] == "openblas"]

before = threads()
import sampler
sampler.InputError, sampler.sample
from sampler.runtime import jax_settings
with jax_settings():
    with jax_settings():
        import scipy.linalg
    inside = threads()
print(json.dumps(dict(before=before, inside=inside, after=threads())))
"""


def threads_of(before: str, **variables: str) -> dict:
    """Threads of OpenBLAS in a process that uses the package after these lines."""
    kept = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    done = subprocess.run(
        [sys.executable, "-c", THREADS.format(before=before)],
        cwd=ROOT, env=kept | variables, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.slow
def test_openblas_computes_on_one_thread_whenever_it_was_loaded():
    """Of what was there before, only while anything is computed."""
    first = threads_of("")
    assert (first["inside"], first["after"]) == ([1, 1], [1, 1])  # NumPy's and SciPy's
    later = threads_of("import numpy, scipy.linalg")
    assert later["inside"] == [1, 1]
    assert later["after"] == later["before"]
    asked = threads_of("", OPENBLAS_NUM_THREADS="2")
    assert asked["inside"] == asked["after"] == [min(2, os.cpu_count())] * 2


def random_numbers() -> np.ndarray:
    return np.asarray(jax.random.normal(jax.random.key(3), (4,)))


def test_threads_share_settings_of_the_process_until_the_last_has_left():
    """A seed is that of the recipe, whatever JAX adds to seeds outside."""
    with runtime.jax_settings():
        expected = random_numbers()
    started, ended = threading.Event(), threading.Event()

    def draw() -> np.ndarray:
        with runtime.jax_settings():
            started.set()
            assert ended.wait(60)
            return random_numbers()

    before = jax.config.jax_random_seed_offset
    jax.config.update("jax_random_seed_offset", 5)
    try:
        with ThreadPoolExecutor(1) as thread:
            other = thread.submit(draw)
            assert started.wait(60)
            with runtime.jax_settings():
                np.testing.assert_array_equal(random_numbers(), expected)
            ended.set()
            np.testing.assert_array_equal(other.result(), expected)
        assert jax.config.jax_random_seed_offset == 5
        with pytest.raises(ZeroDivisionError), runtime.jax_settings():
            raise ZeroDivisionError
        assert jax.config.jax_random_seed_offset == 5
        assert (random_numbers() != expected).any()
    finally:
        jax.config.update("jax_random_seed_offset", before)


@pytest.mark.slow
def test_compiled_programs_are_dropped_where_memory_maps_run_short(tmp_path, monkeypatch):
    granted = tmp_path / "granted"
    monkeypatch.setattr(runtime, "MOST_MAPS", granted)
    factorise = jax.jit(lambda matrix: jnp.sort(jnp.linalg.cholesky(matrix @ matrix.T).ravel()))

    def taken() -> int:
        gc.collect()
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


def test_a_processor_is_divided_unless_its_user_has_done_so(monkeypatch):
    two, three = (f"--{runtime.HOST_DEVICES}={count}" for count in (2, 3))
    for before, expected in (("", two), ("--xla_dump_to=x", f"--xla_dump_to=x {two}"),
                             (three, three)):  # fmt: skip
        monkeypatch.setenv("XLA_FLAGS", before)
        runtime.divide_processor(2)
        assert os.environ["XLA_FLAGS"] == expected


@pytest.mark.slow
@pytest.mark.skipif(jax.device_count() > 1, reason="this process has several devices")
def test_a_run_is_resumed_on_the_devices_that_it_began_on(tmp_path):
    """Begun on the one device of this process; resumed in one that would have two."""
    recipe, interrupted, whole = tmp_path / "recipe.toml", tmp_path / "a", tmp_path / "b"
    recipe.write_text(TINY_SAMPLED)
    in_process("sample", recipe, "--out", whole)
    with pytest.raises(RequeueError):
        start_run(make_plan("sample", load_recipe(recipe), interrupted), AfterChunks(2))
    assert read_manifest(interrupted).devices == 1
    assert command("resume", interrupted)[0] in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED)
    assert_same_bits(interrupted, whole)
