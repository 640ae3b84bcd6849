"""The task, theory against width, and calibration, drawn."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from sklearn.calibration import CalibrationDisplay

import sampler
from sampler.analysis.calibration import BINS
from sampler.presentation import style

TOKENS, SEQUENCES = 30, 4
WIDTH = 10  # where the exact posterior is sampled


def hidden_states(inputs: np.ndarray) -> np.ndarray:
    """Sign of the difference of both halves of the features, [example, token], without BOS."""
    half = (inputs.shape[2] - inputs.shape[1]) // 2
    features = inputs[:, 1:, : 2 * half]
    return np.sign(features[:, :, :half].sum(axis=2) - features[:, :, half:].sum(axis=2))


def draw_task() -> Figure:
    """Draw states of sequences of both classes, and the attention of each head to one of them."""
    settings = sampler.MarkovChain(examples_train=2 * SEQUENCES, examples_test=2, tokens=TOKENS)
    heads = [["good", "random"], ["uniform", "random"]]
    task = settings.make(sampler.Attention(heads=heads))
    data = task.train
    figure = style.new_figure(style.WIDTH, 7.4)
    upper, lower = figure.subfigures(2, 1, height_ratios=[2.5, 4.9])
    for ax, sign, name in zip(
        upper.subplots(2, 1, sharex=True), (1, -1), ("class +", "class −"), strict=True
    ):
        states = hidden_states(data.inputs[data.labels[:, 0] == sign][:SEQUENCES])
        ax.imshow(states, cmap="cividis", vmin=-1.4, vmax=1.4, aspect="auto")
        for line in range(1, len(states)):
            ax.axhline(line - 0.5, color="white", linewidth=3.0)
        ax.spines[:].set_visible(False)
        ax.set_yticks([])
        ax.tick_params(length=0)
        stay = 0.7 if sign > 0 else 0.3
        ax.set_title(f"{name}: keeps its state with probability {stay}", loc="left")
    ax.set_xticks([0, 9, 19, 29], ["1", "10", "20", "30"])
    ax.set_xlabel("token; both colours are the hidden states of four sequences")
    axes = lower.subplots(2, 2)
    # One head in each panel: that of layer 1 above, of layer 2 below.
    for layer, (row, heads) in enumerate(zip(axes, task.head_names, strict=True)):
        for head, (ax, name) in enumerate(zip(row, heads, strict=True)):
            matrix = data.attention[layer][0, head]
            image = ax.imshow(np.sqrt(matrix), cmap="Greys", vmin=0.0, vmax=1.0)
            ax.set_title(f"layer {layer + 1}, head {head}: {name}")
            ax.set_xticks([0, 10, 20, 30], ["BOS", "10", "20", "30"])
            ax.set_yticks([0, 10, 20, 30], ["BOS", "10", "20", "30"])
    for ax in axes[:, 0]:
        ax.set_ylabel("key (attended)")
    for ax in axes[1]:
        ax.set_xlabel("query")
    bar = lower.colorbar(image, ax=axes, location="bottom", shrink=0.7, aspect=30.0)
    bar.set_ticks(np.sqrt([0.0, 0.1, 0.3, 0.6, 1.0]), labels=["0", "0.1", "0.3", "0.6", "1"])
    bar.set_label(r"attention $\Omega$ in a sequence of class +")
    bar.outline.set_visible(False)
    return figure


def draw_widths(rows: dict[str, dict], numbers: dict) -> Figure:
    """Draw theory against width, and the exact posterior where it was sampled."""
    figure = style.new_figure(style.WIDTH, 4.3, "Two paths, $\\mathcal{T}$ = 0.01")
    left, right = figure.subplots(1, 2)
    widths = [*map(int, numbers["widths"])]
    sampled = zip(*rows["exact"]["overlaps"], strict=True)
    for (path, line, shift), (value, error) in zip(
        (("good", "-", (6, 6)), ("uniform", ":", (0, -60))), sampled, strict=True
    ):
        diagonal = [one[path] for one in numbers["widths"].values()]
        left.loglog(widths, diagonal, line, color=style.THEORY)
        left.errorbar([WIDTH], value, error, fmt="D", color=style.SAMPLED)
        where = {"textcoords": "offset points", "color": style.THEORY, "xytext": shift}
        left.annotate(path, (widths[0], diagonal[0]), **where)
    left.axhline(1.0, color=style.GAUSSIAN_PROCESS, ls="--")
    left.set(xlabel="width $N$", title="diagonal of $U_1$", xlim=(2.5, 1200), ylim=(0.9, 8.0))
    left.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    left.yaxis.set_minor_locator(NullLocator())
    accuracies = [100 * one["accuracy"] for one in numbers["widths"].values()]
    right.semilogx(widths, accuracies, color=style.THEORY, label=style.LEADING)
    value, error = (100 * numbers["sampled"]["accuracy"][key] for key in ("value", "error"))
    label = f"{style.EXACT}; accuracy ± error of the test set"
    right.errorbar([WIDTH], value, error, fmt="D", color=style.SAMPLED, label=label)
    limit = 100 * numbers["infinite"]["accuracy"]["value"]
    right.axhline(limit, color=style.GAUSSIAN_PROCESS, ls="--", label=style.LIMIT)
    right.set(xlabel="width $N$", title="accuracy on the test set (%)", xlim=(2.5, 1200))
    style.accuracy_axis(right.yaxis)
    style.legend_below(figure, right.get_legend_handles_labels())
    return figure


def draw_reliability(row: dict, names: dict[str, str]) -> Figure:
    """Draw the probabilities of +1 against the share of labels +1: right as often as it says?"""
    figure = style.new_figure(style.WIDTH, 4.6, "Calibration on the test set, $N$ = 10")
    ax = figure.subplots()
    for who, probability in row["probabilities"].items():
        marks = {"color": style.colour_of(who), "name": names[who]}
        marks["linestyle"] = "--" if who == "infinite_tuned" else "-"
        bins = {"n_bins": BINS, "strategy": "quantile"}  # fifty examples in each
        CalibrationDisplay.from_predictions(row["positive"], probability, ax=ax, **bins, **marks)
    ax.get_legend().remove()
    ax.set(xlabel="predicted probability of +1", ylabel="share of labels +1")
    style.legend_below(figure, ax.get_legend_handles_labels())
    return figure
