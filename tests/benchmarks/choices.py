"""Every space with every algorithm on problems of all sizes: which one a user should be given.

Each runs in a process of its own. The rows have the sizes that `sampler.jobs.choice` predicts from.
"""

import csv
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from multiprocessing import get_context
from multiprocessing.connection import Connection

import jax
import numpy as np

from sampler.jobs.stages import cost, diagnose_stage, draw_posterior
from sampler.problem import Problem, make_problem
from sampler.recipes.recipe import load_recipe
from sampler.recipes.sections import SamplerSection
from sampler.tasks.make import make_task
from sampler.tasks.task import name_paths
from tests import ROOT
from tests.problems import problem_of_many_paths, random_problem
from theory import Architecture, LearningProblem

TEST_EXAMPLES = 100
CHOICES = (
    ("order_parameters", "split_hmc"),
    ("order_parameters", "nuts"),
    ("order_parameters", "importance"),
    ("upper_weights", "split_hmc"),
    ("upper_weights", "nuts"),
    ("weights", "split_hmc"),
    ("weights", "nuts"),
)


def of_recipe(name: str, *settings: str) -> Problem:
    """The problem of a shipped recipe, with fewer test examples."""
    own = ["sweep={}", f"task.examples_test={TEST_EXAMPLES}", *settings]
    recipe = load_recipe(ROOT / "runs" / f"{name}.toml", own)
    return make_problem(recipe, make_task(recipe))


def without_labels(learning: LearningProblem) -> Problem:
    """A learning problem whose predictor is observed on some of its examples."""
    heads = tuple(tuple(map(str, range(count))) for count in learning.architecture.heads)
    observed = learning.attended[:TEST_EXAMPLES]
    return Problem(learning, observed, None, name_paths(heads), heads)


def many_paths(heads: tuple[int, ...], examples: int, width: int) -> Problem:
    rng = np.random.default_rng(0)
    return without_labels(problem_of_many_paths(rng, width, examples=examples, heads=heads))


def deep(layers: int, examples: int, width: int) -> Problem:
    """One head in each of many layers."""
    architecture = Architecture.uniform((1,) * layers, width, channels=40)
    rng = np.random.default_rng(0)
    return without_labels(random_problem(architecture, rng, examples=examples, temperature=0.1))


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "four paths, N = 2": lambda: of_recipe("markov_four_paths", "network.widths=2"),
    "two paths, N = 10": lambda: of_recipe("markov_two_paths", "network.widths=10"),
    "two paths, N = 100": lambda: of_recipe("markov_two_paths", "network.widths=100"),
    "four paths, N = 10": lambda: of_recipe("markov_four_paths", "network.widths=10"),
    "four paths, N = 100": lambda: of_recipe("markov_four_paths", "network.widths=100"),
    "sixteen paths, P = 600, N = 10": lambda: many_paths((4, 4), 600, 10),
    "sixteen paths, P = 600, N = 100": lambda: many_paths((4, 4), 600, 100),
    "sixteen paths, P = 600, N = 10,000": lambda: many_paths((4, 4), 600, 10_000),
    "digits, ten outputs": lambda: of_recipe("digits"),
    "64 paths, P = 200, N = 100": lambda: many_paths((8, 8), 200, 100),
    "six layers of one head, N = 20": lambda: deep(6, 100, 20),
}


@dataclass(frozen=True)
class Cost:
    """What one choice took on one problem: a row of the table.

    `seconds` counts
    everything (mode, compilation, warm-up, draws), `seconds_draws` the draws alone; `gradients` are
    those of the draws of all chains, `effective_draws` those of the worst element of U_1.
    """

    problem: str
    space: str
    algorithm: str
    heads: tuple[int, ...]
    widths: tuple[int, ...]
    channels: int
    outputs: int
    examples: int
    observed: int
    temperature: float
    chains: int
    draws: int
    seconds: float
    seconds_draws: float
    gradients: int
    effective_draws: float
    verdict: str


def measure(problem: str, space: str, algorithm: str, minutes: float, sender: Connection) -> None:
    """What the process of a choice does: a run, until it can be trusted or its time is over."""
    jax.config.update("jax_enable_x64", True)
    made = PROBLEMS[problem]()
    # Independent draws are counted beforehand.
    draws = {"draws": 1000} if algorithm == "importance" else {"max_minutes": minutes}
    settings = SamplerSection(space=space, algorithm=algorithm, **draws)
    tree = draw_posterior(made, settings, show=False)
    diagnostics = diagnose_stage(tree)
    found, attributes = cost(tree, diagnostics), tree["sample_stats"].attrs
    one = made.architecture
    sender.send(
        Cost(
            problem=problem,
            space=space,
            algorithm=algorithm,
            heads=one.heads,
            widths=one.widths,
            channels=one.channels,
            outputs=one.outputs,
            examples=len(made.labels),
            observed=len(made.attended_test),
            temperature=made.temperature,
            chains=diagnostics.chains,
            draws=int(attributes["draws_per_chain"]),
            seconds=round(found["seconds"], 1),
            seconds_draws=round(found["seconds_draws"], 1),
            gradients=found["gradients"],
            effective_draws=round(found["effective_draws"]),
            verdict=diagnostics.verdict,
        )
    )


def measure_choices(minutes: float, problems: Sequence[str] = tuple(PROBLEMS)) -> Iterator[str]:
    """The rows of a CSV table, each as soon as it is known; a run that fails is left out."""
    yield csv_line(field.name for field in fields(Cost))
    processes = get_context("spawn")
    for problem, choice in itertools.product(problems, CHOICES):
        receiver, sender = processes.Pipe(duplex=False)
        arguments = (problem, *choice, minutes, sender)
        process = processes.Process(target=measure, args=arguments)
        process.start()
        sender.close()
        with suppress(EOFError):
            yield csv_line(astuple(receiver.recv()))
        process.join()


def csv_line(values: Iterable[object]) -> str:
    """One line of the table; sizes of layers stand in one column, separated by blanks."""
    line = io.StringIO()
    texts = (" ".join(map(str, v)) if isinstance(v, tuple) else v for v in values)
    csv.writer(line, lineterminator="").writerow(texts)
    return line.getvalue()
