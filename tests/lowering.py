"""All compiled functions of the product, with the arguments that small runs call them with.

`python -m tests.lowering` writes the list of them to `tests/benchmarks/PROGRAMS.md`.
"""

import importlib
import json
import pkgutil
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import export

import sampler
import theory.predictor
from sampler import devices, problem
from sampler.devices import Layout, in_layout, layout
from sampler.mcmc import split_hmc
from sampler.posterior.order_parameters import OrderParameterPosterior
from tests import ROOT
from tests.commands import TINY_SAMPLED, in_process, settings, without_drawing
from tests.small import small_problem
from tests.training_recipes import ANALYSIS, train_in
from tests.training_recipes import TINY as TRAINING
from theory import Predictor, gate_response, predict, solve_saddle_point
from theory.learned_attention import evidence_at_infinite_width
from theory.programs import program

CUSTOM_CALL = re.compile(r"stablehlo\.custom_call @([\w.]+)")
LIST = ROOT / "tests" / "benchmarks" / "PROGRAMS.md"
NOT_IMPORTED = ("sampler.gallery", "sampler.__main__")


def all_programs() -> dict[str, program]:
    """Every compiled function of the two packages, by the name where it is defined."""
    found = {}
    for package in (theory, sampler):
        for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not one.name.startswith(NOT_IMPORTED):
                found |= programs_of(importlib.import_module(one.name))
    return found


def programs_of(module) -> dict[str, program]:
    """Those that a module defines, or its classes do; a method by the name of its class."""
    classes = [v for v in vars(module).values() if isinstance(v, type)]
    own = [(f"{one.__qualname__}.", one) for one in classes if one.__module__ == module.__name__]
    return {
        f"{module.__name__}.{prefix}{name}": value
        for prefix, holder in (("", module), *own)
        for name, value in vars(holder).items()
        if isinstance(value, program) and value.__wrapped__.__module__ in (module.__name__, "jax")
    }


@dataclass(frozen=True)
class Lowered:
    """A program as it is handed to the compiler of a platform.

    custom_calls  names that a library of the platform must answer to
    size          characters of its text
    """

    custom_calls: frozenset[str]
    size: int


@dataclass(frozen=True, eq=False)
class Call:
    """Arguments of a call of a program, and what it was compiled under."""

    of: program
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    double: bool
    layout: Layout

    @cached_property
    def _function(self):
        """Compiled by itself: one trace serves all platforms."""
        return self.of._compile(self.of.__wrapped__)

    def lowered(self, platform: str) -> Lowered:
        """The program for a platform, which need not be there.

        Raises what JAX raises where an operation has no rule for it.
        """
        with jax.enable_x64(self.double), in_layout(**vars(self.layout)):
            exported = export.export(self._function, platforms=[platform])(
                *self.arguments, **self.keywords
            )
        text = exported.mlir_module()
        return Lowered(frozenset(CUSTOM_CALL.findall(text)), len(text))

    def in_single_precision(self) -> "Call":
        """The same call with arrays of half the size."""
        arguments, keywords = jax.tree.map(_single, (self.arguments, dict(self.keywords)))
        return replace(self, arguments=arguments, keywords=keywords, double=False)


HALF = {np.dtype(np.float64): np.float32, np.dtype(np.int64): np.int32}


def _single(leaf):
    is_array = isinstance(leaf, jax.Array | np.ndarray)
    return leaf.astype(HALF[leaf.dtype]) if is_array and leaf.dtype in HALF else leaf


@dataclass
class Recorded:
    """Calls of programs, by kind of arguments, and programs that were asked for shapes only."""

    calls: dict[program, dict[Any, Call]] = field(default_factory=dict)
    shapes: set[program] = field(default_factory=set)


@contextmanager
def recorded() -> Iterator[Recorded]:
    """Collect calls while inside; those within another program are parts of that one."""
    found = Recorded()
    called, of_shape = program.__call__, program.eval_shape

    def calling(self, *arguments, **keywords):
        leaves = jax.tree.leaves((arguments, keywords))
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            key = (layout(), self._kept_for(arguments, keywords)[0])
            now = Call(self, arguments, keywords, jax.config.jax_enable_x64, layout())
            found.calls.setdefault(self, {}).setdefault(key, now)
        return called(self, *arguments, **keywords)

    def asked(self, *arguments, **keywords):
        found.shapes.add(self)
        return of_shape(self, *arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "__call__", calling)
        patch.setattr(program, "eval_shape", asked)
        yield found


FIXED, LEARNED = '[["good", "uniform"], ["uniform"]]', '[["learned", "learned"], ["uniform"]]'
OF_LEARNED = TINY_SAMPLED.replace(FIXED, LEARNED)
# Recipes, and what each run changes: settings of the sampler, and others. `start_from` names a run
# before it.
RUNS = {
    "order_parameters": (
        TINY_SAMPLED,
        {"evidence": True, "weight_draws": 2, "draws": 8, "algorithm": "split_hmc"},
        {"task.examples_validation": 4},
    ),
    "variances": (
        TINY_SAMPLED,
        {"algorithm": "nuts", "max_tree_depth": 3},
        {"posterior.temperature_spread": 0.5},
    ),
    "weights": (TINY_SAMPLED, {"space": "weights", "keep_weights": True}, {}),
    "more_weights": (
        TINY_SAMPLED,
        {"space": "weights", "keep_weights": True, "start_from": "weights", "seed": 1},
        {},
    ),
    "upper_weights": (TINY_SAMPLED, {"space": "upper_weights", "precision": "float32"}, {}),
    "importance": (
        TINY_SAMPLED,
        {"algorithm": "importance", "draws": 50},
        {"task.examples_train": 40},
    ),
    "tempered": (TINY_SAMPLED, {"algorithm": "tempered", "particles": 16, "until": "draws"}, {}),
    "tempered_many": (
        TINY_SAMPLED,
        {"algorithm": "tempered", "particles": 16, "until": "draws", "space": "hidden_weights"},
        {"network.values": "relu", "network.widths": 12},
    ),
    "learned": (
        OF_LEARNED,
        {"weight_draws": 2, "attention_theories": 4},
        {"task.examples_validation": 4},
    ),
    "erf": (TINY_SAMPLED, {"space": "hidden_weights"}, {"network.values": "erf"}),
    "attention": (OF_LEARNED, {}, {"network.widths": "infinite"}),
}  # fmt: skip


def run(folder: Path, name: str) -> None:
    """One of the runs, into a folder of its name."""
    text, sampler, others = RUNS[name]
    if sampler.get("algorithm") in ("tempered", "importance"):
        text = text[: text.index("chains = 2")]
    if "start_from" in sampler:
        sampler = {**sampler, "start_from": str(folder / sampler["start_from"])}
    (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    chosen = {f"sampler.{key}": value for key, value in sampler.items()} | others
    words = settings(*(f"{key}={json.dumps(value)}" for key, value in chosen.items()))
    code = in_process("run", folder / f"{name}.toml", "--out", folder / name, *words)
    assert code in (0, 3), name  # 3: so few draws prove nothing


def call_what_small_runs_do_not(rng) -> None:
    """Programs of sizes and of questions that no small run comes to."""
    small = small_problem(rng)
    learning = small.learning
    solved = solve_saddle_point(learning)
    posterior = OrderParameterPosterior.of(learning)
    direction = np.ones(posterior.coordinates.size)
    posterior.curvature_along(np.zeros(posterior.coordinates.size), direction)
    posterior.curvature(direction)
    evidence_at_infinite_width(
        np.asarray(learning.attended), np.asarray(learning.labels), learning.architecture, 0.2
    )
    gate_response(learning, solved.order_parameters, small.attended_test)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theory.predictor, "CHUNK_BYTES", 1)
        tested = Predictor.for_examples(learning, small.attended_test)
        predict(tested, solved.order_parameters.factors[0])


def record_small_runs(folder: Path) -> Recorded:
    """Run everything in small, laid out as on an accelerator, and record what is compiled."""
    with pytest.MonkeyPatch.context() as patch, without_drawing(), recorded() as found:
        patch.setattr(devices, "OF_PROCESSOR", devices.OF_ACCELERATOR)
        patch.setattr(split_hmc, "FEWEST_NUMBERS", 1)
        patch.setattr(problem, "MOST_POINTWISE", 40)
        for name in RUNS:
            run(folder, name)
        call_what_small_runs_do_not(np.random.default_rng(2))
        train_in(folder, TRAINING.replace("130", "20"), ANALYSIS)
        assert in_process("solve", folder / "analysis.toml", "--out", folder / "solved") == 0
        assert in_process("prune", folder / "solved", "--orders", "1") == 0
    return found


HEAD = """# Compiled programs

Written by `python -m tests.lowering`: every program that the package compiles, lowered for CUDA
on a machine that has none, from the arguments of small runs with the layout of an accelerator.
Kinds of arguments, characters of the largest text, and the calls of NVIDIA's libraries in it; JAX's
package for CUDA (release {release}) registers every one of them. None calls the host.
`tests/test_lowering.py` lowers them for ROCm and TPUs, too.

{programs} programs, {kinds} kinds of arguments, {called} different custom calls.

| program | kinds | characters | custom calls |
|---|---|---|---|
"""


def main() -> None:
    """Write the list of programs."""
    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory() as folder:
        calls = record_small_runs(Path(folder)).calls
    found = {
        name: [call.lowered("cuda") for call in calls.get(one, {}).values()]
        for name, one in sorted(all_programs().items())
    }
    lines = []
    for name, each in found.items():
        if each:
            custom = ", ".join(sorted(set().union(*(one.custom_calls for one in each)))) or "none"
            size = max(one.size for one in each)
            lines.append(f"| `{name}` | {len(each)} | {size:,} | {custom} |")
        else:
            lines.append(f"| `{name}` | – | only its shapes are asked for | – |")
    every = [one for each in found.values() for one in each]
    head = HEAD.format(
        release=version("jaxlib"),
        programs=len(found),
        kinds=len(every),
        called=len(set().union(*(one.custom_calls for one in every))),
    )
    LIST.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
