"""What finite width gains.

Accuracy of the theory at N = 10 minus that at infinite width, paired over data seeds: each at the
temperature that is right most often on 1,000 validation examples of its own, both at that of the
recipe, and each at the one that its evidence chooses (Laplace's approximation for the theory).

    python -m runs.studies.width_gains.study     half an hour
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.numbers import mean_over, of_kind
from runs.studies.study import RUNS, Study
from runs.studies.tables import Table, table
from sampler.presentation import style

SEEDS = {"markov_four_paths": 20, "markov_two_paths": 20, "time_series": 6}
WIDTH = 10
TEMPERATURES = 10.0 ** np.arange(-6.0, 1.01, 0.5)
NETWORKS = ["leading", "infinite"]
LABELS = {
    "validation": ("each at its best by validation", "o", style.THEORY),
    "recipe": ("both at the recipe's temperature", "x", style.GAUSSIAN_PROCESS),
    "evidence": ("each at its best by evidence", "^", style.NEXT_ORDER),
}


def measure(recipe: str, seed: int, every: int) -> dict[str, dict]:
    """Test accuracy and temperature of theory and infinite width, by every choice."""
    temperatures = TEMPERATURES[::every]
    changes = {
        "network.widths": WIDTH, "task.seed": seed, "task.examples_validation": 1000,
        "theory.next_order": False,
    }  # fmt: skip
    one, solved = sampler.Recipe.load(RUNS / f"{recipe}.toml", changes), []
    for temperature in temperatures:
        table = sampler.solve(one.changed({"posterior.temperature": temperature}))
        if not table.attrs["converged"]:
            raise SystemExit(table.attrs["explanation"])
        solved.append(table.sel(predictor=NETWORKS))
    validation, accuracy, evidence = (
        np.array([table[name] for table in solved])
        for name in ("validation_accuracy", "accuracy", "log_evidence")
    )
    of_recipe = np.argmin(np.abs(np.log(temperatures / one.posterior.temperature)))
    places = (validation.argmax(axis=0), np.full(2, of_recipe), evidence.argmax(axis=0))
    return {
        choice: {
            "accuracy": accuracy[at, [0, 1]].tolist(),
            "temperature": temperatures[at].tolist(),
        }
        for choice, at in zip(LABELS, places, strict=True)
    }


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
    return {
        "gain": mean_over(gain, "data seeds") | {"spread": np.std(gain, ddof=1)},
        "theory": mean_over(right[0], "data seeds"),
        "infinite": mean_over(right[1], "data seeds"),
        "temperature": chosen[0],
        "infinite temperature": chosen[1],
    }


def draw(rows: dict[str, dict]) -> Figure:
    """Draw what every data seed gains, by recipe and choice of the temperature."""
    figure = style.new_figure(6.0, 3.0)
    axes = figure.subplots()
    for place, (choice, (label, marker, colour)) in enumerate(LABELS.items()):
        for row, recipe in enumerate(SEEDS):
            gain = gains(list(of_kind(rows, recipe).values()), choice)
            height = np.full(len(gain), row + 0.2 * (1 - place))
            marks = {"color": colour, "alpha": 0.6, "label": label if row == 0 else None}
            axes.plot(gain, height, marker, **marks)
    axes.set_yticks(range(len(SEEDS)), [name.replace("_", " ") for name in SEEDS])
    axes.set_xlabel("accuracy gained over infinite width, a mark a data seed (points)")
    axes.axvline(0.0, color="black", linewidth=0.5)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 1.38), ncols=1)
    return figure


def points(small: bool, folder: Path) -> dict[str, tuple]:
    """Data seeds of every recipe."""
    return {
        f"{recipe}/{seed}": (measure, recipe, seed, 7 if small else 1)
        for recipe, count in SEEDS.items()
        for seed in range(2 if small else count)
    }


def numbers(rows: dict[str, dict]) -> dict:
    """What every recipe gains, by choice of the temperature."""
    return {
        recipe: {choice: summary(list(of_kind(rows, recipe).values()), choice) for choice in LABELS}
        for recipe in SEEDS
    }


COLUMNS = {
    "points gained": ("gain", None),
    "deviation over seeds": ("gain/spread", 1),
    "theory": ("theory", 3),
    "infinite width": ("infinite", 3),
    "𝒯 of the theory": ("temperature", 4),
    "of infinite width": ("infinite temperature", 4),
}


def tables(numbers: dict) -> dict[str, Table]:
    """Gains of every recipe and choice."""
    rows = {
        f"{recipe} | {LABELS[choice][0]}": numbers[recipe][choice]
        for recipe in SEEDS
        for choice in LABELS
    }
    return {"gains": table("recipe | temperature", rows, COLUMNS)}


STUDY = Study(__file__, points, numbers, tables, lambda rows, numbers: {"figure": draw(rows)})

if __name__ == "__main__":
    STUDY.run()
