"""Programs kept between runs, compiled or traced: where, and the same bits from them."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import register_dataclass

from sampler import compiled, stored_programs
from sampler.compiled import PROGRAMS
from sampler.posterior.space import Gaussian
from sampler.stored_programs import SUFFIX, stored_program


def test_compiled_programs_whose_writer_was_stopped_are_removed(tmp_path, monkeypatch):
    """And none are kept where the name is empty or of no directory."""
    environment = dict(os.environ)
    for name in (compiled.OF_JAX, *compiled.CONFIGURATION):
        environment.pop(name, None)
    # What is set there for the processes to come is undone with the rest.
    monkeypatch.setattr(os, "environ", environment)
    (tmp_path / "file").write_text("")
    for value in ("", str(tmp_path / "file")):
        environment[compiled.SETTING] = value
        assert compiled.cache_programs() is None
        assert compiled.OF_JAX not in environment
    environment[compiled.SETTING] = str(tmp_path)
    folder = compiled.cache_programs()
    assert tmp_path in folder.parents
    for name in ("one-cache", "one-atime", "two-cache"):
        (folder / name).write_bytes(b"0" * 1000)
    assert compiled.cache_programs() is None  # JAX has a folder, which is the user's
    del environment[compiled.OF_JAX]
    assert compiled.cache_programs() == folder
    assert {path.name for path in folder.glob("*-*")} == {"one-cache", "one-atime"}


def test_programs_are_kept_by_the_kind_and_the_number_of_cores(monkeypatch):
    core = "processor : 0\nmodel name : A\ncpu MHz : 1\nflags : a b\n"

    def key(text: str, cores: int) -> str:
        monkeypatch.setattr(Path, "read_text", lambda path, **_: text)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
        return compiled.processor_key()

    expected = key(core, 2)
    same = core.replace("MHz : 1", "MHz : 2"), f"{core}\n{core.replace('A', 'B')}"
    assert {key(text, 2) for text in same} == {expected}
    others = {key(core, 3), key(core.replace("A", "B"), 2), key(core.replace("a b", "a"), 2)}
    assert len(others | {expected}) == 4


# --- traced programs


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv(PROGRAMS, str(tmp_path))
    return tmp_path


class Walk:
    """A walk as chains take it, and how often Python was called to trace it."""

    def __init__(self) -> None:
        self.traced = 0

    def program(self):
        """The walk as another process has it: with nothing made yet."""

        def walk(steps, state, gaussian):
            self.traced += 1

            def step(_, state):
                key, own = jax.random.split(state["key"])
                return {"key": key, "x": state["x"] + gaussian.draw(own)}

            state = jax.lax.fori_loop(0, steps, step, state)
            return state, {"norm": jnp.linalg.norm(state["x"])}

        return stored_program("steps", like={0: "state"})(walk)


def arguments(steps=5):
    state = {"key": jax.random.key(3), "x": jnp.zeros(4)}
    return steps, state, Gaussian(jnp.ones(4), jnp.arange(16.0).reshape(4, 4))


def bits(results):
    state, numbers = results
    return [np.asarray(v) for v in (jax.random.key_data(state["key"]), state["x"], numbers["norm"])]


def assert_same(received, expected):
    for one, other in zip(bits(received), bits(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_stored_program_is_not_traced_again_and_has_the_bits_of_jit(folder, monkeypatch):
    walk = Walk()
    first = walk.program()(*arguments())
    traced = walk.traced
    assert_same(walk.program()(*arguments()), first)
    assert walk.traced == traced
    monkeypatch.delenv(PROGRAMS)
    assert_same(walk.program()(*arguments()), first)  # by jax.jit itself
    assert walk.traced > traced


def test_another_static_argument_shape_or_source_is_another_program(folder, monkeypatch):
    walk = Walk()
    walk.program()(*arguments())
    assert len(list(folder.glob(f"*{SUFFIX}"))) == 1
    walk.program()(*arguments(steps=6))
    steps, state, gaussian = arguments()
    walk.program()(steps, state, replace(gaussian, scale=jnp.ones(4)))
    program = walk.program()
    program(*arguments())
    with jax.default_matmul_precision("float32"):
        program(*arguments())
    assert len(list(folder.glob(f"*{SUFFIX}"))) == 4
    monkeypatch.setattr(stored_programs, "sources", lambda: "changed")
    walk.program()(*arguments())
    assert len(list(folder.glob(f"*{SUFFIX}"))) == 5


def test_a_damaged_program_is_made_anew(folder):
    walk = Walk()
    first = walk.program()(*arguments())
    (file,) = folder.glob(f"*{SUFFIX}")
    content = file.read_bytes()[:-1] + b"?"
    file.write_bytes(content)
    traced = walk.traced
    assert_same(walk.program()(*arguments()), first)
    assert walk.traced > traced
    assert file.read_bytes() != content


def test_what_holds_a_class_of_others_is_not_stored(folder):
    @register_dataclass
    @dataclass(frozen=True)
    class Foreign(Gaussian):
        """Its source may change, unseen."""

    walk = Walk()
    steps, state, gaussian = arguments()
    foreign = Foreign(gaussian.centre, gaussian.scale)
    assert_same(walk.program()(steps, state, foreign), walk.program()(*arguments()))
    assert len(list(folder.glob(f"*{SUFFIX}"))) == 1


def test_programs_not_used_for_longest_go_where_all_are_too_large(folder, monkeypatch):
    walk = Walk()
    walk.program()(*arguments())
    (first,) = folder.glob(f"*{SUFFIX}")
    monkeypatch.setattr(stored_programs, "MOST_BYTES", int(2.5 * first.stat().st_size))
    walk.program()(*arguments(6))
    (second,) = {*folder.glob(f"*{SUFFIX}")} - {first}
    walk.program()(*arguments())
    walk.program()(*arguments(7))
    left = {*folder.glob(f"*{SUFFIX}")}
    assert len(left) == 2
    assert first in left
    assert second not in left


FACTORISES = """
import jax, jax.numpy as jnp, numpy as np
from sampler.stored_programs import stored_program

@stored_program()
def factor(matrix):
    return {"cholesky": jnp.linalg.cholesky(matrix)}

print(np.asarray(factor(np.diag([4.0, 9.0]).astype(np.float32))["cholesky"]).tolist())
"""


@pytest.mark.slow
def test_a_process_that_lowers_nothing_factorises_all_the_same(folder):
    """JAX loads LAPACK where a call of it is lowered; the second process only reads."""
    for _ in range(2):
        run = [sys.executable, "-c", FACTORISES]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "[[2.0, 0.0], [0.0, 3.0]]"
        assert len(list(folder.glob(f"*{SUFFIX}"))) == 1
