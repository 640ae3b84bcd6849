"""Every space with every algorithm on problems of all sizes: which one a user should be given.

Each runs in a process of its own, until it has enough effective draws. The rows have the sizes that
`sampler.jobs.choice` predicts from.
"""

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from multiprocessing.connection import Connection
from pathlib import Path

import jax
import numpy as np
from scipy.optimize import least_squares

from sampler.jobs.choice import (
    EFFECTIVE_DRAWS,
    MEASURED_CHAINS,
    MOST_EXAMPLES,
    SPEEDS,
    Sizes,
    Speed,
    eigenvalue_of_all,
    ranked,
    warmup_of,
)
from sampler.mcmc.kept import evenly_spaced
from sampler.problem import Problem, build_problem
from sampler.recipes.recipe import load_recipe
from sampler.recipes.sampler_section import SamplerSection
from sampler.tasks.make import build_task
from sampler.tasks.task import name_paths
from tests import ROOT
from tests.benchmarks.outsiders import FEWEST, collect_draws, stream_draws
from tests.problems import problem_of_many_paths, random_problem
from theory import Architecture, LearningProblem

TEST_EXAMPLES = 100
# Those that are often best first, since the others' time is limited by theirs.
CHOICES = (
    ("order_parameters", "split_hmc"),
    ("weights", "nuts"),
    ("order_parameters", "nuts"),
    ("weights", "split_hmc"),
    ("order_parameters", "importance"),
)
# The least time of a choice in seconds. What has not `FEWEST` effective draws in the time that the
# best one needs for all of them is many times slower, whatever it would reach later.
SHORTEST = 60.0
TABLE = ROOT / "tests" / "benchmarks" / "choices.csv"


def of_recipe(name: str, *settings: str) -> Problem:
    """The problem of a shipped recipe, with fewer test examples."""
    own = ["sweep={}", f"task.examples_test={TEST_EXAMPLES}", *settings]
    recipe = load_recipe(ROOT / "runs" / f"{name}.toml", own)
    return build_problem(recipe, build_task(recipe))


def without_labels(learning: LearningProblem) -> Problem:
    """A learning problem whose predictor is observed on some of its examples."""
    heads = tuple(tuple(map(str, range(count))) for count in learning.architecture.heads)
    observed = learning.attended[:TEST_EXAMPLES]
    return Problem(learning, observed, None, name_paths(heads), heads)


def many_paths(
    heads: tuple[int, ...], examples: int, width: int, temperature: float = 0.25
) -> Problem:
    """Paths that share half their inputs, at the temperatures of one-shot tasks."""
    rng = np.random.default_rng(0)
    problem = problem_of_many_paths(rng, width, examples=examples, heads=heads)
    return without_labels(replace(problem, temperature=temperature))


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
    "sixteen paths, P = 600, N = 100, cold": lambda: many_paths((4, 4), 600, 100, 0.01),
    "digits, ten outputs": lambda: of_recipe("digits"),
    "64 paths, P = 200, N = 100": lambda: many_paths((8, 8), 200, 100),
    "six layers of one head, N = 20": lambda: deep(6, 100, 20),
}


@dataclass(frozen=True)
class Cost:
    """What one choice took on one problem: a row of the table.

    `seconds` counts everything (mode, compilation, warm-up, draws), `seconds_draws` the draws
    alone; `gradients` are those of the draws of all chains, `effective_draws` those of the worst
    element of U_1; `warmup` and `draws` are of each chain.
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
    stiffness: float
    warmup: int
    draws: int
    seconds: float
    seconds_draws: float
    gradients: int
    effective_draws: int

    @property
    def sizes(self) -> Sizes:
        """What the cost is predicted from."""
        variances = (1.0,) * (len(self.heads) + 2)
        network = Architecture(self.heads, self.widths, variances, self.channels, self.outputs)
        return Sizes(network, self.examples, self.observed, self.stiffness)

    @property
    def known(self) -> bool:
        """Whether there are enough effective draws for a rate."""
        return self.effective_draws >= FEWEST

    @property
    def to_enough(self) -> float:
        """Seconds to `EFFECTIVE_DRAWS` effective draws; where that is not known, at least so many.

        Independent draws were so many from the beginning. Of chains that are still in warm-up no
        more is known than that their draws take time, too.
        """
        before = self.seconds - self.seconds_draws
        reached = self.effective_draws if self.known else FEWEST
        return before + self.seconds_draws * EFFECTIVE_DRAWS / reached


def settings_of(space: str, algorithm: str, architecture: Architecture) -> SamplerSection:
    """Settings of a run; importance draws are counted beforehand."""
    draws = {"draws": EFFECTIVE_DRAWS // 4} if algorithm == "importance" else {}
    warmup = warmup_of(space, algorithm, architecture)
    return SamplerSection(space=space, algorithm=algorithm, warmup=warmup, **draws)


def sample(problem: str, space: str, algorithm: str, sender: Connection) -> None:
    """What the process of a choice does."""
    jax.config.update("jax_enable_x64", True)
    made = PROBLEMS[problem]()
    sender.send("ready")
    section = settings_of(space, algorithm, made.architecture)
    stream_draws(made, section, lambda *block: sender.send(block))
    sender.close()


def measure(problem: str, space: str, algorithm: str, seconds: float) -> Cost:
    """One row of the table."""
    found = collect_draws(sample, (problem, space, algorithm), seconds)
    made = PROBLEMS[problem]()
    one, attended = made.architecture, np.asarray(made.learning.attended)
    chosen = attended[evenly_spaced(len(attended), MOST_EXAMPLES)]
    stiffness = eigenvalue_of_all(chosen, len(attended)) * math.prod(one.variances)
    return Cost(
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
        stiffness=float(f"{stiffness / made.temperature:.4g}"),
        warmup=settings_of(space, algorithm, one).warmup_steps,
        draws=found.draws.shape[1],
        # A process that ends without draws has failed, as for lack of memory.
        seconds=round(found.seconds, 1) if found.draws.size or found.in_time else math.inf,
        seconds_draws=round(found.seconds_draws, 1),
        gradients=found.gradients,
        effective_draws=round(min(found.effective_draws)),
    )


def measure_choices(minutes: float, problems: Sequence[str] = tuple(PROBLEMS)) -> Iterator[str]:
    """The rows of a CSV table, each as soon as it is known.

    A choice may use so many minutes, and no more than the best one needed.
    """
    yield csv_line(field.name for field in fields(Cost))
    for problem in problems:
        best = 60 * minutes
        for space, algorithm in CHOICES:
            limit = min(60 * minutes, max(SHORTEST, best))
            row = measure(problem, space, algorithm, limit)
            if row.known:
                best = min(best, row.to_enough)
            yield csv_line(astuple(row))


def csv_line(values: Iterable[object]) -> str:
    """One line of the table; sizes of layers stand in one column, separated by blanks."""
    line = io.StringIO()
    texts = (" ".join(map(str, v)) if isinstance(v, tuple) else v for v in values)
    csv.writer(line, lineterminator="").writerow(texts)
    return line.getvalue()


def read_costs(path: Path) -> tuple[Cost, ...]:
    """The rows of a stored table."""

    def value(field, text: str):
        if field.type == tuple[int, ...]:
            return tuple(map(int, text.split()))
        return field.type(text)

    with path.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return tuple(Cost(**{f.name: value(f, row[f.name]) for f in fields(Cost)}) for row in rows)


def fitted_speeds(costs: Sequence[Cost]) -> dict[tuple[str, str], Speed]:
    """The constants of `sampler.jobs.choice` that fit a table best, for every pair that it has."""
    return {
        pair: fitted_speed(pair, [c for c in costs if (c.space, c.algorithm) == pair])
        for pair in SPEEDS
    }


def fitted_speed(pair: tuple[str, str], rows: Sequence[Cost]) -> Speed:
    """Least squares of the logarithm of gradients per effective draw.

    A row with too few effective draws is a bound, from which only smaller predictions differ. Where
    no rate is known, cost and start are those that were assumed before.
    """
    space, speed = pair[0], SPEEDS[pair]
    rows = [row for row in rows if math.isfinite(row.seconds)]
    known = [row for row in rows if row.known and row.gradients]
    if known:
        small = [row.seconds - row.seconds_draws for row in known if row.examples <= 100]
        pace = [
            row.sizes.gradient_operations(space) * row.gradients / row.seconds_draws
            for row in known
        ]
        start = float(np.median(small)) if small else speed.start
        later = [
            max(0.0, row.seconds - row.seconds_draws - start)
            / (row.seconds_draws * row.warmup / row.draws)
            for row in known
            if row.seconds_draws > start
        ]
        share = float(np.median(later)) if later else speed.warmup
        draws = float(np.median([4 * row.draws / row.effective_draws for row in known]))
        speed = replace(speed, start=start, warmup=share, rate=float(max(pace)), draws=draws)

    def needed(row: Cost) -> float:
        if row.known:
            return row.gradients / row.effective_draws
        share = EFFECTIVE_DRAWS * speed.draws / speed.draws_worth(row.warmup, MEASURED_CHAINS)
        seconds = share * max(1.0, row.to_enough - speed.start)
        operations = row.sizes.gradient_operations(space)
        return seconds / EFFECTIVE_DRAWS / speed.gradient_seconds(space, row.sizes, operations)

    def tried(parameters) -> Speed:
        gradients, narrow, singular = map(float, np.exp(parameters))
        singular = singular if space == "order_parameters" else 0.0
        width = {"few": narrow} if space == "weights" else {"narrow": narrow}
        return replace(speed, gradients=gradients, singular=singular, **width)

    def residuals(parameters):
        one = tried(parameters)
        away = [np.log(one.gradients_needed(row.sizes) / needed(row)) for row in rows]
        return [r if row.known else min(r, 0.0) for r, row in zip(away, rows, strict=True)]

    bounds = np.log([[1e-3, 1e-3, 1e-3], [1e6, 1e3, 1e3]])
    found = tried(least_squares(residuals, [1.0, 0.0, -3.0], bounds=bounds).x)
    return replace(found, **{name: float(f"{value:.3g}") for name, value in asdict(found).items()})


def fit() -> Iterator[str]:
    """The fitted constants, and for each problem how the choice compares with the best."""
    costs = read_costs(TABLE)
    for (space, algorithm), speed in fitted_speeds(costs).items():
        numbers = ", ".join(map(str, astuple(speed)))
        yield f'("{space}", "{algorithm}"): Speed({numbers}),'
    yield ""
    yield from seconds_table(costs)
    yield ""
    for problem in dict.fromkeys(cost.problem for cost in costs):
        best, chosen, ratio = compared(costs, problem)
        yield (
            f"{problem}: {', '.join(chosen)} in {ratio:.2f} of the time of the best, "
            f"{', '.join(best)}"
        )


def seconds_table(costs: Sequence[Cost]) -> Iterator[str]:
    """Seconds to `EFFECTIVE_DRAWS` effective draws, everything included."""
    yield f"| problem | {' | '.join(f'{space}, {algorithm}' for space, algorithm in CHOICES)} |"
    yield "|---" * (1 + len(CHOICES)) + "|"
    for problem in dict.fromkeys(cost.problem for cost in costs):
        rows = {(row.space, row.algorithm): row for row in costs if row.problem == problem}
        cells = [seconds_text(rows[pair]) if pair in rows else "" for pair in CHOICES]
        yield f"| {problem} | {' | '.join(cells)} |"


def seconds_text(row: Cost) -> str:
    """The seconds, or a bound."""
    if math.isinf(row.seconds):
        return "failed"
    return f"{'' if row.known else '> '}{row.to_enough:,.0f}"


def compared(costs: Sequence[Cost], problem: str) -> tuple[tuple[str, str], tuple[str, str], float]:
    """The fastest pair, the one that is chosen, and how many times slower that is."""
    rows = {(row.space, row.algorithm): row for row in costs if row.problem == problem}
    best = min(rows, key=lambda pair: rows[pair].to_enough)
    spaces = tuple(dict.fromkeys(space for space, _ in SPEEDS))
    (chosen, _), *_ = ranked(rows[best].sizes, spaces)
    return best, chosen, rows[chosen].to_enough / rows[best].to_enough
