"""An algorithm that the package does not have: registered, it runs from a recipe like any other."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.errors import ExitCode
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.mcmc.chain_algorithm import StepAlgorithm
from sampler.storage.result_files import read_draws
from tests.commands import in_process as command
from tests.commands import made_once, settings

pytestmark = pytest.mark.heavy


@dataclass(frozen=True)
class Metropolis(StepAlgorithm):
    """Random-walk Metropolis."""

    scale: float = 0.3
    statistics: ClassVar[Mapping[str, str]] = {
        **StepAlgorithm.statistics,
        "acceptance_rate": "accepted",
    }

    def step(self, state, space):
        key, jump, toss = jax.random.split(state["key"], 3)
        here = state["point"]
        there = here + self.scale * jax.random.normal(jump, here.shape, here.dtype)
        new = {"key": key, "point": there, "lp": -space.potential(there)}
        accepted = jnp.log(jax.random.uniform(toss)) < new["lp"] - state["lp"]
        state = jax.tree.map(partial(jnp.where, accepted), new, {**state, "key": key})
        return state, {"lp": state["lp"], "acceptance_rate": accepted.astype(float)}


OVERRIDES = (
    "sampler.algorithm=metropolis",
    "sampler.space=weights",
    "sampler.chains=2",
    "sampler.warmup=5",
    "sampler.draws=30",
    "sampler.thinning=2",
)


@pytest.fixture(scope="module", autouse=True)
def registered():
    ALGORITHMS.register("metropolis", Metropolis)
    yield
    del ALGORITHMS._entries["metropolis"]


@pytest.fixture(scope="module")
def finished(recipe_file, tmp_path_factory) -> Path:
    def make(folder: Path) -> int:
        return command("run", recipe_file, "--out", folder / "run", *settings(*OVERRIDES))

    folder, code = made_once(tmp_path_factory, "run_of_metropolis", make)
    assert code == ExitCode.DIAGNOSTICS_FAILED, "thirty draws are too few"
    return folder / "run"


def test_everything_is_stored_under_the_names_of_the_algorithm(finished):
    tree = read_draws(finished)
    statistics = tree["sample_stats"]
    assert set(statistics.data_vars) == {"lp", "acceptance_rate"}
    assert statistics["acceptance_rate"].attrs["long_name"] == "accepted"
    assert statistics.attrs["algorithm"] == "metropolis"
    assert statistics.attrs["scale"] == 0.3
    assert statistics.attrs["gradients"] == 0
    moved = np.diff(tree["posterior"]["order_parameter"].values, axis=1) != 0
    assert moved.any(axis=(1, 2, 3)).all()


@pytest.mark.parametrize("words", ["diagnose", "compare"])
def test_every_command_works_on_its_draws(words, finished, capsys):
    capsys.readouterr()
    code = command(words, finished)
    text = "".join(capsys.readouterr())
    assert code in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED), text
    # Nothing of what other algorithms have.
    assert not any(word in text for word in ("BFMI", "leapfrog", "diverge"))


def test_without_it_the_recipe_is_refused_with_the_algorithms_that_there_are(
    finished, recipe_file, monkeypatch, capsys
):
    monkeypatch.delitem(ALGORITHMS._entries, "metropolis")
    for words in (["diagnose", finished], ["check", recipe_file, *settings(*OVERRIDES)]):
        capsys.readouterr()
        assert command(*words) == ExitCode.BAD_INPUT
        problem = capsys.readouterr().err
        assert all(name in problem for name in ("metropolis", *ALGORITHMS))
