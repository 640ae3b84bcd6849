"""What does the posterior of values make of attention that learned Raven's matrices?

A network of three layers of one, two and two heads of linear attention learned to name one symbol
of the ninth panel of a matrix, of compositions of rules of which five in twenty-five were held out
of training. Its weights, and the matrices of this study, are in frozen.npz. Networks of width 10
with its attention learn their values from 400 matrices of seen compositions, with theory and exact
posterior, and are tested on matrices of seen and of held-out ones.

    python -m runs.studies.raven.study     two minutes
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.numbers import estimate, share
from runs.studies.raven.mathematics import (
    SYMBOLS,
    Arrays,
    arrays_of,
    frozen_arrays,
    outputs_of_training,
)
from runs.studies.raven.trainings import tables_of
from runs.studies.study import Study
from runs.studies.tables import Table, table
from sampler.presentation import style
from theory import participation_ratio

TESTS = {"seen": "test_seen", "held out": "test_held_out"}
WIDTH = 10
# Of the theory, and of infinite width, whose best ones are smaller.
TEMPERATURES = (0.01, 0.03, 0.1)
LOWER = (1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1)


def recipe_of(arrays: Arrays, **posterior: float) -> sampler.Recipe:
    """A network of width 10 that learns its values from these arrays."""
    return sampler.Recipe(
        task=sampler.Arrays(**arrays),
        network={"widths": WIDTH},
        posterior=posterior,
        theory={"starts": 1, "next_order": False},
    )


def validated(recipe: sampler.Recipe, predictor: str, temperatures: Sequence[float]) -> float:
    """The temperature that is right most often on validation matrices."""

    def right(temperature: float) -> float:
        theory = sampler.solve(recipe.changed({"posterior.temperature": temperature}))
        return float(theory["validation_accuracy"].sel(predictor=predictor))

    return max(temperatures, key=right)


def of_infinite_width(matrices: int | None) -> dict:
    """Accuracies at a temperature of its own; so wide a network takes the theory one step."""
    frozen, wide = frozen_arrays(matrices), {"network.widths": 1_000_000}
    recipes = {
        name: recipe_of(arrays_of(frozen, split)).changed(wide) for name, split in TESTS.items()
    }
    best, found = validated(recipes["seen"], "infinite", LOWER), {}
    for name, recipe in recipes.items():
        theory = sampler.solve(recipe.changed({"posterior.temperature": best}))
        value = theory["accuracy"].sel(predictor="infinite")
        count = theory.sizes["test_example"]
        found[name] = {"infinite width": share(value, count), "temperature, infinite width": best}
    return found


def measure(matrices: int | None, settings: dict) -> dict:
    """Accuracies on both kinds of compositions: theory, exact, trained; and U₁ of the theory."""
    frozen = frozen_arrays(matrices)
    arrays = {name: arrays_of(frozen, split) for name, split in TESTS.items()}
    best = validated(recipe_of(arrays["held out"]), "leading", TEMPERATURES)
    found: dict = {"temperature": best}
    for name, those in arrays.items():
        recipe = recipe_of(those, temperature=best)
        theory = sampler.solve(recipe)
        draws = sampler.sample(recipe, progress=False, **settings)
        compared = sampler.compare(theory, draws)
        labels, count = those["labels_test"].argmax(axis=1), len(those["labels_test"])
        trained = outputs_of_training(frozen, those["inputs_test"]).argmax(axis=1)
        exact = compared.rows["accuracy", "sampled"]
        found[name] = {
            "theory": share(theory["accuracy"].sel(predictor="leading"), count),
            "trained": share(np.mean(trained == labels), count),
            # An accuracy moves in steps of one test example.
            "exact": estimate(exact["value"], max(exact["error"], 0.5 / count), "MCSE"),
            "trusted": bool(compared.diagnostics.passed),
        }
    overlap = np.asarray(theory["order_parameter"].sel(predictor="leading"))
    blocks = overlap.reshape(2 * (len(overlap) // SYMBOLS, SYMBOLS))
    traced = np.einsum("pcqc->pq", blocks) / SYMBOLS
    return found | {"U₁": traced.tolist(), "participation ratio": participation_ratio(traced)}


COLUMNS = {
    "theory": ("theory", 3),
    "exact posterior": ("exact", 4),
    "infinite width": ("infinite width", 3),
    "trained values": ("trained", 3),
}


def draw(numbers: dict) -> Figure:
    """Draw U₁ of the theory, traced over outputs, path by path."""
    figure = style.new_figure(4.0, 3.2)
    axes, traced = figure.subplots(), np.array(numbers["U₁"])
    names = [f"0·{one}·{other}" for one in range(2) for other in range(2)]
    limit = np.abs(traced).max()
    image = axes.imshow(traced, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="path", ylabel="path")
    figure.colorbar(image, label="U₁ of the theory, traced")
    return figure


def numbers(rows: dict[str, dict]) -> dict:
    """Accuracies of all on both kinds of compositions, and U₁."""
    posterior, limits = rows["posterior"], rows["infinite_width"]
    return posterior | {name: posterior[name] | limits[name] for name in TESTS}


def tables(numbers: dict) -> dict[str, Table]:
    """The posterior, and the trainings that are frozen (trainings.json)."""
    posterior = table("compositions", {name: numbers[name] for name in TESTS}, COLUMNS)
    return {"posterior": posterior} | tables_of(STUDY.kept("trainings"))


def points(small: bool, folder: Path) -> dict[str, tuple]:
    """The posterior, and the network of infinite width."""
    few = {"until": "draws", "warmup": 20, "draws": 20}
    matrices, settings = (40, few) if small else (None, {})
    return {
        "posterior": (measure, matrices, settings),
        "infinite_width": (of_infinite_width, matrices),
    }


STUDY = Study(__file__, points, numbers, tables, lambda rows, found: {"posterior": draw(found)})

if __name__ == "__main__":
    STUDY.run()
