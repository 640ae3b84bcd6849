"""One-shot images: the same questions to eight trainings.

Trainings A to E have two layers of four heads, F to H three layers of three. Of each: accuracy of
the trained network, of the theory and of infinite width, each at its own best temperature by
validation and both at 𝒯 = 0.5; how well numbers of the theory order the heads by what their removal
costs the trained network; and how like U₁ is to the one that gradient descent found. Of A to E
also wider networks, other test sets, and heads that were never trained; of A and B the exact
posterior at N = 10.

    python -m runs.studies.one_shot.study [FOLDER [NAME …]]     an hour

The weights are those in runs/trained; where NAME has none it is trained. Omniglot's files are
looked for in runs/omniglot, clothes of Fashion-MNIST where Debian puts them.
"""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import sampler
from runs.studies.one_shot.task import draw_task, right_by_pixels
from runs.studies.scripts import RUNS, Study, estimate, mean_over
from runs.studies.which_heads.mathematics import numbers_of_theory, rank_correlation
from sampler.cli import main
from sampler.presentation import style
from theory import (
    AttentionPaths,
    OrderParameters,
    Predictor,
    head_scores,
    predict,
    solve_saddle_point,
)

OMNIGLOT = RUNS / "omniglot"
HEADS = {"A": (4, 4), "F": (3, 3, 3)}  # and of those that follow in the alphabet
STEPS = {(4, 4): 15_000, (3, 3, 3): 6_000}
NAMES, FEW_PATHS, SAMPLED = "ABCDEFGH", "ABCDE", "AB"
# The same for all networks: what is best for each of them lies inside.
TEMPERATURES = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
EQUAL = 0.5  # the temperature at which all are compared as well
WIDTHS = (10, 100, 1000)
CLOTHES = "/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz"
OTHER_SETS = {
    "characters": "characters",
    "digits": "digits",
    "clothes": CLOTHES,
}
# Figures of the run of A that are shown.
FIGURES = {
    "order_parameter_trained": "order_parameter",
    "kernel_alignment": "alignment",
    "head_scores": "head_scores",
    "pruning": "pruning",
}
NUMBERS = ("score", "zeroed", "solved_again", "magnitude")
MEASURES = ("zero_loss", "zero_accuracy")
COMPARED = ("order_parameter", "predictor_mean", "head_score")


def heads_of(name: str) -> tuple[int, ...]:
    """Heads of a training, layer by layer."""
    return HEADS[max(first for first in HEADS if first <= name)]


def trained(name: str) -> Path:
    """Directory of a training, which is made where it is not there."""
    folder = RUNS / "trained" / name
    if not (folder / "model.npz").is_file():
        heads = heads_of(name)
        seed = sum(heads_of(other) == heads for other in NAMES[: NAMES.index(name)])
        settings = {"heads": list(heads), "seed": seed, "steps": STEPS[heads]}
        words = [f"--set=training.{key}={value}" for key, value in settings.items()]
        recipe = RUNS / "one_shot_train_omniglot.toml"
        if code := main(["train", str(recipe), "--out", str(folder), *words]):
            sys.exit(code)
    return folder


def examples_of(name: str) -> int:
    return 600 if name in FEW_PATHS else 300


def recipe_of(name: str, **settings) -> sampler.Recipe:
    """Episodes with attention of a training, and the network of N = 10 at the equal temperature."""
    task = sampler.OneShot(
        model=trained(name), folder=OMNIGLOT, examples_train=examples_of(name),
        examples_validation=1000, examples_test=1000, **settings,
    )  # fmt: skip
    return sampler.Recipe(task=task, network={"widths": 10}, posterior={"temperature": EQUAL})


# --- accuracy


def share_right(outputs, labels) -> float:
    return float(np.mean(np.sign(np.ravel(outputs)) == np.ravel(labels)))


def right(problem, factor, temperature: float) -> tuple[float, float]:
    """Share of validation and of test episodes that U₁ = F Fᵀ at a temperature gets right."""
    learning = problem.learning.at(temperature)
    return tuple(
        share_right(predict(Predictor.for_examples(learning, attended), factor)[0], labels)
        for attended, labels in (
            (problem.attended_validation, problem.labels_validation),
            (problem.attended_test, problem.labels_test),
        )
    )


def chosen(scores: dict[float, tuple[float, float]]) -> dict[str, float]:
    """Test accuracy at the temperature best on validation episodes, and at the equal one."""
    best = max(scores, key=lambda temperature: scores[temperature][0])
    found = {"accuracy": scores[best][1], "temperature": best}
    return found | ({"equal": scores[EQUAL][1]} if EQUAL in scores else {})


def of_infinite_width(problem) -> dict[str, float]:
    limit = OrderParameters.gp_limit(problem.learning.architecture).factors[0]
    return chosen({temperature: right(problem, limit, temperature) for temperature in TEMPERATURES})


def of_width(problem, width: int) -> dict[str, float]:
    """Accuracy of the theory at a width, over temperatures at which its saddle point converges."""
    widths = (width,) * len(problem.learning.architecture.widths)
    architecture = replace(problem.learning.architecture, widths=widths)
    wide = replace(problem, learning=replace(problem.learning, architecture=architecture))
    scores, start = {}, None
    for temperature in sorted(TEMPERATURES, reverse=True):
        saddle = solve_saddle_point(wide.learning.at(temperature), initial=start)
        if saddle.converged:
            start = saddle.order_parameters
            scores[temperature] = right(wide, start.factors[0], temperature)
    return chosen(scores)


def other_sets(name: str, factor: np.ndarray) -> dict[str, dict]:
    """Accuracy on other test sets, infinite width at its best temperature by validation."""
    found = {}
    for test, setting in OTHER_SETS.items():
        if setting == CLOTHES and not Path(CLOTHES).is_file():
            continue
        problem = sampler.make_problem(recipe_of(name, test=setting))
        outputs = problem.trained.predictor(problem.attended_test)
        found[test] = {
            "theory": right(problem, factor, EQUAL)[1],
            "infinite": of_infinite_width(problem)["accuracy"],
            "trained": share_right(outputs, problem.labels_test),
            "pixels": right_by_pixels(trained(name), OMNIGLOT, setting),
        }
    return found


# --- heads, and U₁


def untrained_heads(name: str) -> dict[str, float]:
    """Scores of a head in each layer that was never trained, and the least of the others."""
    problem = sampler.make_problem(recipe_of(name, random_heads=1))
    overlap = np.asarray(solve_saddle_point(problem.learning).order_parameters.matrices[0])
    paths = AttentionPaths(problem.learning.architecture.heads)
    scores = np.asarray(head_scores(overlap, paths))
    found = {f"layer {layer}": of_layer[-1] for layer, of_layer in enumerate(scores, start=1)}
    return found | {"least of the others": np.min(scores[:, :-1])}


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Cosine of two U₁ off their diagonals."""
    off = ~np.eye(len(one), dtype=bool)
    return one[off] @ other[off] / np.linalg.norm(one[off]) / np.linalg.norm(other[off])


def solved_run(name: str, folder: Path) -> Path:
    """A run of one_shot.toml at N = 10, solved, sampled for A and B, with heads removed."""
    place = folder / name
    settings = {
        "task.model": json.dumps(str(trained(name))),
        "task.folder": json.dumps(str(OMNIGLOT)),
        "task.examples_train": examples_of(name),
        "sweep": {},
        "network.widths": 10,
        "posterior.temperature": EQUAL,
        "theory.next_order": "false",  # a layer is narrower than its order parameters
    }
    words = [f"--set={key}={value}" for key, value in settings.items()]
    command = "run" if name in SAMPLED else "solve"
    code = main([command, str(RUNS / "one_shot.toml"), "--out", str(place), *words])
    if code not in (0, 3):  # 3: draws that fail their diagnostics, and are marked
        sys.exit(code)
    main(["prune", str(place)])
    return place


def of_heads(name: str, place: Path) -> dict[str, dict]:
    """Rank correlations of numbers of heads with what removal costs, and the extreme costs."""
    removed = xr.Dataset.from_dict(json.loads((place / "pruning.json").read_text("utf-8")))
    heads = list(zip(removed["layer"].values - 1, removed["number"].values, strict=True))
    numbers = numbers_of_theory(recipe_of(name), heads)
    numbers["magnitude"] = removed["magnitude"].values
    correlations = {
        key: {
            measure: rank_correlation(numbers[key].to_numpy(), removed[measure].values)
            for measure in MEASURES
        }
        for key in NUMBERS
    }
    cost = removed[["zero_accuracy", "zero_accuracy_error"]].sortby("zero_accuracy")
    extremes = {
        what: estimate(*(float(of[at]) for of in cost.values()), "over test examples")
        for what, at in (("cheapest", 0), ("dearest", -1))
    }
    return {"spearman": correlations, **extremes}


def of_posterior(place: Path) -> dict[str, dict]:
    """Accuracy of exact posterior and theory, and how far they are apart."""
    compared = sampler.open_results(place).comparison
    table = compared.table()
    sampled = table.loc["accuracy", "sampled"]
    differences = table.xs("leading", level="predictor").loc[[*COMPARED]]
    return {
        "accuracy": {
            "leading": table.loc[("accuracy", "leading"), "value"],
            "sampled": estimate(sampled["value"], sampled["error"], "MCSE"),
        },
        "differences": {
            name: estimate(row["difference"], row["difference_error"], "MCSE")
            for name, row in differences.iterrows()
        },
        "r_hat": max(one.r_hat for one in compared.diagnostics.quantities.values() if one.r_hat),
    }


def measure(name: str, folder: Path) -> dict:
    """All that is asked of a training."""
    place, problem = solved_run(name, folder), sampler.make_problem(recipe_of(name))
    if name == "A":
        for drawn, shown in FIGURES.items():
            shutil.copy(place / "figures" / f"{drawn}.png", folder / f"{shown}.png")
    theory = sampler.open_results(place).theory
    overlap = np.asarray(theory["order_parameter"].sel(predictor="leading"))
    values, vectors = np.linalg.eigh(overlap)
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    widths = {"infinite": of_infinite_width(problem)}
    for width in WIDTHS if name in FEW_PATHS else WIDTHS[:1]:
        widths[str(width)] = of_width(problem, width)
    summary = json.loads((trained(name) / "training_summary.json").read_text(encoding="utf-8"))
    outputs = problem.trained.predictor(problem.attended_test)
    found = of_heads(name, place) | {
        "trained": summary["splits"]["test"]["network"]["accuracy"],
        "widths": widths,
        "same episodes": share_right(outputs, problem.labels_test),
        "pixels on them": right_by_pixels(trained(name), OMNIGLOT),
        "cosine with the trained": cosine(overlap, problem.trained.overlap()),
        "gain": {
            how: 100 * (widths["10"][key] - widths["infinite"][key])
            for how, key in (("each at its best", "accuracy"), ("equal temperature", "equal"))
        },
    }
    if name in SAMPLED:
        found["posterior"] = of_posterior(place)
    if name in FEW_PATHS:
        found["other sets"] = other_sets(name, factor)
        found["untrained heads"] = untrained_heads(name)
    return found


# --- over trainings


def over_trainings(values: list) -> dict | None:
    """Mean of numbers over trainings, entry by entry of nested results that several have."""
    first = values[0]
    if not isinstance(first, dict):
        return mean_over(values, "trainings")
    if "value" in first:
        return over_trainings([one["value"] for one in values])
    found = {key: [one[key] for one in values if key in one] for key in first}
    return {key: over_trainings(those) for key, those in found.items() if len(those) == len(values)}


COLUMNS = {
    "trained network": ("same episodes", 3),
    "theory, N = 10": ("widths/10/accuracy", 3),
    "infinite width": ("widths/infinite/accuracy", 3),
    "cosine of U₁, theory and trained": ("cosine with the trained", 2),
}
OF_HEADS = {
    "head score": ("spearman/score/zero_loss/rho", 2),
    "U₁ zeroed": ("spearman/zeroed/zero_loss/rho", 2),
    "solved again": ("spearman/solved_again/zero_loss/rho", 2),
    "magnitude": ("spearman/magnitude/zero_loss/rho", 2),
    "dearest head": ("dearest", 1, 100),
    "cheapest head": ("cheapest", 1, 100),
}
OF_SETS = {
    "theory": ("theory", 3),
    "infinite width": ("infinite", 3),
    "trained network": ("trained", 3),
    "pixel nearest neighbour": ("pixels/value", 3),
}


def write_tables(study: Study, numbers: dict) -> None:
    """Put the numbers of all trainings into README.md."""
    means = {"4·4": "mean", "3·3·3": "mean"}
    rows = {
        f"{name} | {means.get(name) or ', '.join(map(str, heads_of(name)))}": numbers[name]
        for name in (*NAMES[:5], "4·4", *NAMES[5:], "3·3·3")
    }
    study.table("accuracy", "training | heads", rows, COLUMNS)
    study.table("heads", "training | heads", rows, OF_HEADS)
    widths = numbers["4·4"]["widths"]
    by_width = {width: widths[width] for width in (*map(str, WIDTHS), "infinite")}
    both = {"at its best 𝒯": ("accuracy", 3), "at 𝒯 = 0.5": ("equal", 3)}
    study.table("widths", "N", by_width, both)
    study.table("other sets", "test set", numbers["4·4"]["other sets"], OF_SETS)


# --- the figure

ROWS = {
    "trained": ("trained network", "s", style.GREY),
    "theory": (r"theory, $N = 10$, at its best $\mathcal{T}$", "o", style.THEORY),
    "infinite": (r"infinite width, at its best $\mathcal{T}$", "x", style.GAUSSIAN_PROCESS),
    "pixels": ("pixel nearest neighbour", "|", style.ORANGE),
}


def accuracies(one: dict) -> dict:
    """What `ROWS` names, of a training or of their mean."""
    return {
        "trained": one["same episodes"],
        "theory": one["widths"]["10"]["accuracy"],
        "infinite": one["widths"]["infinite"]["accuracy"],
        "pixels": one["pixels on them"],
    }


def draw_trainings(axes: Axes, found: dict[str, dict]) -> None:
    """Accuracy of every training, a row each."""
    for place, one in enumerate(found.values()):
        values = accuracies(one)
        for key, (label, marker, colour) in ROWS.items():
            marks = {"color": colour, "label": label if place == 0 else None}
            axes.plot(100 * values[key], place, marker, **marks)
    labels = [f"{name}: {' + '.join(map(str, heads_of(name)))}" for name in found]
    axes.set_yticks(range(len(found)), labels)
    axes.invert_yaxis()
    axes.set_ylabel("training: heads of its layers")
    axes.set_xlabel("right of test episodes (%)")


def draw_widths(axes: Axes, means: dict) -> None:
    """Accuracy of the theory against width, mean over A to E with its standard error."""
    those = [means["widths"][str(width)]["accuracy"] for width in WIDTHS]
    values, errors = (100 * np.array([one[key] for one in those]) for key in ("value", "error"))
    _, marker, colour = ROWS["theory"]
    axes.errorbar(WIDTHS, values, errors, fmt=f"{marker}-", color=colour, capsize=2.5)
    for key in ("trained", "pixels", "infinite"):
        one, colour = accuracies(means)[key], ROWS[key][2]
        low, high = (100 * (one["value"] + sign * one["error"]) for sign in (-1, 1))
        axes.axhspan(low, high, color=colour, alpha=0.25, linewidth=0)
        axes.axhline(100 * one["value"], color=colour, linewidth=1.0)
    axes.set_xscale("log")
    axes.set_xlabel("width $N$")
    axes.set_ylabel("right (%), mean ± standard error, A to E")


def draw(found: dict[str, dict], means: dict | None) -> Figure:
    """Accuracies of trainings, and against width where there is a mean over A to E."""
    figure = style.new_figure(style.WIDTH, 0.25 * len(found) + 2.2)
    panels = figure.subplots(1, 2 if means else 1, squeeze=False)[0]
    draw_trainings(panels[0], found)
    if means:
        draw_widths(panels[1], means)
    style.legend_below(figure, panels[0].get_legend_handles_labels(), 2)
    return figure


def run() -> None:
    """Ask every training, or those that are named."""
    study = Study(__file__)
    found = {name: study.once(name, measure, name, study.folder) for name in study.sizes or NAMES}
    numbers = dict(found)
    for heads in HEADS.values():
        those = [one for name, one in found.items() if heads_of(name) == heads]
        if len(those) > 1:
            numbers["·".join(map(str, heads))] = over_trainings(those)
    study.record(numbers)
    if len(found) == len(NAMES):
        write_tables(study, numbers)
    with style.figure_style():
        study.draw(draw(found, numbers.get("4·4")), "trainings")
        study.draw(draw_task(trained(next(iter(found))), OMNIGLOT), "task")


if __name__ == "__main__":
    run()
