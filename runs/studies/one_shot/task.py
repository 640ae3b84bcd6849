"""The images of one-shot episodes: two of training with the inputs made of them; pixels alone."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import sampler
from sampler.data.episodes import draw_episodes
from sampler.data.one_shot import read_drawings, split_characters, tested_drawings
from sampler.presentation import style
from sampler.streams import Stream, stream
from sampler.transformer.trained_transformer import read_model

IMAGES = ("support, −1", "support, +1", "query")  # by their label in an episode
EXAMPLES, SEED = 600, 0


def draw_task(model: Path, omniglot: Path) -> Figure:
    """Draw two episodes of different labels that a trained network was not shown."""
    task = sampler.OneShot(model=model, folder=omniglot, examples_train=EXAMPLES, seed=SEED)
    data = task.make(attention=None).train
    settings = read_model(model).recipe.task.model_copy(update={"folder": str(omniglot)})
    drawings = split_characters(read_drawings(settings), settings).train
    images, kinds = draw_episodes(drawings, EXAMPLES, stream(SEED, Stream.TRAIN)).places
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
