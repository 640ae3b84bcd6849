"""What is asked of a training: accuracies, numbers of its heads, its exact posterior."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

import sampler
from runs.studies.numbers import estimate
from runs.studies.study import RUNS
from runs.studies.which_heads.mathematics import numbers_of_theory, rank_correlation
from sampler.cli import main
from sampler.data.characters import read_drawings, split_characters
from sampler.data.episodes import draw_episodes
from sampler.data.one_shot import tested_drawings
from sampler.streams import Stream, stream
from sampler.transformer.trained_transformer import read_model
from theory import OrderParameters, Predictor, predict, solve_saddle_point

OMNIGLOT = RUNS / "omniglot"
HEADS = {"A": (4, 4), "F": (3, 3, 3)}  # and of those that follow in the alphabet
STEPS = {(4, 4): 15_000, (3, 3, 3): 6_000}
NAMES, FEW_PATHS, SAMPLED = "ABCDEFGH", "ABCDE", "AB"
# The same for all networks: what is best for each of them lies inside.
TEMPERATURES = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
SEED = 0
EQUAL = 0.5  # the temperature at which all are compared as well
WIDTHS = (10, 100, 1000)
CLOTHES = "/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz"
OTHER_SETS = {
    "characters": "characters",
    "digits": "digits",
    "clothes": CLOTHES,
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


def recipe_of(name: str, examples: int, **settings) -> sampler.Recipe:
    """Episodes with attention of a training, and the network of N = 10 at the equal temperature."""
    tested = min(1000, 4 * examples)
    task = sampler.OneShot(
        model=trained(name), folder=OMNIGLOT, examples_train=examples,
        examples_validation=tested, examples_test=tested, **settings,
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


def right_by_pixels(model: Path, omniglot: Path, test: str = "characters") -> float:
    """Share of test episodes whose query is nearer, in pixels, to the support of its character."""
    settings = sampler.OneShot(model=model, test=test, seed=SEED)
    images = read_model(model).recipe.task.model_copy(update={"folder": str(omniglot)})
    drawings = tested_drawings(settings, split_characters(read_drawings(images), images))
    generator = stream(settings.seed, Stream.TEST)
    episodes = draw_episodes(drawings, settings.examples_test, generator)
    shown, labels = episodes.places
    pixels = drawings.images.reshape(len(drawings.images), -1)
    first, second = (
        np.square(pixels[shown[:, support]] - pixels[shown[:, 2]]).sum(axis=1, dtype=np.float64)
        for support in range(2)
    )
    nearest = (2.0 * labels[:, 0] - 1.0) * np.sign(second - first)
    return float(np.mean(nearest == episodes.targets))


def other_sets(name: str, factor: np.ndarray, examples: int) -> dict[str, dict]:
    """Accuracy on other test sets, infinite width at its best temperature by validation."""
    found = {}
    for test, setting in OTHER_SETS.items():
        if setting == CLOTHES and not Path(CLOTHES).is_file():
            continue
        problem = sampler.make_problem(recipe_of(name, examples, test=setting))
        outputs = problem.trained.predictor(problem.attended_test)
        found[test] = {
            "theory": right(problem, factor, EQUAL)[1],
            "infinite": of_infinite_width(problem)["accuracy"],
            "trained": share_right(outputs, problem.labels_test),
            "pixels": right_by_pixels(trained(name), OMNIGLOT, setting),
        }
    return found


# --- heads, and U₁


def untrained_heads(name: str, examples: int) -> dict[str, float]:
    """Scores of a head in each layer that was never trained, and the least of the others."""
    recipe = recipe_of(name, examples, random_heads=1).changed({"theory.next_order": False})
    scores = sampler.solve(recipe)["head_score"].sel(predictor="leading").values
    found = {f"layer {layer}": of_layer[-1] for layer, of_layer in enumerate(scores, start=1)}
    return found | {"least of the others": np.min(scores[:, :-1])}


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Cosine of two U₁ off their diagonals."""
    off = ~np.eye(len(one), dtype=bool)
    return one[off] @ other[off] / np.linalg.norm(one[off]) / np.linalg.norm(other[off])


def solved_run(name: str, folder: Path, examples: int, draws: int | None) -> Path:
    """A run of one_shot.toml at N = 10, solved, sampled for A and B, with heads removed."""
    place = folder / name
    tested = min(1000, 4 * examples)
    settings = {
        "task.model": json.dumps(str(trained(name))),
        "task.folder": json.dumps(str(OMNIGLOT)),
        "task.examples_train": examples,
        "task.examples_validation": tested,
        "task.examples_test": tested,
        "sweep": {},
        "network.widths": 10,
        "posterior.temperature": EQUAL,
        "theory.next_order": "false",  # a layer is narrower than its order parameters
    }
    settings |= {"sampler.draws": draws} if draws else {}
    words = [f"--set={key}={value}" for key, value in settings.items()]
    command = "run" if name in SAMPLED else "solve"
    code = main([command, str(RUNS / "one_shot.toml"), "--out", str(place), *words])
    if code not in (0, 3):  # 3: draws that fail their diagnostics, and are marked
        sys.exit(code)
    main(["prune", str(place)])
    return place


def of_heads(name: str, place: Path, examples: int) -> dict[str, dict]:
    """Rank correlations of numbers of heads with what removal costs, and the extreme costs."""
    removed = xr.Dataset.from_dict(json.loads((place / "pruning.json").read_text("utf-8")))
    heads = list(zip(removed["layer"].values - 1, removed["number"].values, strict=True))
    numbers = numbers_of_theory(recipe_of(name, examples), heads)
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


def measure(name: str, folder: str, examples: int, draws: int | None) -> dict:
    """All that is asked of a training; draws as many as diagnostics ask for if none are named."""
    place = solved_run(name, Path(folder), examples, draws)
    problem = sampler.make_problem(recipe_of(name, examples))
    theory = sampler.open_results(place).theory
    overlap = np.asarray(theory["order_parameter"].sel(predictor="leading"))
    values, vectors = np.linalg.eigh(overlap)
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    widths = {"infinite": of_infinite_width(problem), "10": of_width(problem, 10)}
    outputs = problem.trained.predictor(problem.attended_test)
    found = of_heads(name, place, examples) | {
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
        found["wider"] = {str(width): of_width(problem, width) for width in WIDTHS[1:]}
        found["other sets"] = other_sets(name, factor, examples)
        found["untrained heads"] = untrained_heads(name, examples)
    return found
