# %% [markdown]
# # Fewer paths, fewer directions: compression beyond heads
#
# Transformers of the command `train` are sums over paths, f = Σ_π w_π·ξ^π. How many paths can go at
# one point of accuracy, in which order, and which rank do the path weights [path, channel] need? Do
# the leading eigenvectors of the theory's U₁ span the directions that the trained network needs?
#
#     python runs/compressed_paths.py [FOLDER] [NAME …]   (five minutes)
#
# by default into runs/results/compressed_paths. Trainings A to H are those of
# `one_shot_trainings.py`, with weights in runs/trained; Omniglot's files are looked for in
# runs/omniglot (see `runs/one_shot_train_omniglot.toml`). The theory learns from 300 episodes at
# N = 10 and 𝒯 = 0.5; orders are chosen on validation episodes, and costs measured on test episodes.

# %%
import sys
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure
from renew import estimate, mean_over, record

jax.config.update("jax_enable_x64", True)

import sampler  # noqa: E402
from sampler.api.results import problem_of, recipe_and_data  # noqa: E402
from sampler.heads.paths import (  # noqa: E402
    AGAIN,
    BEST,
    NETWORK,
    OVERLAP,
    RANDOM,
    THEORY,
    CompressedPaths,
    Curve,
    best_directions,
    compressed_paths,
    curve_of,
)
from sampler.heads.shown_paths import PATHS, RANKS, compression_table  # noqa: E402
from sampler.presentation import style  # noqa: E402
from theory.observables import accuracy  # noqa: E402

RUNS = Path(__file__).parent
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/compressed_paths")
names = sys.argv[2:] or list("ABCDEFGH")
LEARNED, CHOSEN, UNSEEN = 300, 4000, 8000
GROUPS = {"4·4": "ABCDE", "3·3·3": "FGH"}
# Ranks up to the largest are sought by so many sweeps of alternating least squares.
SOUGHT, MOST_SOUGHT, SWEEPS = "sought", 8, 10
EXHAUSTIVE, MOST_PATHS = "exhaustive", 16  # of all sets of paths, where there are few


# %% [markdown]
# ## The best rank by search
# `best_directions` is the closed form in a metric that separates paths from channels. Without that
# restriction, what is best for the outputs on the validation episodes is found by alternating least
# squares: values of the directions at fixed paths, then paths at fixed values.
# %%
def sought_weights(weights: np.ndarray, attended: np.ndarray, rank: int) -> np.ndarray:
    """Weights of a rank whose outputs are nearest to those of the network on some examples."""
    paths, channels = weights.shape
    flat = attended.reshape(len(attended), -1)
    # The least there is to weigh keeps what no example has anything of from growing.
    metric = flat.T @ flat
    metric += np.finfo(float).eps * np.trace(metric) * np.eye(len(metric))
    towards = (metric @ weights.ravel()).reshape(paths, channels)
    metric = metric.reshape(paths, channels, paths, channels)
    left = np.linalg.qr(best_directions(weights, attended)[0][:, :rank])[0]
    for _ in range(SWEEPS):
        by_path = np.tensordot(left, np.tensordot(metric, left, axes=(2, 0)), axes=(0, 0))
        design = by_path.transpose(0, 1, 3, 2).reshape(rank * channels, -1)
        right = np.linalg.solve(design, (left.T @ towards).ravel()).reshape(rank, channels)
        right = np.linalg.qr(right.T)[0].T
        by_channel = np.tensordot(np.tensordot(metric, right, axes=(3, 1)), right, axes=(1, 1))
        design = by_channel.transpose(0, 3, 1, 2).reshape(paths * rank, -1)
        left = np.linalg.solve(design, (towards @ right.T).ravel()).reshape(paths, rank)
        found = left @ right
        left = np.linalg.qr(left)[0]
    return found


def sought_ranks(weights: np.ndarray, seen: np.ndarray, attended, labels: np.ndarray) -> Curve:
    """The network, then ranks from the largest to one."""
    some = [sought_weights(weights, seen, rank) for rank in range(MOST_SOUGHT, 0, -1)]
    outputs = [np.tensordot(attended, one, axes=((1, 2), (0, 1))) for one in (weights, *some)]
    return curve_of(np.stack(outputs)[..., None], labels)


# %% [markdown]
# ## The best sets of paths
# The squared loss of a set of paths is a quadratic form in its gates: all sets of 16 are searched.
# %%
def best_sets(terms: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """Of every number of paths, all of them first, the set with the least squared loss."""
    count = terms.shape[1]
    gates = (np.arange(2**count)[:, None] >> np.arange(count) & 1).astype(float)
    products = np.einsum("xpo,xqo->pq", terms, terms)
    towards = np.einsum("xpo,xo->p", terms, labels)
    loss = np.einsum("sp,sp->s", gates @ products - 2.0 * towards, gates)
    sizes = gates.sum(axis=1)
    return [
        gates[sizes == kept][np.argmin(loss[sizes == kept])].astype(bool)
        for kept in range(count, 0, -1)
    ]


# %% [markdown]
# ## One training
# %%
def compressed(name: str) -> tuple[dict, CompressedPaths]:
    """What is said of a training, and its curves."""
    task = sampler.one_shot_task(
        RUNS / "trained" / name,
        folder=RUNS / "omniglot",
        examples_train=LEARNED,
        examples_validation=CHOSEN,
        examples_test=UNSEEN,
    )
    network = sampler.make_network(widths=10, temperature=0.5)
    theory = sampler.solve(task, network, starts=2, next_order=False)
    problem = problem_of(task, *recipe_and_data(task, network))
    weights, overlap = problem.trained.path_weights(), theory["order_parameter"].values
    chosen = np.asarray(problem.attended_validation), problem.labels_validation
    test = np.asarray(problem.attended_test), problem.labels_test
    found = compressed_paths(problem.learning, overlap, chosen, test, weights)
    found.ranks[NETWORK][SOUGHT] = sought_ranks(weights, chosen[0], *test)
    if found.paths <= MOST_PATHS:
        terms = [np.einsum("xpi,pi->xp", one, weights)[..., None] for one, _ in (chosen, test)]
        kept = best_sets(terms[0], chosen[1])
        outputs = np.stack([terms[1][:, some].sum(axis=1) for some in kept])
        found.removed[NETWORK][EXHAUSTIVE] = curve_of(outputs, test[1])
    values = [problem.trained.weights[key].size for key in problem.trained.weights]
    numbers = {
        "accuracy": {
            NETWORK: accuracy(problem.trained.predictor(problem.attended_test), test[1]),
            THEORY: float(theory["accuracy_theory"]),
        },
        "paths": found.paths,
        "path weights": weights.size,
        "values": sum(values),
        "removed": {who: of_curves(found, who, False) for who in found.removed},
        "ranks": {who: of_curves(found, who, True) for who in found.ranks},
    }
    return numbers, found


def of_curves(found: CompressedPaths, who: str, directions: bool) -> dict[str, dict]:
    """What can go at one point, and what is lost with half, a quarter and four of them kept."""
    curves = (found.ranks if directions else found.removed)[who]
    return {key: of_curve(found, curve, directions) for key, curve in curves.items()}


def of_curve(found: CompressedPaths, curve: Curve, directions: bool) -> dict:
    fewest = curve.fewest()
    lost = curve.cost["accuracy"]
    at = {kept: place for place, kept in enumerate(curve.kept)}
    return {
        "fewest": fewest,
        "gone": found.paths - fewest,
        "from": curve.fewest(errors=-1.0),
        "to": curve.fewest(errors=1.0),
        "share": found.numbers(fewest, directions) / found.numbers(found.paths, False),
        "lost": {
            str(kept): estimate(lost.values[at[kept]], lost.errors[at[kept]], "over test examples")
            for kept in sorted({found.paths // 2, found.paths // 4, 2, 4} & at.keys())
        },
    }


numbers: dict = {"examples": UNSEEN}
curves: dict[str, CompressedPaths] = {}
for name in names:
    numbers[name], curves[name] = compressed(name)
    print(f"\ntraining {name}\n{compression_table(curves[name]).text()}", flush=True)


# %% [markdown]
# ## Means over trainings
# %%
def over(trainings: list[str], *steps: str) -> dict:
    """The mean of a number over trainings."""
    some = []
    for name in trainings:
        content = numbers[name]
        for step in steps:
            content = content[step]
        some.append(content["value"] if isinstance(content, dict) else content)
    return mean_over(some, "trainings")


for group, members in GROUPS.items():
    trainings = [name for name in members if name in numbers]
    if len(trainings) < 2:
        continue
    first = numbers[trainings[0]]
    numbers[group] = {
        of: {
            who: {
                key: {
                    **{what: over(trainings, of, who, key, what)
                       for what in ("fewest", "gone", "share")},
                    "lost": {kept: over(trainings, of, who, key, "lost", kept)
                             for kept in curve["lost"]},
                }
                for key, curve in by_key.items()
            }
            for who, by_key in first[of].items()
        }
        for of in ("removed", "ranks")
    }  # fmt: skip
record(folder, "compressed_paths", numbers, made_by="python runs/compressed_paths.py", seeds=[0])


# %% [markdown]
# ## Accuracy lost against what is kept
# %%
def draw_means(curves: dict[str, CompressedPaths]) -> Figure:
    """Draw the mean over trainings with as many paths, a row for each number of paths."""
    sizes = sorted({one.paths for one in curves.values()})
    figure = style.new_figure(style.WIDTH, 2.9 * len(sizes) + 1.4)
    figure.suptitle("What a trained network loses with fewer paths, or path weights of lower rank")
    axes = figure.subplots(len(sizes), 2, squeeze=False, sharex="row", sharey=True)
    for row, paths in zip(axes, sizes, strict=True):
        some = [one for one in curves.values() if one.paths == paths]
        for ax, of, words in zip(row, ("removed", "ranks"), (PATHS, RANKS), strict=True):
            for key, (label, colour, mark) in words.items():
                who = THEORY if key == AGAIN else NETWORK
                label = f"theory, {label}" if key == AGAIN else label
                lines = [getattr(one, of)[who][key] for one in some]
                values = np.array([100 * np.array(one.cost["accuracy"].values) for one in lines])
                spread = values.std(axis=0, ddof=1) if len(some) > 1 else np.zeros(len(values[0]))
                marks = {"fmt": f"{mark}-", "color": colour, "markersize": 4, "label": label}
                mean, error = values.mean(axis=0), spread / np.sqrt(len(some))
                ax.errorbar(lines[0].kept, mean, error, **marks)
            ax.axhline(1.0, color=style.GREY, linewidth=0.8)
            ax.set_xlabel("paths kept" if of == "removed" else "rank kept")
            ax.set_title(f"{paths} paths, {len(some)} training{'s' * (len(some) > 1)}")
        row[0].set_ylabel("accuracy lost (points, ±1σ)")
    entries = [ax.get_legend_handles_labels() for ax in axes[0]]
    named = {label: handle for handles, labels in entries
             for handle, label in zip(handles, labels, strict=True)}  # fmt: skip
    style.legend_below(figure, (list(named.values()), list(named)), 2)
    return figure


with style.figure_style():
    written = style.save_figure(draw_means(curves), folder, "compressed_paths")
print("figure:", *written)
for who, of, key in ((NETWORK, "removed", "loss"), (NETWORK, "removed", OVERLAP),
                     (NETWORK, "removed", RANDOM), (NETWORK, "ranks", BEST),
                     (NETWORK, "ranks", SOUGHT), (NETWORK, "ranks", OVERLAP),
                     (NETWORK, "ranks", RANDOM), (THEORY, "removed", "loss"),
                     (THEORY, "removed", AGAIN), (THEORY, "ranks", AGAIN)):  # fmt: skip
    fewest = {name: numbers[name][of][who][key]["fewest"] for name in names}
    print(f"{who:6} {of:8} {key:8}", fewest)
