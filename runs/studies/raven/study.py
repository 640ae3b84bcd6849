"""Do compositions of rules that were never seen work?

Symbolic Raven's matrices: every feature follows one rule along the rows, and some compositions of
rules are held out of training. arXiv 2406.05816 has it that attention is a hypernetwork: what a
key does to a query is written in a short code, the vector of head weights, the code tells the
task, on new compositions too, and nonlinear values (HYLA) compose better. Here networks without
a residual stream, whose attention is of the inputs, learn with five kinds of attention, and are
compared where their training loss first falls below levels that are the same for all, and at
the end. Every rule is as often among seen compositions as among those held out.

    python -m runs.studies.raven.study [FOLDER [SEEDS [STEPS]]]

Five trainings of 1,500 steps each, three of them also three times as long: an hour.
"""

import sys
from functools import cache, partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.linear_model import RidgeClassifierCV

import sampler
from runs.studies.study import RUNS, Study, estimate, mean_over
from sampler.attention.variants import FirstOrder, HeadNormalised, Softmax
from sampler.cli import main
from sampler.data.raven import Matrices, MatrixSplits, MatrixTrainingSection, draw_matrices
from sampler.presentation import style
from sampler.settings.recipe import TrainingRecipe
from sampler.settings.training import TrainingSection
from sampler.streams import Stream
from sampler.training.steps import make_optimiser, make_step
from sampler.training.training_data import BLOCK, learning_data
from sampler.transformer.forward_pass import transformer_outputs
from sampler.transformer.trained_transformer import Transformer, draw_parameters, frozen_attention
from theory import participation_ratio
from theory.observables import binomial_error, correct_by_group

FEATURES, SYMBOLS = 2, 5
HYPER = {"form": HeadNormalised(), "hypernetwork": True}
KINDS = {
    "softmax": {"form": Softmax()},
    "linear": {"form": FirstOrder(offset=False)},
    "head-normalised": {"form": HeadNormalised()},
    "HYLA": {**HYPER, "values": "relu"},
    "HYLA, linear values": HYPER,
}
LEVELS = {"0.11": 0.11, "0.08": 0.08, "end": -np.inf}
LOOKED = 25  # steps from one look at the loss to the next; it is the mean of so many
TESTED, DECODED = 4000, 3000  # matrices that judge, and that a decoder learns from
SPLITS = ("seen", "held out")
ASKING, PAIRS, PANELS, SHUFFLED = (
    "token that asks", "all pairs of tokens", "panels themselves", "shuffled",
)  # fmt: skip
over_trainings = partial(mean_over, what="trainings")


# --- trainings


def recipe_of(kind: str, seed: int, steps: int) -> TrainingRecipe:
    """A training; with the seed other compositions are held out."""
    task = MatrixTrainingSection(kind="raven", features=FEATURES, symbols=SYMBOLS, split_seed=seed)
    settings = TrainingSection(
        heads=(4, 4, 4), widths=32, key_size=16, steps=steps, batch=64, learning_rate=3e-3,
        seed=seed, **KINDS[kind],
    )  # fmt: skip
    return TrainingRecipe(name="raven", task=task, training=settings)


@cache
def compiled(kind: str, steps: int):
    """Network, optimiser and step of a kind of attention, the same for all seeds."""
    recipe = recipe_of(kind, 0, steps)
    data = learning_data(recipe, MatrixSplits(recipe.task))
    network = Transformer.of(recipe, data.channels, data.outputs)
    optimiser = make_optimiser(recipe.training)
    return network, optimiser, make_step(optimiser, data.table, network)


def train(kind: str, seed: int, steps: int) -> dict[str, tuple[dict, dict]]:
    """Steps and loss at every level that was reached, and the weights there."""
    recipe = recipe_of(kind, seed, steps)
    data = learning_data(recipe, MatrixSplits(recipe.task))
    network, optimiser, advance = compiled(kind, steps)
    parameters = draw_parameters(network, seed, Stream.PARAMETERS)
    state, losses, found = optimiser.init(parameters), [], {}
    size = recipe.training.batch
    for step in range(steps):
        if step % BLOCK == 0:
            examples = data.block(step // BLOCK)
        place = step % BLOCK * size
        parameters, state, loss = advance(parameters, state, examples.part(place, place + size))
        losses.append(loss)
        if (step + 1) % LOOKED and step + 1 < steps:
            continue
        latest = float(np.mean([float(one) for one in losses[-LOOKED:]]))
        for level, limit in LEVELS.items():
            if level not in found and (latest < limit or (level == "end" and step + 1 == steps)):
                weights = {name: np.asarray(one) for name, one in parameters.items()}
                found[level] = {"steps": step + 1, "loss": latest}, weights
    return found


# --- accuracy, and what head weights tell


def judged(recipe: TrainingRecipe, network, parameters: dict, matrices: Matrices) -> dict:
    """Squared error and accuracies, also rule by rule."""
    tokens = learning_data(recipe, MatrixSplits(recipe.task)).tokens
    inputs = jnp.asarray(tokens.inputs(matrices.panels, matrices.asked), jnp.float32)
    weights = {name: jnp.asarray(one) for name, one in parameters.items()}
    outputs = np.asarray(transformer_outputs(weights, inputs, network))
    labels = tokens.targets(matrices)
    right = correct_by_group(outputs, labels)
    of_rules = {
        rule: right[matrices.rules == place].mean() for place, rule in enumerate(recipe.task.rules)
    }
    return {
        "loss": np.mean((outputs - labels) ** 2),
        "panels": right.all(axis=1).mean(),
        "symbols": right.mean(),
        **of_rules,
    }


def codes(recipe: TrainingRecipe, parameters: dict, matrices: Matrices) -> dict[str, np.ndarray]:
    """Head weights [matrix, number]: of the token that asks, of all pairs; and the panels."""
    tokens = learning_data(recipe, MatrixSplits(recipe.task)).tokens
    inputs = tokens.inputs(matrices.panels, matrices.asked)
    attention = frozen_attention(parameters, inputs, recipe.training.variants)
    found = {
        ASKING: np.concatenate([one[..., -1] for one in attention], axis=1),
        PAIRS: np.concatenate(attention, axis=1),
        PANELS: inputs[:, :-1],
    }
    return {name: code.reshape(len(inputs), -1) for name, code in found.items()}


def rules_read(known: np.ndarray, rules: np.ndarray, asked: np.ndarray, truth: np.ndarray) -> float:
    """Share of the rules of all features that a linear decoder reads right."""
    mean, scale = known.mean(axis=0), known.std(axis=0) + 1e-9
    known, asked = (known - mean) / scale, (asked - mean) / scale
    decoders = [
        RidgeClassifierCV(alphas=np.logspace(0, 4, 5)).fit(known, of_feature)
        for of_feature in rules.T
    ]
    return np.mean(
        [decoder.score(asked, of) for decoder, of in zip(decoders, truth.T, strict=True)]
    )


def judging_stream(seed: int, *key: int) -> np.random.Generator:
    """Random numbers of what judges a training; no stream of the program has such keys."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def decoded(recipe: TrainingRecipe, parameters: dict, learned: Matrices, unseen: Matrices) -> dict:
    """Share of rules read on held-out compositions, also learned from rules of other matrices."""
    known, asked = (codes(recipe, parameters, matrices) for matrices in (learned, unseen))
    found = {
        code: rules_read(known[code], learned.rules, asked[code], unseen.rules) for code in known
    }
    order = judging_stream(recipe.training.seed, 2000).permutation(DECODED)
    found[SHUFFLED] = rules_read(known[PAIRS], learned.rules[order], asked[PAIRS], unseen.rules)
    return found


def measure(kind: str, seed: int, steps: int) -> dict[str, dict]:
    """All that is asked of a training, at every level, on matrices that no training saw."""
    recipe = recipe_of(kind, seed, steps)
    splits = MatrixSplits(recipe.task)
    *judging, learned = (
        draw_matrices(recipe.task, among, size, judging_stream(seed, 1000, place))
        for place, (among, size) in enumerate(
            ((splits.seen, TESTED), (splits.held_out, TESTED), (splits.seen, DECODED))
        )
    )
    network, found = compiled(kind, steps)[0], {}
    for level, (reached, weights) in train(kind, seed, steps).items():
        found[level] = dict(reached)
        for name, matrices in zip(SPLITS, judging, strict=True):
            found[level][name] = judged(recipe, network, weights, matrices)
    found["end"]["decoder"] = decoded(recipe, weights, learned, judging[1])
    return found


def of_level(trainings: dict[str, list[dict]], kind: str, level: str) -> dict:
    """Means over the trainings of a kind that reached a level."""
    those = [one[level] for one in trainings[kind] if level in one]
    numbers = {"reached": len(those)}
    if len(those) < 2:
        return numbers
    numbers["steps"] = over_trainings([one["steps"] for one in those])
    for name in SPLITS:
        numbers[name] = {
            key: over_trainings([one[name][key] for one in those]) for key in those[0][name]
        }
    for key in ("panels", "symbols", "loss"):
        gaps = [one["held out"][key] - one["seen"][key] for one in those]
        numbers[f"{key}, held out minus seen"] = over_trainings(gaps)
    if level == "end":
        numbers["decoder"] = {
            code: over_trainings([one["decoder"][code] for one in those])
            for code in those[0]["decoder"]
        }
    gains = [
        one[level]["held out"]["symbols"] - other[level]["held out"]["symbols"]
        for one, other in zip(trainings["HYLA"], trainings[kind], strict=True)
        if level in one and level in other
    ]
    if kind != "HYLA" and len(gains) > 1:
        numbers["HYLA minus this"] = over_trainings(gains)
    return numbers


# --- the theory, and the posterior of values, on attention that was trained

TEMPERATURES = (0.01, 0.03, 0.1)
EXAMPLES, TESTED_BY_POSTERIOR, WIDTH = 400, 1000, 10


def posterior_of(folder: Path) -> dict:
    """Accuracy on seen and held-out compositions: theory, infinite width, exact; and U₁."""
    recipe = RUNS / "raven_train.toml"
    if not (folder / "model.npz").is_file() and (
        code := main(["train", str(recipe), "--out", str(folder)])
    ):
        sys.exit(code)
    tasks = {
        name: sampler.trained_raven_task(
            model=str(folder), examples_train=EXAMPLES, examples_test=TESTED_BY_POSTERIOR,
            test_compositions=name.replace(" ", "_"),
        )
        for name in SPLITS
    }  # fmt: skip

    def network(temperature: float) -> sampler.ChosenNetwork:
        return sampler.make_network(widths=WIDTH, temperature=temperature)

    def solve(task: sampler.ChosenTask, temperature: float):
        return sampler.solve(task, network(temperature), starts=1, next_order=False)

    def share(value) -> dict:
        error = binomial_error(float(value), TESTED_BY_POSTERIOR)
        return estimate(value, error, "binomial")

    tried = {temperature: solve(tasks["held out"], temperature) for temperature in TEMPERATURES}
    theirs, limit = (
        max(tried, key=lambda at: float(tried[at]["validation_accuracy"].sel(predictor=who)))
        for who in ("leading", "infinite")
    )
    found: dict = {"temperature": theirs, "temperature, infinite width": limit}
    for name, task in tasks.items():
        theory, infinite = solve(task, theirs), solve(task, limit)
        compared = sampler.compare(theory, sampler.sample(task, network(theirs), progress=False))
        sampled = compared.estimate("accuracy")
        # An accuracy moves in steps of one test example.
        error = max(sampled.mcse, 0.5 / TESTED_BY_POSTERIOR)
        found[name] = {
            "theory": share(theory["accuracy"].sel(predictor="leading")),
            "infinite width": share(infinite["accuracy"].sel(predictor="infinite")),
            "trained": share(theory["accuracy_trained"]),
            "exact": estimate(sampled.value, error, "MCSE"),
            "trusted": bool(compared.diagnostics.passed),
        }
    names, outputs = task.data.path_names, task.data.outputs
    overlap = np.asarray(theory["order_parameter"].sel(predictor="leading"))
    blocks = overlap.reshape(len(names), outputs, len(names), outputs)
    traced = np.einsum("pcqc->pq", blocks) / outputs
    off = traced[~np.eye(len(names), dtype=bool)]
    found["U₁"] = {
        "diagonal": dict(zip(names, map(float, np.diag(traced)), strict=True)),
        "largest off the diagonal": off[np.argmax(np.abs(off))],
        "participation ratio": participation_ratio(traced),
    }
    return found


# --- figure and tables

COLOURS = dict(
    zip(KINDS, (style.GREY, style.BLUE, style.ORANGE, style.VERMILLION, style.GREEN), strict=True)
)


def draw_accuracy(axes: Axes, trainings: dict[str, list[dict]]) -> None:
    """Symbols right on seen and on held-out compositions, training by training."""
    for place, kind in enumerate(KINDS):
        for shift, name, marker in ((-0.12, "seen", "o"), (0.12, "held out", "s")):
            values = 100 * np.array([one["end"][name]["symbols"] for one in trainings[kind]])
            label = f"{name} compositions" if place == 0 else None
            filled = COLOURS[kind] if name == "held out" else "none"
            axes.plot(values, np.full(len(values), place + shift), marker, label=label,
                      color=COLOURS[kind], markerfacecolor=filled, markersize=4)  # fmt: skip
    axes.set_xlim(35, 100)


def draw_decoder(axes: Axes, trainings: dict[str, list[dict]]) -> None:
    """Rules that a linear decoder reads off head weights on held-out compositions."""
    marks = {ASKING: "v", PAIRS: "o", PANELS: "|", SHUFFLED: "x"}
    for place, kind in enumerate(KINDS):
        for code, marker in marks.items():
            values = 100 * np.array([one["end"]["decoder"][code] for one in trainings[kind]])
            axes.plot(values, np.full(len(values), place), marker, color=COLOURS[kind],
                      label=code if place == 0 else None, markersize=4)  # fmt: skip
    axes.set_xlabel("rules read off a code\nof head weights (%)")


def draw(by_steps: dict[int, dict[str, list[dict]]]) -> Figure:
    """Draw accuracies after all steps and after three times as many, and what a decoder reads."""
    figure = style.new_figure(style.WIDTH, 3.2)
    *panels, right = figure.subplots(1, 3, sharey=True)
    for axes, (steps, trainings) in zip(panels, by_steps.items(), strict=True):
        draw_accuracy(axes, trainings)
        axes.set_xlabel(f"symbols right (%)\nafter {steps:,} steps")
    draw_decoder(right, next(iter(by_steps.values())))
    panels[0].set_yticks(range(len(KINDS)), KINDS)
    panels[0].invert_yaxis()
    entries = [axes.get_legend_handles_labels() for axes in (panels[0], right)]
    style.legend_below(figure, [one + other for one, other in zip(*entries, strict=True)], 3)
    return figure


GAPS = {
    "squared error, held out − seen (10⁻³)": ("loss, held out minus seen", 1, 1000),
    "HYLA − this, held out (points)": ("HYLA minus this", 1, 100),
}
SYMBOLS_RIGHT = {
    "symbols right, seen": ("seen/symbols", 3),
    "held out": ("held out/symbols", 3),
}
ENDED = {
    "squared error, seen": ("seen/loss", 3),
    **SYMBOLS_RIGHT,
    "whole panels, held out": ("held out/panels", 2),
    **GAPS,
}
TABLES = {
    "level": ("0.08", {"of five reach it": ("reached", 0), "after steps": ("steps", 0),
                       **SYMBOLS_RIGHT, **GAPS}),
    "end": ("end", ENDED),
    "rules": ("end", {
        "constant": ("held out/constant", 3), "+1": ("held out/progression_1", 3),
        "+2": ("held out/progression_2", 3), "sum": ("held out/sum", 3),
        "distribution of three": ("held out/distribution", 3),
    }),
    "decoder": ("end", {
        "code of the token that asks": (f"decoder/{ASKING}", 3),
        "of all pairs of tokens": (f"decoder/{PAIRS}", 3),
        "panels themselves": (f"decoder/{PANELS}", 3),
        "all pairs, rules shuffled": (f"decoder/{SHUFFLED}", 3),
    }),
    "longer": ("longer", {
        **ENDED, "sum, held out": ("held out/sum", 2),
        "distribution of three, held out": ("held out/distribution", 2),
        "rules read off all pairs": (f"decoder/{PAIRS}", 2),
    }),
}  # fmt: skip
POSTERIOR = {
    "theory": ("theory", 3),
    "exact posterior": ("exact", 4),
    "infinite width": ("infinite width", 3),
    "trained values": ("trained", 3),
}


if __name__ == "__main__":
    study = Study(__file__)
    seeds, steps = range(study.size(0, 5)), study.size(1, 1500)
    by_steps = {
        many: {
            kind: [study.once(f"{kind}_{seed}_{many}", measure, kind, seed, many) for seed in some]
            for kind in KINDS
        }
        for many, some in ((steps, seeds), (3 * steps, seeds[:3]))
    }
    trainings, longer = by_steps.values()
    numbers: dict = {"trainings": len(seeds)} | {
        level: {kind: of_level(trainings, kind, level) for kind in KINDS} for level in LEVELS
    }
    numbers["longer"] = {kind: of_level(longer, kind, "end") for kind in KINDS}
    numbers["posterior"] = study.once("posterior", posterior_of, study.folder / "model")
    study.record(numbers, seeds=list(seeds), steps=[steps, 3 * steps])
    for name, (level, columns) in TABLES.items():
        study.table(name, "attention", numbers[level], columns)
    compositions = {name: numbers["posterior"][name] for name in SPLITS}
    study.table("posterior", "compositions", compositions, POSTERIOR)
    with style.figure_style():
        study.draw(draw(by_steps))
