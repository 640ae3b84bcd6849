# %% [markdown]
# # One-shot images: the same questions to several trainings
#
# Trainings A to E have two layers of four heads, F to H three layers of three. Of each: accuracy of
# the trained network, of the theory and of infinite width, each at its own best temperature by
# validation and both at 𝒯 = 0.5; how well the theory's scores order the heads by what their removal
# costs the trained network; and how like U₁ is to the one that gradient descent found. Of A to E
# also wider networks, other test sets, and heads that were never trained; of A and B the exact
# posterior at N = 10.
#
#     python runs/one_shot_trainings.py [FOLDER] [NAME …]
#
# by default into runs/results/one_shot_trainings, all of them: an hour. The weights are those in
# runs/trained, where NAME has some, otherwise it is trained (5 to 15 minutes). Omniglot's files are
# looked for in runs/omniglot, clothes of Fashion-MNIST where Debian puts them.

# %%
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from renew import estimate, of_run, record

jax.config.update("jax_enable_x64", True)

import sampler  # noqa: E402
from sampler.cli import main  # noqa: E402
from sampler.data.episodes import draw_episodes  # noqa: E402
from sampler.data.make import build_task  # noqa: E402
from sampler.data.one_shot import (  # noqa: E402
    TRAIN_STREAM,
    read_drawings,
    split_characters,
)
from sampler.presentation import style  # noqa: E402
from sampler.problem import Problem, build_problem, square_roots  # noqa: E402
from sampler.runtime import stream  # noqa: E402
from sampler.settings.recipe import load_recipe  # noqa: E402
from sampler.transformer.model import MODEL_FILE, read_model  # noqa: E402
from theory import AttentionPaths, OrderParameters, Predictor, predict, solve_saddle_point  # noqa: E402
from theory.observables import accuracy, head_scores  # noqa: E402

RUNS = Path(__file__).parent
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/one_shot_trainings")
HEADS = {"A": (4, 4), "F": (3, 3, 3)}  # and of those that follow in the alphabet
STEPS = {(4, 4): 15_000, (3, 3, 3): 6_000}
NAMES, FEW_PATHS, SAMPLED = "ABCDEFGH", "ABCDE", "AB"
TEMPERATURES = (0.05, 0.1, 0.25, 0.5, 1.0)
INFINITE = (0.001, 0.0025, 0.005, 0.01, 0.025, *TEMPERATURES)  # those of infinite width
EQUAL = 0.5  # the temperature at which all are compared as well
WIDTHS = (10, 100, 1000)
CLOTHES = "/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz"
OTHER_SETS = {
    "characters": [],
    "one-shot runs": ['task.test="all_runs"'],
    "digits": ['task.test="digits"'],
    "clothes": [f'task.test="{CLOTHES}"'],
}
# Figures that are shown, of which training.
FIGURES = {
    "A": {
        "order_parameter_trained": "one_shot_order_parameter",
        "kernel_alignment": "one_shot_alignment",
        "network": "one_shot_network",
        "head_scores": "one_shot_head_scores",
        "pruning": "one_shot_pruning",
    },
}
# Who is judged in the summary of a training.
JUDGED = {"network": "network", "pixels": "nearest_neighbour"}
SCORES = ("score", "zeroed", "solved_again", "magnitude")


def heads_of(name: str) -> tuple[tuple[int, ...], int]:
    """Heads of a training, and its seed."""
    first = max(one for one in HEADS if one <= name)
    return HEADS[first], NAMES.index(name) - NAMES.index(first)


def trained(name: str) -> Path:
    """Directory of a training, which is made where it is not there."""
    kept = RUNS / "trained" / name
    if (kept / MODEL_FILE).is_file():
        return kept
    heads, seed = heads_of(name)
    settings = {"heads": list(heads), "seed": seed, "steps": STEPS[heads]}
    words = [f"--set=training.{key}={value}" for key, value in settings.items()]
    recipe = str(RUNS / "one_shot_train_omniglot.toml")
    if code := main(["train", recipe, "--out", str(kept), *words]):
        sys.exit(code)
    return kept


# %%
def settings_of(name: str, *overrides: str) -> list[str]:
    """What makes one_shot.toml a point at N = 10 with the attention of a training."""
    examples = 600 if name in FEW_PATHS else 300
    return [
        f'task.model="{trained(name).resolve()}"', f'task.folder="{(RUNS / "omniglot").resolve()}"',
        f"task.examples_train={examples}", "sweep={}", "network.widths=10",
        f"posterior.temperature={EQUAL}", *overrides,
    ]  # fmt: skip


def problem_of(name: str, *overrides: str) -> Problem:
    recipe = load_recipe(RUNS / "one_shot.toml", settings_of(name, *overrides))
    return build_problem(recipe, build_task(recipe))


def right(problem: Problem, factor, temperature: float) -> tuple[float, float]:
    """Share of validation and of test episodes that U₁ = F Fᵀ at a temperature gets right."""
    there = problem.learning.at(temperature)
    splits = (
        (problem.attended_validation, problem.labels_validation),
        (problem.attended_test, problem.labels_test),
    )
    return tuple(
        accuracy(np.asarray(predict(Predictor.for_examples(there, inputs), factor)[0]), labels)
        for inputs, labels in splits
    )


def at_width(problem: Problem, width: int) -> Problem:
    """The problem of a network whose layers all have this width."""
    learning = problem.learning
    widths = (width,) * len(learning.architecture.widths)
    architecture = replace(learning.architecture, widths=widths)
    return replace(problem, learning=replace(learning, architecture=architecture))


def by_temperature(problem: Problem, temperatures: tuple[float, ...]) -> dict[float, np.ndarray]:
    """F of the theory's U₁ at every temperature, from the highest on; without what fails."""
    found, initial = {}, None
    for temperature in sorted(temperatures, reverse=True):
        saddle = solve_saddle_point(problem.learning.at(temperature), initial=initial)
        if saddle.converged:
            initial = saddle.order_parameters
            found[temperature] = initial.factors[0]
    return found


def chosen(scores: dict[float, tuple[float, float]]) -> dict[str, float]:
    """Test accuracy at the temperature that is best on validation episodes, and the temperature."""
    best = max(scores, key=lambda temperature: scores[temperature][0])
    return {"accuracy": scores[best][1], "temperature": best}


def widths_of(name: str, problem: Problem, known: np.ndarray) -> dict[str, dict]:
    """Accuracy of theory and infinite width, at their best temperature and at the equal one.

    known  F of U₁ at N = 10 and the equal temperature, the only one with many paths
    """
    limit = OrderParameters.gp_limit(problem.architecture).factors[0]
    infinite = {at: right(problem, limit, at) for at in INFINITE}
    found = {"infinite": chosen(infinite) | {"equal": infinite[EQUAL][1]}}
    few = name in FEW_PATHS
    for width in WIDTHS if few else WIDTHS[:1]:
        there = at_width(problem, width)
        factors = by_temperature(there, TEMPERATURES) if few else {EQUAL: known}
        scores = {at: right(there, factor, at) for at, factor in factors.items()}
        found[str(width)] = chosen(scores)
        if EQUAL in scores:
            found[str(width)]["equal"] = scores[EQUAL][1]
    return found


# %%
def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Cosine of two U₁ off their diagonals."""
    off = ~np.eye(len(one), dtype=bool)
    return float(one[off] @ other[off] / np.linalg.norm(one[off]) / np.linalg.norm(other[off]))


def other_sets(name: str, factor: np.ndarray) -> dict[str, dict]:
    """Accuracy on other test sets, infinite width at its best temperature by validation."""
    found = {}
    for test, overrides in OTHER_SETS.items():
        if test == "clothes" and not Path(CLOTHES).is_file():
            continue
        problem = problem_of(name, *overrides)
        limit = OrderParameters.gp_limit(problem.architecture).factors[0]
        infinite = {at: right(problem, limit, at) for at in INFINITE}
        pixels = np.asarray(problem.nearest_neighbour)[:, None]
        trained_right = problem.trained.predictor(problem.attended_test)
        found[test] = {
            "theory": right(problem, factor, EQUAL)[1],
            "infinite": chosen(infinite)["accuracy"],
            "trained": accuracy(trained_right, problem.labels_test),
            "pixels": accuracy(pixels, problem.labels_test),
        }
    return found


def untrained_heads(name: str) -> dict[str, float]:
    """Scores of a head in each layer that was never trained, and the least of the others."""
    problem = problem_of(name, "task.random_heads=1")
    saddle = solve_saddle_point(problem.learning)
    overlap = np.asarray(saddle.order_parameters.matrices[0])
    scores = np.asarray(head_scores(overlap, AttentionPaths(problem.architecture.heads)))
    found = {f"layer {at}": float(of_layer[-1]) for at, of_layer in enumerate(scores, start=1)}
    return found | {"least of the others": float(np.min(scores[:, :-1]))}


def pruned(name: str) -> tuple[dict[str, dict], np.ndarray]:
    """Rank correlations of scores with what removal costs the trained network, and the costs.

    And U₁ of the theory.
    """
    full = name in SAMPLED
    place = folder / name
    recipe = str(RUNS / "one_shot.toml")
    words = [word for one in settings_of(name) for word in ("--set", one)]
    code = main(["run" if full else "solve", recipe, "--out", str(place), *words])
    if code not in (0, 3):  # 3: draws that fail their diagnostics, and are marked
        sys.exit(code)
    main(["prune", str(place)])
    for drawn, shown in FIGURES.get(name, {}).items():
        shutil.copy(place / "figures" / f"{drawn}.png", folder / f"{shown}.png")
    removed = json.loads((place / "pruning.json").read_text(encoding="utf-8"))
    cost = removed["measured"]["zero_accuracy"]
    correlations = {
        key: {
            measure: {"rho": of["value"], "low": of["interval_over_heads"][0],
                      "high": of["interval_over_heads"][1]}
            for measure, of in removed["predicted"][key]["spearman"].items()
            if measure in ("zero_loss", "zero_accuracy")
        }
        for key in SCORES if key in removed["predicted"]
    }  # fmt: skip
    least, most = int(np.argmin(cost["values"])), int(np.argmax(cost["values"]))
    theory = sampler.open_results(place).theory.sel(predictor="leading")
    overlap = np.asarray(theory["order_parameter"])
    return {
        "posterior": of_run(place) if full else {},
        "spearman": correlations,
        "cheapest": estimate(cost["values"][least], cost["errors"][least], "over test examples"),
        "dearest": estimate(cost["values"][most], cost["errors"][most], "over test examples"),
    }, overlap


def answers(name: str) -> dict:
    """All that is asked of a training."""
    removed, overlap = pruned(name)
    problem, factor = problem_of(name), jnp.asarray(square_roots(overlap))
    summary = json.loads((trained(name) / "training_summary.json").read_text(encoding="utf-8"))
    found = removed | {
        "trained": {
            split: {who: of[key]["accuracy"] for who, key in JUDGED.items()}
            for split, of in summary["splits"].items() if "network" in of
        },
        "widths": widths_of(name, problem, factor),
    }  # fmt: skip
    same = problem.trained.predictor(problem.attended_test), problem.labels_test
    found["same episodes"] = accuracy(*same)
    pixels = np.asarray(problem.nearest_neighbour)[:, None]
    found["pixels on them"] = accuracy(pixels, problem.labels_test)
    found["cosine with the trained"] = cosine(overlap, problem.trained.overlap())
    if name in FEW_PATHS:
        found["other sets"] = other_sets(name, factor)
        found["untrained heads"] = untrained_heads(name)
    return found


# %%
# A training whose answers are in the folder is not asked again.
asked = sys.argv[2:] or list(NAMES)
folder.mkdir(parents=True, exist_ok=True)
for name in asked:
    file = folder / f"{name}.json"
    if not file.is_file():
        print(f"training {name} …", flush=True)
        file.write_text(json.dumps(answers(name), indent=1, default=float), encoding="utf-8")
found = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in asked}


# %% [markdown]
# ## Over trainings
# %%
def over_trainings(values: list) -> dict | None:
    """Mean of numbers over trainings with its standard error, entry by entry of nested results."""
    if isinstance(values[0], dict) and "value" in values[0]:
        return over_trainings([one["value"] for one in values])
    values = [one for one in values if one != {}]
    if values and isinstance(values[0], dict):
        keys = dict.fromkeys(key for one in values for key in one)
        known = {key: [one[key] for one in values if key in one] for key in keys}
        found = {key: over_trainings(those) for key, those in known.items() if len(those) > 1}
        return {key: one for key, one in found.items() if one not in (None, {})}
    if len(values) < 2 or not all(isinstance(one, int | float) for one in values):
        return None
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return estimate(np.mean(values), error, f"over {len(values)} trainings")


def gained(one: dict) -> dict[str, float]:
    """Points of accuracy of the theory at N = 10 over infinite width."""
    theory, infinite = one["widths"]["10"], one["widths"]["infinite"]
    return {
        "each at its best": 100 * (theory["accuracy"] - infinite["accuracy"]),
        "equal temperature": 100 * (theory["equal"] - infinite["equal"]),
    }


numbers = dict(found)
for heads in HEADS.values():
    those = [one | {"gain": gained(one)} for name, one in found.items()
             if heads_of(name)[0] == heads]  # fmt: skip
    if len(those) > 1:
        numbers["·".join(map(str, heads))] = over_trainings(those)
seeds = sorted({heads_of(name)[1] for name in asked})
record(
    folder, "one_shot_trainings", numbers, made_by="python runs/one_shot_trainings.py", seeds=seeds
)

# %%
ROWS = {
    "trained": ("trained network", "s", style.GREY),
    "theory": (r"theory, $N = 10$, at its best $\mathcal{T}$", "o", style.THEORY),
    "infinite": (r"infinite width, at its best $\mathcal{T}$", "x", style.GAUSSIAN_PROCESS),
    "pixels": ("pixel nearest neighbour", "|", style.ORANGE),
}


def draw_trainings(axes: Axes) -> None:
    """Accuracy of every training, a row each."""
    for place, one in enumerate(found.values()):
        values = {
            "trained": one["same episodes"],
            "theory": one["widths"]["10"]["accuracy"],
            "infinite": one["widths"]["infinite"]["accuracy"],
            "pixels": one["pixels on them"],
        }
        for key, (label, marker, colour) in ROWS.items():
            marks = {"color": colour, "label": label if place == 0 else None}
            axes.plot(100 * values[key], place, marker, **marks)
    labels = [f"{name}: {' + '.join(map(str, heads_of(name)[0]))}" for name in found]
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
    for key, one in (("trained", means["same episodes"]), ("pixels", means["pixels on them"]),
                     ("infinite", means["widths"]["infinite"]["accuracy"])):  # fmt: skip
        low, high = (100 * (one["value"] + sign * one["error"]) for sign in (-1, 1))
        axes.axhspan(low, high, color=ROWS[key][2], alpha=0.25, linewidth=0)
        axes.axhline(100 * one["value"], color=ROWS[key][2], linewidth=1.0)
    axes.set_xscale("log")
    axes.set_xlabel("width $N$")
    axes.set_ylabel("right (%), mean ± standard error, A to E")


IMAGES = ("support, −1", "support, +1", "query")  # by their label in an episode


def draw_task(name: str) -> Figure:
    """The images of two training episodes of different labels, and the inputs made of them."""
    recipe = load_recipe(RUNS / "one_shot.toml", settings_of(name))
    data, settings = build_task(recipe).train, read_model(trained(name)).recipe.task
    settings = settings.model_copy(update={"folder": recipe.task.folder})
    drawings = split_characters(read_drawings(settings), settings).train
    generator = stream(recipe.task.seed, TRAIN_STREAM)
    images, kinds = draw_episodes(drawings, recipe.task.examples_train, generator).places
    signs = np.sign(data.labels[:, 0])
    shown = [0, int(np.flatnonzero(signs != signs[0])[0])]
    limit = style.within_scale(data.inputs[shown], 0.99)
    figure = style.new_figure(style.WIDTH, 5.2, "Two training examples")
    upper, lower = figure.subfigures(2, 1, height_ratios=(0.4, 1.0))
    panels = lower.subplots(1, 2, sharey=True)
    for part, ax, example in zip(upper.subfigures(1, 2), panels, shown, strict=True):
        part.suptitle(style.minus_signs(f"$y$ = {signs[example]:+g}"), fontsize=10.0)
        row = zip(part.subplots(1, 3), images[example], kinds[example], strict=True)
        for axes, image, kind in row:
            axes.imshow(drawings.images[image], cmap="Greys", vmin=0.0, vmax=1.0)
            axes.set_title(IMAGES[kind], fontsize=8.0)
            axes.set_axis_off()
        inputs = data.inputs[example].T
        matrix = style.draw_matrix(ax, inputs, limit, aspect="auto", origin="lower")
        ax.set_xlabel("token")
    panels[0].set_ylabel("channel")
    style.colour_bar(lower, matrix, list(panels), "inputs $x_0$", extend="both")
    return figure


with style.figure_style():
    several = numbers.get("4·4")
    figure = style.new_figure(style.WIDTH, 0.25 * len(found) + 2.2)
    panels = figure.subplots(1, 2 if several else 1, squeeze=False)[0]
    draw_trainings(panels[0])
    if several:
        draw_widths(panels[1], several)
    style.legend_below(figure, panels[0].get_legend_handles_labels(), 2)
    written = style.save_figure(figure, folder, "one_shot_trainings")
    written += style.save_figure(draw_task(asked[0]), folder, "one_shot_task")
print("figure:", *written)
