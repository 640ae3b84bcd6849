# %% [markdown]
# # Sizes of runs on an accelerator, known without one
#
# Programs of runs too large for a laptop, compiled from shapes alone: their memory, their
# operations and bytes by XLA's analysis for a processor, and the time that the published numbers
# of a card allow. Nothing is run; no number here was seen on a GPU.
#
#     python runs/device_sizes.py [FOLDER] [NAME …]   (ten minutes)
#
# by default into runs/results/device_sizes. `attention-posterior check RECIPE --device h100` says
# the same of any recipe.

# %%
import sys
from pathlib import Path

import numpy as np
from renew import record

from sampler.jobs.cards import CARDS
from sampler.jobs.choice import Sizes, eigenvalue_of_all, warmup_of
from sampler.jobs.compiled import RunPrograms, programs_of_sizes
from sampler.presentation import style
from sampler.recipes.recipe import Recipe, recipe_of
from theory import Architecture

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/device_sizes")
CARD, TEST, GIB = "h100", 1000, 2**30
FIGURE_3 = Architecture.uniform((4, 4), 512, channels=192)
MANY_PATHS = Architecture.uniform((16, 16), 512, channels=64)
FOUR_PATHS = Architecture.uniform((2, 2), 512, channels=32)
# Architecture, training and test examples, space and chains, by name.
CASES = {
    f"{space}, {chains} chains": (FIGURE_3, 600, TEST, space, chains)
    for space in ("order_parameters", "upper_weights", "weights")
    for chains in (4, 64)
}
CASES |= {
    "256 paths": (MANY_PATHS, 600, TEST, "order_parameters", 4),
    "a million training examples": (FOUR_PATHS, 1_000_000, TEST, "order_parameters", 4),
    "a million test examples": (FIGURE_3, 600, 1_000_000, "order_parameters", 4),
}
names = sys.argv[2:] or list(CASES)


# %% [markdown]
# ## One case
# Gradients of a draw depend on the stiffness of the data: of some random ones, whose paths share
# half of their inputs.
# %%
def recipe_for(space: str, chains: int, one: Architecture) -> Recipe:
    """A recipe with this space and algorithm, whatever its data."""
    warmup = warmup_of(space, "split_hmc", one)
    settings = {"space": space, "algorithm": "split_hmc", "chains": chains, "warmup": warmup}
    network, task = {"widths": one.widths[0]}, {"kind": "markov_chain"}
    content = {"name": "sizes", "task": task, "network": network, "sampler": settings}
    return recipe_of(content | {"posterior": {"temperature": 0.1}}, Path())


def stiffness(one: Architecture, examples: int, temperature: float) -> float:
    """Largest eigenvalue of K/𝒯 at infinite width."""
    draw, few = np.random.default_rng(0).standard_normal, min(400, examples)
    attended = draw((few, 1, one.channels)) + 0.5 * draw((few, one.path_count, one.channels))
    return eigenvalue_of_all(attended, examples) / temperature


def numbers_of(found: RunPrograms) -> dict:
    """What a table quotes: memory, cost of one gradient of all chains, and times on a card."""
    card, step = CARDS[CARD], found.gradient
    return {
        "peak": found.peak / GIB,
        "temporaries": step.analysis.temporaries / GIB,
        "operations": step.cost.operations / 1e9,
        "bytes": step.cost.bytes / 1e9,
        "step": 1e3 * step.seconds(card),
        "draw": 1e3 * found.draw.seconds(card),
        "gradients": found.gradients,
        "minutes": found.sampling_seconds(card) / 60.0,
        "single": step.precision == "float32",
    }


# %%
numbers = {}
for name in names:
    one, examples, test, space, chains = CASES[name]
    recipe = recipe_for(space, chains, one)
    temperature = recipe.posterior.temperature
    sizes = Sizes(one, one.rows_of(examples), test, stiffness(one, examples, temperature))
    found = numbers[name] = numbers_of(programs_of_sizes(recipe, sizes, examples))
    print(
        f"{name}: {found['peak']:.2g} GiB, a gradient of all chains {found['step']:.2g} ms, "
        f"sampling {found['minutes']:.2g} min",
        flush=True,
    )
    record(folder, "device_sizes", numbers, made_by="python runs/device_sizes.py", seeds=[0])


# %% [markdown]
# ## Under the roofline
# Rates that the card allows the gradients of all chains, by how often they compute with a byte.
# %%
with style.figure_style():
    figure = style.new_figure(6.5, 5.0, "Gradients of all chains, as an H100 could make them")
    axes, card = figure.subplots(), CARDS[CARD]
    ratio = np.logspace(-1, 2.5)
    for precision, colour in (("float64", style.THEORY), ("float32", style.ORANGE)):
        rates = np.minimum(card.bandwidth * ratio, getattr(card, precision))
        axes.plot(ratio, rates / 1e12, color=colour, label=precision)
    for name, mark in zip(numbers, "osv^<>DXP", strict=False):
        of = numbers[name]
        colour = style.ORANGE if of["single"] else style.THEORY
        at = of["operations"] / of["bytes"], of["operations"] / of["step"]
        axes.plot(*at, mark, color=colour, markersize=5, label=name)
    axes.set(
        xscale="log", yscale="log", xlabel="operations a byte", ylabel="10¹² operations a second"
    )
    style.legend_below(figure)
    written = style.save_figure(figure, folder, "device_sizes")
print("figure:", *written)
