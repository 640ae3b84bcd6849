"""What finite width gains.

Accuracy of the theory at N = 10 minus that at infinite width, paired over data seeds: each at the
temperature that is right most often on 1,000 validation examples of its own, both at that of the
recipe, and each at the one that its evidence chooses (Laplace's approximation for the theory).

    python -m runs.studies.width_gains.study [FOLDER [SEEDS]]     20 data seeds, 6 of time series
"""

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.study import RUNS, Study, mean_over
from sampler.presentation import style
from theory import (
    InfiniteWidth,
    OrderParameters,
    Predictor,
    log_evidence_at_saddle,
    predict,
    solve_saddle_point,
)

SEEDS = {"markov_four_paths": 20, "markov_two_paths": 20, "time_series": 6}
WIDTH = 10
TEMPERATURES = 10.0 ** np.arange(-6.0, 1.01, 0.5)
CHOICES = ("validation", "recipe", "evidence")
NETWORKS = ("theory", "infinite")


def problem_of(recipe: str, width: int, **settings):
    """The learning problem of a recipe at one width, with other settings of its task."""
    changes = {"network.widths": width} | {f"task.{key}": one for key, one in settings.items()}
    return sampler.make_problem(sampler.Recipe.load(RUNS / f"{recipe}.toml", changes))


def signs_right(learning, attended, labels, factor) -> np.ndarray:
    """Which examples U₁ = F Fᵀ gets right."""
    mean = np.asarray(predict(Predictor.for_examples(learning, attended), factor)[0])
    return (np.sign(mean) == labels)[:, 0]


def measure(recipe: str, seed: int) -> dict[str, dict]:
    """Test accuracy and temperature of theory and infinite width, by every choice."""
    problem = problem_of(recipe, WIDTH, seed=seed, examples_validation=1000)
    learning, limit = problem.learning, InfiniteWidth.of(problem.learning)
    infinite = OrderParameters.gp_limit(learning.architecture).factors[0]
    rows = []
    for temperature in TEMPERATURES:
        there = learning.at(temperature)
        saddle = solve_saddle_point(there)
        if not saddle.converged:
            raise SystemExit(saddle.explain())
        of_theory = saddle.order_parameters.factors[0], log_evidence_at_saddle(there, saddle)
        for factor, evidence in (of_theory, (infinite, limit.log_evidence(temperature))):
            validation = problem.attended_validation, problem.labels_validation
            test = problem.attended_test, problem.labels_test
            shares = [signs_right(there, *split, factor).mean() for split in (validation, test)]
            rows.append([*shares, float(evidence)])
    table = np.array(rows).reshape(len(TEMPERATURES), len(NETWORKS), 3)
    of_recipe = np.full(2, np.argmin(np.abs(np.log(TEMPERATURES / learning.temperature))))
    places = (table[..., 0].argmax(axis=0), of_recipe, table[..., 2].argmax(axis=0))
    return {
        choice: {
            "accuracy": table[at, [0, 1], 1].tolist(),
            "temperature": TEMPERATURES[at].tolist(),
        }
        for choice, at in zip(CHOICES, places, strict=True)
    }


def over_seeds(values: np.ndarray) -> dict:
    """Mean, standard error and standard deviation over data seeds."""
    return mean_over(values, "data seeds") | {"spread": np.std(values, ddof=1)}


def gains(rows: list[dict], choice: str) -> np.ndarray:
    """Points of accuracy gained, by data seed."""
    right = np.array([row[choice]["accuracy"] for row in rows])
    return 100 * (right[:, 0] - right[:, 1])


def summary(rows: list[dict], choice: str) -> dict:
    """Gains and accuracies over data seeds, and geometric means of the temperatures."""
    right, temperatures = (
        np.array([row[choice][key] for row in rows]).T for key in ("accuracy", "temperature")
    )
    gain, chosen = gains(rows, choice), np.exp(np.log(temperatures).mean(axis=1))
    accuracies = {name: over_seeds(of) for name, of in zip(NETWORKS, right, strict=True)}
    return {
        "gain": over_seeds(gain),
        "least": gain.min(),
        "most": gain.max(),
        **accuracies,
        "temperature": chosen[0],
        "infinite temperature": chosen[1],
    }


LABELS = {
    "validation": ("each at its best by validation", "o", style.THEORY),
    "recipe": ("both at the recipe's temperature", "x", style.GAUSSIAN_PROCESS),
    "evidence": ("each at its best by evidence", "^", style.NEXT_ORDER),
}


def draw(found: dict[str, list[dict]]) -> Figure:
    """Draw what every data seed gains, by recipe and choice of the temperature."""
    figure = style.new_figure(6.0, 3.0)
    axes = figure.subplots()
    for place, (choice, (label, marker, colour)) in enumerate(LABELS.items()):
        for row, rows in enumerate(found.values()):
            gain = gains(rows, choice)
            height = np.full(len(gain), row + 0.2 * (1 - place))
            marks = {"color": colour, "alpha": 0.6, "label": label if row == 0 else None}
            axes.plot(gain, height, marker, **marks)
    axes.set_yticks(range(len(found)), [name.replace("_", " ") for name in found])
    axes.set_xlabel("accuracy gained over infinite width, a mark a data seed (points)")
    axes.axvline(0.0, color="black", linewidth=0.5)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 1.38), ncols=1)
    return figure


if __name__ == "__main__":
    study = Study(__file__)
    found = {
        recipe: [
            study.once(f"{recipe}_{seed}", measure, recipe, seed)
            for seed in range(min(count, study.size(0, count)))
        ]
        for recipe, count in SEEDS.items()
    }
    study.record(
        {
            recipe: {choice: summary(rows, choice) for choice in CHOICES}
            for recipe, rows in found.items()
        },
        seeds=list(range(max(map(len, found.values())))),
    )
    with style.figure_style():
        study.draw(draw(found))
