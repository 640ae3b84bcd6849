# %% [markdown]
# # The pictures of the concepts
#
# What network, attention paths and order parameter are, and what the task of hidden Markov chains
# looks like: the pictures of docs/concepts.md. Nothing is computed but the attention of one
# sequence.
#
#     python runs/concepts.py [FOLDER]      (seconds; default runs/results/concepts)

# %%
import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle

import sampler
from sampler.presentation import style
from sampler.tasks.task import Task

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/concepts")
# Paths by their heads, of layer 1 and of layer 2.
PATHS = {"0·0": style.BLUE, "0·1": style.ORANGE, "1·0": style.GREEN, "1·1": style.PURPLE}
TOKENS, SEQUENCES = 30, 4


# %%
def box(ax: Axes, x: float, y: float, text: str, colour: str = "white", **size: float) -> None:
    """Draw a box around a text, in units of the axes."""
    wide, high = size.get("wide", 1.5), size.get("high", 0.8)
    corner = (x - wide / 2, y - high / 2)
    shape = "round,pad=0,rounding_size=0.15"
    ax.add_patch(FancyBboxPatch(corner, wide, high, boxstyle=shape, fc=colour, ec="black", lw=0.9))
    ax.text(x, y, text, ha="center", va="center", fontsize=size.get("font", 10.0))


def arrow(ax: Axes, begin: tuple, end: tuple, colour: str = "black", wide: float = 1.0) -> None:
    """Draw an arrow between two points."""
    looks = {"arrowstyle": "-|>", "color": colour, "lw": wide, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, begin, arrowprops=looks, zorder=2)


def pale(colour: str) -> tuple[float, ...]:
    """Return a colour mixed with white, for black text on it."""
    return tuple(0.35 * np.array(to_rgb(colour)) + 0.65)


def draw_network(ax: Axes) -> None:
    """Draw tokens, two layers of two heads, and the readout; one path through them in colour."""
    ax.set(xlim=(0.0, 12.0), ylim=(0.2, 4.6))
    colour, heights = PATHS["0·1"], (3.0, 1.6)
    for place in range(5):
        ax.add_patch(Rectangle((0.35, 1.35 + 0.38 * place), 0.5, 0.3, fc="#D9D9D9", ec="black"))
    ax.text(0.6, 0.85, "tokens\n$x_0$", ha="center", va="center")
    box(ax, 1.9, 2.3, "$V_0$", wide=0.9)
    arrow(ax, (0.95, 2.3), (1.45, 2.3))
    joints = (2.75, 6.3)
    for layer, joint in enumerate(joints, start=1):
        centre = joint + 1.75
        taken = 0 if layer == 1 else 1
        ax.add_patch(Rectangle((joint + 0.3, 0.95), 2.9, 2.75, fc="#F2F2F2", ec="none", zorder=0))
        ax.text(centre, 3.95, f"layer {layer}", ha="center")
        for head, height in enumerate(heights):
            on = head == taken
            text = rf"$V_{layer}^{head}\,\cdot\,\Omega^{{{layer},{head}}}$"
            box(ax, centre, height, text, pale(colour) if on else "white", wide=2.2)
            looks = (colour, 3.0) if on else ("black", 1.0)
            arrow(ax, (joint, 2.3), (centre - 1.1, height), *looks)
            arrow(ax, (centre + 1.1, height), (joint + 3.55, 2.3), *looks)
    ax.plot([2.35, 2.75], [2.3, 2.3], color=colour, lw=3.0)
    box(ax, 10.45, 2.3, "$a$, $t^*$", wide=1.0)
    ax.text(10.45, 1.55, "readout", ha="center", fontsize=9.0)
    ax.plot([9.85, 9.95], [2.3, 2.3], color=colour, lw=3.0)
    arrow(ax, (10.95, 2.3), (11.4, 2.3))
    ax.text(11.7, 2.3, "$f$", ha="center", va="center", fontsize=12.0)


def draw_paths(ax: Axes) -> None:
    """Draw the attended input of each path, and beside it U_1 with a row and a column per path."""
    ax.set(xlim=(0.0, 12.0), ylim=(-0.6, 5.6))
    left, size = 7.2, 1.15
    for row, (name, colour) in enumerate(PATHS.items()):
        first, second = name.split("·")
        height = 3.5 - row * size + 0.5
        ax.text(0.1, height, name, va="center", fontweight="bold")
        ax.text(left - 0.15, height, name, ha="right", va="center", fontweight="bold")
        box(ax, 1.95, height, rf"$\Omega^{{1,{first}}}$", pale(colour), wide=1.2)
        box(ax, 3.75, height, rf"$\Omega^{{2,{second}}}$", pale(colour), wide=1.2)
        arrow(ax, (0.9, height), (1.35, height), colour, 2.5)
        arrow(ax, (2.55, height), (3.15, height), colour, 2.5)
        arrow(ax, (4.35, height), (4.9, height), colour, 2.5)
        ax.text(5.4, height, rf"$\xi^{{{name}}}$", ha="center", va="center", fontsize=11.0)
        for column, other in enumerate(PATHS.values()):
            # Cut from corner to corner: below the colour of the row, above that of the column.
            west, south = left + column * size, height - size / 2
            east, north = west + size, south + size
            for third, face in (((west, south), colour), ((east, north), other)):
                corners = [(west, north), (east, south), third]
                ax.add_patch(Polygon(corners, fc=pale(face), ec="none"))
            thick = 2.5 if row == column else 0.8
            edges = {"fc": "none", "ec": "black", "lw": thick, "zorder": 2 + (row == column)}
            ax.add_patch(Rectangle((west, south), size, size, **edges))
    for column, other in enumerate(PATHS):
        middle = left + (column + 0.5) * size
        ax.text(middle, 4.65, other, ha="center", va="bottom", fontweight="bold")
    ax.text(2.9, 5.2, "attended inputs, one per path", ha="center", fontsize=10.0)
    ax.text(left + 2 * size, 5.2, "order parameter $U_1$", ha="center", fontsize=10.0)
    meaning = "diagonal: how much a path counts\nelsewhere: how two count together"
    ax.text(left + 2 * size, -0.35, meaning, ha="center", va="center", fontsize=8.5)
    ax.text(
        2.9, -0.35, r"kernel  $K = \sum_{\pi\pi'}\; U_1^{\pi\pi'}\; C_{\pi\pi'}$", ha="center",
        va="center", fontsize=10.5,
    )  # fmt: skip


def draw_scheme() -> Figure:
    """Draw network, paths and order parameter."""
    figure = style.new_figure(style.WIDTH, 6.0)
    above, below = figure.subplots(2, 1, height_ratios=[4.4, 6.2])
    above.set_title("a network of two layers of two heads; in colour the path 0·1", loc="left")
    below.set_title("the same network as a sum over its four paths", loc="left")
    for ax in (above, below):
        ax.set_axis_off()
    draw_network(above)
    draw_paths(below)
    return figure


# %%
def hidden_states(inputs: np.ndarray) -> np.ndarray:
    """Sign of the difference of both halves of the features, [example, token], without BOS."""
    half = (inputs.shape[2] - inputs.shape[1]) // 2
    features = inputs[:, 1:, : 2 * half]
    return np.sign(features[:, :, :half].sum(axis=2) - features[:, :, half:].sum(axis=2))


def draw_markov_task(task: Task) -> Figure:
    """Draw states of sequences of both classes, and the attention of each head to one of them."""
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


# %%
task = sampler.markov_chain_task(examples_train=2 * SEQUENCES, examples_test=2, tokens=TOKENS).data
with style.figure_style():
    written = style.save_figure(draw_scheme(), folder, "concepts_paths")
    written += style.save_figure(draw_markov_task(task), folder, "concepts_markov_task")
print("figure:", *written)
