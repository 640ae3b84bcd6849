"""When does a head learn to copy?

One head whose logits of positions are sampled, T tokens of six symbols, and labels that are the
token before the last: attention either copies nothing, all weights being 1/T, or stands on that
token. Softmax attention passes from one to the other by a jump (two minima of the free energy,
a first-order transition), linear attention smoothly. Sampled by tempered particles, from all
modes and from the prior alone, over data sets, beside the free energy of `CopyHead`.

    python -m runs.studies.copy_head.study [FOLDER [DATA_SETS]]     5 data sets, half an hour
"""

from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import softmax

import sampler
from runs.studies.copy_head.mathematics import CopyHead
from runs.studies.scripts import Study, mean_over
from sampler.mcmc.tempered import log_mean, repetition_weights
from sampler.presentation import style

SYMBOLS, TEMPERATURE = 6, 0.2
MOST_APART = 4.0  # errors between both starts
INFINITE = "infinite"
# Name of a series: form of attention, tokens, scale of the logits, width, numbers of examples.
SERIES = {
    "T = 24": ("softmax", 24, 0.3, INFINITE, (4, 6, 8, 10, 15)),
    "T = 48": ("softmax", 48, 0.15, INFINITE, (20, 24, 27, 30, 35)),
    "T = 96": ("softmax", 96, 0.15, INFINITE, (30, 36, 42, 50, 65)),
    "T = 48, N = 10": ("softmax", 48, 0.15, 10, (20, 27, 35)),
    "T = 48, N = 30": ("softmax", 48, 0.15, 30, (20, 27, 35)),
    "T = 48, N = 100": ("softmax", 48, 0.15, 100, (20, 27, 35)),
    "T = 48, linear": ("linear", 48, 0.15, INFINITE, (20, 35, 100)),
}


def theory_of(name: str) -> CopyHead:
    """Free energy of a series."""
    form, tokens, scale, width, _ = SERIES[name]
    width = float("inf") if width == INFINITE else width
    return CopyHead(tokens, SYMBOLS, TEMPERATURE, scale, form=form, width=width)


def barrier(head: CopyHead, examples: int) -> float | None:
    """The logit at the maximum of F between both minima; None where there is one alone."""
    minima = head.minima(examples)
    if len(minima) < 2:
        return None
    grid = np.linspace(minima[0].logit, minima[-1].logit, 2001)
    return float(grid[np.argmax(head.free_energy(grid, examples))])


def measure(name: str, examples: int, seed: int) -> dict:
    """Weight on the copied token in the posterior of one data set, and its evidence."""
    form, tokens, scale, width, _ = SERIES[name]
    variant = {"kind": "softmax"} if form == "softmax" else {"kind": "first_order"}
    recipe = sampler.Recipe(
        task=sampler.Copy(
            tokens=tokens, symbols=SYMBOLS, examples_train=examples, examples_test=2,
            examples_validation=0, seed=seed,
        ),
        attention={"heads": [["learned"]], "inverse_temperature": scale, "form": variant},
        network={"widths": width},
        posterior={"temperature": TEMPERATURE},
    )  # fmt: skip
    draws = sampler.sample(
        recipe, algorithm="tempered", particles=256, repetitions=4, until="draws", seed=seed
    )
    statistics = {key: np.asarray(one) for key, one in draws["sample_stats"].items()}
    weights = repetition_weights(statistics)
    logits = scale * np.asarray(draws["posterior"]["logits_1"])[:, :, 0, :]
    above = logits[..., -2] - np.delete(logits, tokens - 2, axis=-1).mean(axis=-1)
    if form == "softmax":
        copied = softmax(logits, axis=-1)[..., -2]
    else:
        copied = (1.0 + logits[..., -2]) / tokens
    place = barrier(theory_of(name), examples)
    beyond = np.zeros(above.shape) if place is None else (above > place).astype(float)
    both = {
        start: log_mean(statistics[key][:, 0])
        for start, key in (("modes", "log_evidence"), ("prior", "log_evidence_prior"))
    }
    return {
        "copied": float(weights @ copied.mean(axis=1)),
        "share": None if place is None else float(weights @ beyond.mean(axis=1)),
        "evidence": {start: value for start, (value, _) in both.items()},
        "error": {start: error for start, (_, error) in both.items()},
        "gradients": float(np.asarray(draws["warmup_sample_stats"]["n_steps"]).sum()),
    }


over_data = partial(mean_over, what="data sets")


def of_size(head: CopyHead, examples: int, rows: list[dict]) -> dict:
    """Means over data sets beside the theory, at one number of examples."""
    minima = head.minima(examples)
    missed, apart = 0, []
    for row in rows:
        spread = np.hypot(row["error"]["prior"], row["error"]["modes"])
        apart.append(row["evidence"]["prior"] - row["evidence"]["modes"])
        missed += -apart[-1] > MOST_APART * spread
    numbers = {
        "copied": over_data([row["copied"] for row in rows]),
        "theory": min(minima, key=lambda one: one.free_energy).copied,
        "minima": [one.copied for one in minima],
        "missed by the prior start": int(missed),
        "prior minus modes": over_data(apart),
        "gradients": np.mean([row["gradients"] for row in rows]),
    }
    if len(minima) > 1:
        numbers["share"] = over_data([row["share"] for row in rows])
        numbers["share by theory"] = head.copying_share(examples)
    return numbers


def summary(found: dict[str, dict[int, list[dict]]]) -> dict:
    """Means over data sets, and between which numbers of examples both minima exist."""
    numbers: dict = {}
    for name, by_size in found.items():
        head = theory_of(name)
        both = head.coexistence()
        place = None
        if both is not None:
            place = {"first": both.first, "equal": both.equal, "last": both.last}
        numbers[name] = {"coexistence": place} | {
            str(examples): of_size(head, examples, rows) for examples, rows in by_size.items()
        }
    return numbers


COLOURS = (style.BLUE, style.VERMILLION, style.GREEN, style.ORANGE)


def draw_series(
    axes: Axes, found: dict[str, dict[int, list[dict]]], names: tuple[str, ...], sizes: np.ndarray
) -> None:
    """Weight on the copied token against examples: minima of the theory, and every data set."""
    for colour, name in zip(COLOURS, names, strict=False):
        head = theory_of(name)
        points = [
            (size, one.copied, one.free_energy) for size in sizes for one in head.minima(size)
        ]
        deepest = {size: min(f for at, _, f in points if at == size) for size in sizes}
        for is_deepest, alpha in ((True, 1.0), (False, 0.3)):
            shown = [(at, m) for at, m, f in points if (f == deepest[at]) == is_deepest]
            if shown:
                axes.plot(*zip(*shown, strict=True), ".", color=colour, markersize=2.5, alpha=alpha)
        for examples, rows in found[name].items():
            values = [row["copied"] for row in rows]
            label = name if examples == SERIES[name][-1][0] else None
            marks = {"color": colour, "markersize": 5.0, "markerfacecolor": "none", "label": label}
            axes.plot([examples] * len(values), values, "o", **marks)
    axes.set_xlabel("examples $P$")
    axes.legend(fontsize="small")


def draw(found: dict[str, dict[int, list[dict]]]) -> Figure:
    """Draw lengths of sequences above, widths below."""
    title = (
        "Attention on the copied token: posterior by data set (rings), minima of the theory (dots)"
    )
    figure = style.new_figure(style.WIDTH, 6.4, title)
    upper, lower = figure.subplots(2, 1)
    lengths = ("T = 24", "T = 48", "T = 96", "T = 48, linear")
    draw_series(upper, found, lengths, np.geomspace(3, 110, 240))
    widths = ("T = 48", "T = 48, N = 100", "T = 48, N = 30", "T = 48, N = 10")
    draw_series(lower, found, widths, np.linspace(15, 45, 160))
    upper.set_xscale("log")
    for axes in (upper, lower):
        axes.set_ylabel("weight on the copied token")
    return figure


if __name__ == "__main__":
    study = Study(__file__)
    data_sets = range(study.size(0, 5))
    found = {
        name: {
            examples: [
                study.once(f"{name}_{examples}_{seed}", measure, name, examples, seed)
                for seed in data_sets
            ]
            for examples in sizes
        }
        for name, (*_, sizes) in SERIES.items()
    }
    study.record(summary(found), seeds=list(data_sets))
    with style.figure_style():
        study.draw(draw(found))
