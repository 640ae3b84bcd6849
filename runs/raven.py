# %% [markdown]
# # Do compositions of rules that were never seen work?
#
# Symbolic Raven's matrices: every feature follows one rule along the rows, and some compositions of
# rules are held out of training. arXiv 2406.05816 has it that attention is a hypernetwork: what a
# key does to a query is written in a short code, the vector of head weights, the code tells the
# task, on new compositions too, and nonlinear values (HYLA) compose better. Here networks without
# a residual stream, whose attention is of the inputs, learn with five kinds of attention, and are
# compared where their training loss first falls below levels that are the same for all, and at
# the end. Every rule is as often among seen compositions as among those held out.
#
#     python runs/raven.py [FOLDER] [SEEDS] [STEPS]
#
# by default into runs/results/raven, 5 trainings of 1,500 steps each. A training that is in the
# folder is not made again.

# %%
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from renew import estimate, mean_over, record
from sklearn.linear_model import RidgeClassifierCV

import sampler
from sampler.attention.variants import FirstOrder, HeadNormalised, Softmax
from sampler.cli import main
from sampler.data.raven import Matrices, MatrixSplits, MatrixTrainingSection, draw_matrices
from sampler.presentation import style
from sampler.runtime import stream
from sampler.settings.recipe import TrainingRecipe
from sampler.settings.training import TrainingSection
from sampler.storage.files import read_json, write_json
from sampler.training.steps import make_optimiser, make_step
from sampler.training.training_data import BLOCK, PARAMETERS, MatrixData, learning_data
from sampler.transformer.model import (
    MODEL_FILE,
    Transformer,
    draw_parameters,
    frozen_attention,
)
from sampler.transformer.network import transformer_outputs
from theory.observables import binomial_error, correct_by_group, participation_ratio

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/raven")
seeds = range(int(sys.argv[2]) if len(sys.argv) > 2 else 5)
STEPS = int(sys.argv[3]) if len(sys.argv) > 3 else 1500
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
OVER = "trainings"


# %% [markdown]
# ## What is learned
# %%
def recipe_of(kind: str, seed: int, steps: int = STEPS) -> TrainingRecipe:
    """A training; with the seed other compositions are held out."""
    task = MatrixTrainingSection(kind="raven", features=FEATURES, symbols=SYMBOLS, split_seed=seed)
    settings = TrainingSection(
        heads=(4, 4, 4), widths=32, key_size=16, steps=steps, batch=64, learning_rate=3e-3,
        seed=seed, **KINDS[kind],
    )  # fmt: skip
    return TrainingRecipe(name="raven", task=task, training=settings)


class Steps:
    """A step of each kind of attention, compiled once for all seeds."""

    def __init__(self) -> None:
        self.known = {}

    def of(self, kind: str, recipe: TrainingRecipe, data: MatrixData):
        key = kind, recipe.training.steps
        if key not in self.known:
            network = Transformer.of(recipe, data.channels, data.outputs)
            optimiser = make_optimiser(recipe.training)
            self.known[key] = network, optimiser, make_step(optimiser, data.table, network)
        return self.known[key]


STEP = Steps()


def called(kind: str, seed: int, steps: int) -> str:
    """What the files of a training are called."""
    longer = "" if steps == STEPS else f"_{steps}"
    return f"{kind.replace(', ', '_').replace(' ', '_')}_{seed}{longer}"


def trained(kind: str, seed: int, steps: int) -> tuple[dict, dict[str, dict[str, np.ndarray]]]:
    """Steps and loss at every level that was reached, and the weights there."""
    file = folder / called(kind, seed, steps)
    weights, summary = file.with_suffix(".npz"), file.with_suffix(".json")
    if not summary.is_file():
        print(f"{kind}, seed {seed}, {steps} steps …", flush=True)
        write_trained(recipe_of(kind, seed, steps), kind, weights, summary)
    found = read_json(summary, "raven")
    with np.load(weights) as stored:
        arrays = {key: stored[key] for key in stored.files}
    by_level = {
        level: {
            name.removeprefix(f"{level}/"): one
            for name, one in arrays.items()
            if name.startswith(f"{level}/")
        }
        for level in found
    }
    return found, by_level


def write_trained(recipe: TrainingRecipe, kind: str, weights: Path, summary: Path) -> None:
    steps, seed = recipe.training.steps, recipe.training.seed
    data = learning_data(recipe, MatrixSplits(recipe.task))
    network, optimiser, advance = STEP.of(kind, recipe, data)
    parameters = draw_parameters(network, seed, PARAMETERS)
    state, losses, found, kept = optimiser.init(parameters), [], {}, {}
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
                found[level] = {"steps": step + 1, "loss": latest}
                kept |= {f"{level}/{name}": np.asarray(one) for name, one in parameters.items()}
    np.savez(weights, **kept)
    write_json(summary, found)


# %% [markdown]
# ## Accuracy, and what head weights tell
# %%
def matrices_of(kind: str, seed: int) -> dict[str, Matrices]:
    """Matrices that no training saw, the same for all kinds of attention."""
    task = recipe_of(kind, seed).task
    splits = MatrixSplits(task)
    among = {"seen": splits.seen, "held out": splits.held_out, "decoder": splits.seen}
    sizes = {"seen": TESTED, "held out": TESTED, "decoder": DECODED}
    return {
        name: draw_matrices(task, those, sizes[name], stream(seed, 1000, place))
        for place, (name, those) in enumerate(among.items())
    }


def judged(kind: str, seed: int, parameters: dict, drawn: dict[str, Matrices]) -> dict:
    """Squared error and accuracies on seen compositions and on those held out."""
    recipe = recipe_of(kind, seed)
    data = learning_data(recipe, MatrixSplits(recipe.task))
    network = STEP.of(kind, recipe, data)[0]
    exact = {name: jnp.asarray(one) for name, one in parameters.items()}
    found = {}
    for name in ("seen", "held out"):
        matrices = drawn[name]
        inputs = jnp.asarray(data.tokens.inputs(matrices.panels, matrices.asked), jnp.float32)
        outputs = np.asarray(transformer_outputs(exact, inputs, network))
        labels = data.tokens.targets(matrices)
        right = correct_by_group(outputs, labels)
        rules = recipe.task.rules
        found[name] = {
            "loss": float(np.mean((outputs - labels) ** 2)),
            "panels": float(right.all(axis=1).mean()),
            "symbols": float(right.mean()),
        } | {rule: float(right[matrices.rules == at].mean()) for at, rule in enumerate(rules)}
    return found


def codes(kind: str, seed: int, parameters: dict, matrices: Matrices) -> dict[str, np.ndarray]:
    """Head weights [matrix, number]: of the token that asks, of all pairs; and the panels."""
    recipe = recipe_of(kind, seed)
    tokens = learning_data(recipe, MatrixSplits(recipe.task)).tokens
    inputs = tokens.inputs(matrices.panels, matrices.asked)
    attention = frozen_attention(parameters, inputs, recipe.training.variants)
    asking = np.concatenate([one[..., -1] for one in attention], axis=1)
    pairs = np.concatenate(attention, axis=1)
    many = len(inputs)
    return {
        "token that asks": asking.reshape(many, -1),
        "all pairs of tokens": pairs.reshape(many, -1),
        "panels themselves": inputs[:, :-1].reshape(many, -1),
    }


def decoded(kind: str, seed: int, parameters: dict, drawn: dict[str, Matrices]) -> dict:
    """Share of rules that a linear decoder, learned on seen compositions, reads on held-out ones.

    "shuffled": learned from rules of other matrices.
    """
    learned, unseen = drawn["decoder"], drawn["held out"]
    by_code = codes(kind, seed, parameters, learned), codes(kind, seed, parameters, unseen)
    order = stream(seed, 2000).permutation(DECODED)
    found = {}
    for code in by_code[0]:
        known, asked = by_code[0][code], by_code[1][code]
        mean, scale = known.mean(axis=0), known.std(axis=0) + 1e-9
        known, asked = (known - mean) / scale, (asked - mean) / scale
        found[code] = read_rules(known, learned.rules, asked, unseen.rules)
        if code == "all pairs of tokens":
            found["shuffled"] = read_rules(known, learned.rules[order], asked, unseen.rules)
    return found


def read_rules(known: np.ndarray, rules: np.ndarray, asked: np.ndarray, truth: np.ndarray) -> float:
    """Share of the rules of all features that are read right."""
    shares = []
    for feature in range(FEATURES):
        decoder = RidgeClassifierCV(alphas=np.logspace(0, 4, 5)).fit(known, rules[:, feature])
        shares.append(decoder.score(asked, truth[:, feature]))
    return float(np.mean(shares))


# %%
folder.mkdir(parents=True, exist_ok=True)


def answers_of(kind: str, seed: int, steps: int = STEPS) -> dict:
    """All that is asked of a training, at every level."""
    file = folder / f"judged_{called(kind, seed, steps)}.json"
    if not file.is_file():
        (levels, weights), drawn = trained(kind, seed, steps), matrices_of(kind, seed)
        answers = {
            level: {**levels[level], **judged(kind, seed, weights[level], drawn)}
            for level in levels
        }
        answers["end"]["decoder"] = decoded(kind, seed, weights["end"], drawn)
        write_json(file, answers)
    return read_json(file, "raven")


results: dict[str, list[dict]] = {kind: [] for kind in KINDS}
for seed in seeds:
    for kind in KINDS:
        results[kind].append(answers_of(kind, seed))


def at_level(kind: str, level: str, *keys: str) -> list[float]:
    """A number of every training that reached the level."""
    found = []
    for one in results[kind]:
        if level in one:
            value = one[level]
            for key in keys:
                value = value[key]
            found.append(value)
    return found


def averaged(values: list[float]) -> dict | None:
    return mean_over(values, OVER) if len(values) > 1 else None


def without_none(numbers: dict) -> dict:
    return {key: one for key, one in numbers.items() if one is not None}


MEASURES = tuple(results["softmax"][0]["end"]["seen"])
numbers: dict = {"trainings": len(seeds)}
for level in LEVELS:
    numbers[level] = {}
    for kind in KINDS:
        reached = at_level(kind, level, "steps")
        of_kind = {"reached": len(reached), "steps": averaged(reached)}
        for name in ("seen", "held out"):
            of_kind[name] = without_none(
                {one: averaged(at_level(kind, level, name, one)) for one in MEASURES}
            )
        for one in ("panels", "symbols", "loss"):
            seen, held = (at_level(kind, level, name, one) for name in ("seen", "held out"))
            of_kind[f"{one}, held out minus seen"] = averaged(list(np.subtract(held, seen)))
        pairs = [
            (one[level]["held out"]["symbols"], other[level]["held out"]["symbols"])
            for one, other in zip(results["HYLA"], results[kind], strict=True)
            if level in one and level in other
        ]
        if kind != "HYLA":
            of_kind["HYLA minus this"] = averaged([one - other for one, other in pairs])
        if level == "end":
            codes_of = results[kind][0]["end"]["decoder"]
            of_kind["decoder"] = without_none(
                {code: averaged(at_level(kind, level, "decoder", code)) for code in codes_of}
            )
        numbers[level][kind] = without_none(of_kind)


# %% [markdown]
# ## The theory, and the posterior of values, on attention that was trained
# %%
RECIPE = Path(__file__).parent / "raven_train.toml"
TEMPERATURES = (0.01, 0.03, 0.1)
EXAMPLES, TESTED_BY_POSTERIOR, WIDTH = 400, 1000, 10


def network(temperature: float) -> sampler.ChosenNetwork:
    return sampler.make_network(widths=WIDTH, temperature=temperature)


def solve(task: sampler.ChosenTask, temperature: float):
    return sampler.solve(task, network(temperature), starts=1, next_order=False)


def estimate_of(share, examples: int) -> dict:
    """An accuracy with its binomial error."""
    return estimate(share, binomial_error(float(share), examples), "binomial")


def posterior_of(model: Path) -> dict:
    """Accuracy on seen and held-out compositions: theory, infinite width, exact; and U₁."""
    tasks = {
        name: sampler.trained_raven_task(
            model=str(model), examples_train=EXAMPLES, examples_test=TESTED_BY_POSTERIOR,
            test_compositions=name.replace(" ", "_"),
        )
        for name in ("seen", "held out")
    }  # fmt: skip
    task = tasks["held out"]
    solved = {at: solve(task, at) for at in TEMPERATURES}
    theirs, limit = (
        max(solved, key=lambda at: float(solved[at]["validation_accuracy"].sel(predictor=who)))
        for who in ("leading", "infinite")
    )
    found: dict = {"temperature": theirs, "temperature, infinite width": limit}
    for name, task in tasks.items():
        theory, infinite = solve(task, theirs), solve(task, limit)
        together = sampler.compare(theory, sampler.sample(task, network(theirs), progress=False))
        sampled, tests = together.estimate("accuracy"), task.data.test.examples
        found[name] = {
            "theory": estimate_of(theory["accuracy"].sel(predictor="leading"), tests),
            "infinite width": estimate_of(infinite["accuracy"].sel(predictor="infinite"), tests),
            "trained": estimate_of(theory["accuracy_trained"], tests),
            "exact": estimate(sampled.value, sampled.mcse, "MCSE"),
            "trusted": together.diagnostics.passed,
        }
        overlap = np.asarray(theory["order_parameter"].sel(predictor="leading"))
    names, outputs = task.data.path_names, task.data.outputs
    blocks = overlap.reshape(len(names), outputs, len(names), outputs)
    traced = np.einsum("pcqc->pq", blocks) / outputs
    off = traced[~np.eye(len(names), dtype=bool)]
    found["U₁"] = {
        "diagonal": dict(zip(names, map(float, np.diag(traced)), strict=True)),
        "largest off the diagonal": float(off[np.argmax(np.abs(off))]),
        "participation ratio": participation_ratio(traced),
    }
    write_json(folder / "overlap.json", {"U₁": traced.tolist(), "paths": list(names)})
    return found


model, answers = folder / "model", folder / "posterior.json"
if not answers.is_file():
    if not (model / MODEL_FILE).is_file() and (
        code := main(["train", str(RECIPE), "--out", str(model)])
    ):
        sys.exit(code)
    write_json(answers, posterior_of(model))
numbers["posterior"] = read_json(answers, "raven")
for name in ("seen", "held out"):
    # An accuracy moves in steps of one test example.
    exact = numbers["posterior"][name]["exact"]
    exact["error"] = max(exact["error"], 0.5 / TESTED_BY_POSTERIOR)

# %% [markdown]
# ## Three times as many steps, and matrices
# %%
LONG, FEW = 3 * STEPS, tuple(seeds)[:3]
numbers["longer"] = {"steps": LONG, "trainings": len(FEW)}
# Head-normalised attention last, as it learns most slowly.
ORDER = sorted(KINDS, key=lambda kind: kind == "head-normalised")
longer = {kind: [answers_of(kind, seed, LONG)["end"] for seed in FEW] for kind in ORDER}
for kind, those in longer.items():
    of_kind = {
        f"{one}, {name}": averaged([at[name][one] for at in those])
        for one in ("loss", "symbols", "panels", "sum", "distribution")
        for name in ("seen", "held out")
    }
    gaps = [at["held out"]["loss"] - at["seen"]["loss"] for at in those]
    gains = [
        one["held out"]["symbols"] - other["held out"]["symbols"]
        for one, other in zip(longer["HYLA"], those, strict=True)
    ]
    codes_of = [at["decoder"]["all pairs of tokens"] for at in those]
    of_kind |= {"gap": averaged(gaps), "decoder": averaged(codes_of)}
    of_kind |= {} if kind == "HYLA" else {"HYLA minus this": averaged(gains)}
    numbers["longer"][kind] = without_none(of_kind)
record(folder, "raven", numbers, made_by="python runs/raven.py", seeds=list(seeds))

# %%
COLOURS = dict(
    zip(KINDS, (style.GREY, style.BLUE, style.ORANGE, style.VERMILLION, style.GREEN), strict=True)
)


def draw_accuracy(axes: Axes, trainings: dict[str, list[dict]]) -> None:
    """Symbols right on seen and on held-out compositions, training by training."""
    for place, kind in enumerate(KINDS):
        for shift, (name, marker) in zip((-0.12, 0.12), (("seen", "o"), ("held out", "s")),
                                         strict=True):  # fmt: skip
            values = 100 * np.array([at[name]["symbols"] for at in trainings[kind]])
            label = f"{name} compositions" if place == 0 else None
            filled = COLOURS[kind] if name == "held out" else "none"
            axes.plot(values, np.full(len(values), place + shift), marker, label=label,
                      color=COLOURS[kind], markerfacecolor=filled, markersize=4)  # fmt: skip
    axes.set_xlim(35, 100)


def draw_decoder(axes: Axes) -> None:
    """Rules that a linear decoder reads off head weights on held-out compositions."""
    shown = ("token that asks", "all pairs of tokens", "panels themselves", "shuffled")
    for place, kind in enumerate(KINDS):
        for code, marker in zip(shown, ("v", "o", "|", "x"), strict=True):
            values = 100 * np.array(at_level(kind, "end", "decoder", code))
            axes.plot(values, np.full(len(values), place), marker, color=COLOURS[kind],
                      label=code if place == 0 else None, markersize=4)  # fmt: skip
    axes.set_xlabel("rules read off a code\nof head weights (%)")


ended = {kind: [one["end"] for one in those] for kind, those in results.items()}
with style.figure_style():
    figure = style.new_figure(style.WIDTH, 3.2)
    left, middle, right = figure.subplots(1, 3, sharey=True)
    for axes, trainings, steps in ((left, ended, STEPS), (middle, longer, LONG)):
        draw_accuracy(axes, trainings)
        axes.set_xlabel(f"symbols right (%)\nafter {steps:,} steps")
    draw_decoder(right)
    left.set_yticks(range(len(KINDS)), KINDS)
    left.invert_yaxis()
    entries = [axes.get_legend_handles_labels() for axes in (left, right)]
    style.legend_below(figure, [one + other for one, other in zip(*entries, strict=True)], 3)
    written = style.save_figure(figure, folder, "raven")
print("figure:", *written)
