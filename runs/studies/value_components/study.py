"""Are value vectors principal components of the keys?

Softmax attention projects queries on kernel principal components of the keys if its value
vectors are eigenvectors of the centred kernel matrix of the keys, each divided by the sum of its
similarities (arXiv 2406.13762; `component_values`). That is an identity. The claim is that
training makes them so. Here networks of two layers of four heads learn to tell digits apart; for
every head and episode the alignment of its values with K̃ times them is measured, which is 1 for
eigenvectors, and how much of the variance of the keys' images the values span. Beside the
network's own values stand the same values shuffled over the tokens, and the inputs themselves,
all of them with the same keys, before the first step and after the last.

    python -m runs.studies.value_components.study [FOLDER [SEEDS [STEPS]]]

5 trainings of 2,000 steps.
"""

import numpy as np
from matplotlib.figure import Figure

from runs.studies.study import RUNS, Study, mean_over
from runs.studies.value_components.mathematics import captured_variance, component_alignment
from sampler.attention.variants import Softmax
from sampler.data.episodes import (
    TOKENS,
    draw_episodes,
    episode_inputs,
    normalised_patches,
    position_table,
)
from sampler.data.one_shot import read_drawings, split_characters
from sampler.presentation import style
from sampler.settings.recipe import TrainingRecipe, load_recipe
from sampler.training.steps import initial_state, train
from sampler.training.training_data import accuracy_with_error, draw_embedding, learning_data
from sampler.transformer.forward_pass import transformer_outputs
from sampler.transformer.trained_transformer import Transformer, frozen_attention
from theory.attention_regression import normalisers

RECIPE = RUNS / "one_shot_train.toml"
SMALLER = ["training.widths=32", "training.key_size=16", "training.batch=64"]
HEADS = ((Softmax(),) * 4,) * 2
EPISODES, COMPONENTS = 50, 4
KINDS = {"own values": style.VERMILLION, "shuffled": style.GREY, "inputs as values": style.BLUE}
MEASURES = ("alignment", "captured", "ln h")  # the last: of the largest and smallest normaliser


def keys_and_values(parameters: dict, inputs: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Keys [example, head, token, G] and value vectors [example, head, token, N] of both layers."""
    hidden = inputs @ parameters["W_in"].T
    found = []
    for layer, matrices in enumerate(frozen_attention(parameters, inputs, HEADS), start=1):
        keys = np.einsum("hgi,xti->xhtg", parameters[f"W_K_{layer}"], inputs)
        values = np.einsum("hab,xtb->xhta", parameters[f"W_V_{layer}"], hidden)
        found.append((keys, values))
        hidden = np.einsum("xhkq,xhka->xqa", matrices, values) / np.sqrt(matrices.shape[1])
    return found


def of_layer(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`MEASURES`, means over episodes, heads and channels."""
    keys, values = (one.reshape(-1, *one.shape[2:]) for one in (keys, values))
    found = [
        (
            component_alignment(key, value).mean(),
            captured_variance(key, value, COMPONENTS),
            np.ptp(np.log(normalisers(key))),
        )
        for key, value in zip(keys, values, strict=True)
    ]
    return np.mean(found, axis=0)


def compared(parameters: dict, inputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[kind, layer, measure]; every kind of values meets the same keys."""
    layers = keys_and_values(parameters, inputs)
    order = rng.permutation(inputs.shape[1])
    kinds = [
        layers,
        [(keys, values[:, :, order]) for keys, values in layers],
        [
            (keys, np.broadcast_to(inputs[:, None], (*keys.shape[:3], inputs.shape[2])))
            for keys, _ in layers
        ],
    ]
    return np.array([[of_layer(*layer) for layer in kind] for kind in kinds])


def measure(seed: int, steps: int) -> dict:
    """[before and after, kind, layer, measure], and the accuracy on new episodes."""
    settings = [*SMALLER, f"training.steps={steps}", f"training.seed={seed}"]
    recipe = load_recipe(RECIPE, settings, kind=TrainingRecipe)
    splits = split_characters(read_drawings(recipe.task), recipe.task)
    data = learning_data(recipe, splits)
    start = initial_state(recipe, data)
    end = train(recipe, data, start, lambda _: None)
    rng = np.random.default_rng(seed)
    episodes = draw_episodes(splits.train, 1000, rng)
    patches = normalised_patches(splits.train.images, recipe.task.channels)
    positions = position_table(TOKENS, patches.shape[-1])
    inputs = episode_inputs(patches, positions, draw_embedding(recipe), *episodes.places)
    networks = [
        {name: np.asarray(value, np.float64) for name, value in parameters.items()}
        for parameters in (start.parameters, end.best)
    ]
    network = Transformer.of(recipe, data.channels, data.outputs)
    predictions = np.asarray(transformer_outputs(networks[1], inputs, network))
    found = [compared(network, inputs[:EPISODES], rng) for network in networks]
    accuracy = accuracy_with_error(predictions, episodes.targets)["accuracy"]
    return {"accuracy": accuracy, "values": np.array(found).tolist()}


WHEN = ("before", "after")


def summary(results: list[dict]) -> dict:
    """Means over trainings, and of the alignment of the network's own values minus others."""
    values = np.array([one["values"] for one in results])
    numbers = {"accuracy": mean_over([one["accuracy"] for one in results], "trainings")}
    for moment, when in enumerate(WHEN):
        for layer in range(2):
            there = values[:, moment, :, layer]
            for kind, name in enumerate(KINDS):
                numbers[f"{when}, layer {layer + 1}, {name}"] = {
                    measure: mean_over(there[:, kind, place], "trainings")
                    for place, measure in enumerate(MEASURES)
                }
            numbers[f"{when}, layer {layer + 1}, own minus"] = {
                name: mean_over(there[:, 0, 0] - there[:, kind, 0], "trainings")
                for kind, name in enumerate(KINDS)
                if kind
            }
    return numbers


PLACES = [(when, layer) for when in WHEN for layer in (1, 2)]


def draw(numbers: dict) -> Figure:
    """Draw alignment and captured variance of every kind of values, before and after training."""
    figure = style.new_figure(style.WIDTH, 3.9)
    figure.suptitle("Are value vectors principal components of the keys?")
    panels = figure.subplots(1, 2)
    for measure, axes in zip(MEASURES, panels, strict=False):
        for kind, (name, colour) in enumerate(KINDS.items()):
            rows = [numbers[f"{when}, layer {layer}, {name}"][measure] for when, layer in PLACES]
            values, errors = ([row[key] for row in rows] for key in ("value", "error"))
            marks = {"color": colour, "marker": "osD"[kind], "markersize": 5.0, "label": name}
            places = np.arange(len(rows)) + 0.18 * (kind - 1)
            axes.errorbar(places, values, errors, linestyle="none", **marks)
        axes.axhline(1.0, color=style.BLACK, linewidth=0.8, linestyle="--", label="eigenvectors")
        labels = [f"layer {layer},\n{when}" for when, layer in PLACES]
        axes.set_xticks(np.arange(len(PLACES)), labels, fontsize=8.0)
    panels[0].set(ylabel="alignment with the components", ylim=(0.0, 1.05))
    panels[1].set(ylabel=f"captured by {COMPONENTS} directions", yscale="log")
    style.legend_below(figure, panels[0].get_legend_handles_labels(), columns=4)
    return figure


if __name__ == "__main__":
    study = Study(__file__)
    seeds, steps = range(study.size(0, 5)), study.size(1, 2000)
    numbers = summary([study.once(f"{seed}_{steps}", measure, seed, steps) for seed in seeds])
    study.record(numbers, seeds=list(seeds))
    with style.figure_style():
        study.draw(draw(numbers))
