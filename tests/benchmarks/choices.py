"""Every space with every algorithm on problems of all sizes: which one a user should be given.

Each runs in a process of its own, its clock from the data on: mode, compilation, warm-up and draws.
"""

from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection

import jax
import numpy as np

from sampler.problem import Problem, make_problem
from sampler.recipes.recipe import load_recipe
from sampler.recipes.sections import SamplerSection
from sampler.tasks.make import make_task
from tests import ROOT
from tests.benchmarks.outsiders import collect_draws, send_draws
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


def without_names(learning: LearningProblem) -> Problem:
    """A learning problem of which only the draws matter."""
    return Problem(learning, learning.attended[:TEST_EXAMPLES], None, (), ())


def many_paths(heads: tuple[int, ...], examples: int, width: int) -> Problem:
    rng = np.random.default_rng(0)
    return without_names(problem_of_many_paths(rng, width, examples=examples, heads=heads))


def deep(layers: int, examples: int, width: int) -> Problem:
    """One head in each of many layers."""
    architecture = Architecture.uniform((1,) * layers, width, channels=40)
    rng = np.random.default_rng(0)
    return without_names(random_problem(architecture, rng, examples=examples, temperature=0.1))


PROBLEMS: dict[str, Callable[[], Problem]] = {
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


def work(problem: str, choice: tuple[str, str], sender: Connection) -> None:
    """What the process of a choice does."""
    jax.config.update("jax_enable_x64", True)
    made = PROBLEMS[problem]()
    sender.send("ready")
    space, algorithm = choice
    send_draws(made, SamplerSection(space=space, algorithm=algorithm), sender.send)
    sender.close()


def measure_choices(seconds: float, problems: Sequence[str] = tuple(PROBLEMS)) -> Iterator[str]:
    """The table, row by row; with few effective draws a rate is only a bound."""
    yield (
        "| problem | space | algorithm | draws | seconds | effective draws of the worst element | "
        "effective draws per second |\n|---|---|---|---|---|---|---|"
    )
    for problem in problems:
        for choice in CHOICES:
            found = collect_draws(work, (problem, choice), seconds)
            chains, draws, _ = found.draws.shape
            cells = [problem, *choice, f"{chains * draws}", f"{found.seconds:.0f}"]
            cells += [f"{min(found.effective_draws):.0f}", found.rate_text]
            yield f"| {' | '.join(cells)} |"
