# %% [markdown]
# # Are value vectors principal components of the keys?
#
# Softmax attention projects queries on kernel principal components of the keys if its value
# vectors are eigenvectors of the centred kernel matrix of the keys, each divided by the sum of its
# similarities (arXiv 2406.13762; `component_values`). That is an identity. The claim is that
# training makes them so. Here networks of two layers of four heads learn to tell digits apart; for
# every head and episode the alignment of its values with K̃ times them is measured, which is 1 for
# eigenvectors, and how much of the variance of the keys' images the values span. Beside the
# network's own values stand the same values shuffled over the tokens, and the inputs themselves,
# all of them with the same keys, before the first step and after the last.
#
#     python -m runs.studies.value_components.study [FOLDER] [SEEDS] [STEPS]
#
# by default into runs/results/value_components, 5 trainings of 2,000 steps.

# %%
import sys
from pathlib import Path

import numpy as np

from runs.renew import RUNS, estimate, record
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
from sampler.transformer.model import Transformer, frozen_attention
from sampler.transformer.network import transformer_outputs
from theory.attention_regression import normalisers

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/value_components")
SEEDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
STEPS = int(sys.argv[3]) if len(sys.argv) > 3 else 2000
RECIPE = RUNS / "one_shot_train.toml"
SMALLER = ["training.widths=32", "training.key_size=16", "training.batch=64"]
HEADS = ((Softmax(),) * 4,) * 2
EPISODES, COMPONENTS = 50, 4
KINDS = {"own values": style.VERMILLION, "shuffled": style.GREY, "inputs as values": style.BLUE}
MEASURES = ("alignment", "captured variance", "ln (largest h / smallest h)")
KEYS = ("alignment", "captured", "ln h")  # of the same numbers where they are kept


# %%
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


def measured(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
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
    return np.array([[measured(*layer) for layer in kind] for kind in kinds])


def trained(seed: int) -> tuple[np.ndarray, float]:
    """[before and after, kind, layer, measure], and the accuracy on new episodes."""
    settings = [*SMALLER, f"training.steps={STEPS}", f"training.seed={seed}"]
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
    return np.array(found), accuracy_with_error(predictions, episodes.targets)["accuracy"]


# %%
results = [trained(seed) for seed in range(SEEDS)]


def mean_and_error(values) -> tuple[np.ndarray, np.ndarray]:
    """Mean over trainings and its standard error."""
    return np.mean(values, axis=0), np.std(values, axis=0, ddof=1) / np.sqrt(len(values))


print(f"{SEEDS} trainings of {STEPS} steps; mean ± standard error over them")
OVER = f"over {SEEDS} trainings"
accuracy = mean_and_error([accuracy for _, accuracy in results])
print("accuracy on new episodes of the training's digits: {:.3f} ± {:.3f}".format(*accuracy))
numbers = {"accuracy": estimate(*accuracy, OVER)}
mean, error = mean_and_error([found for found, _ in results])
for moment, when in enumerate(("before the first step", "after the last")):
    for layer in range(2):
        print(f"{when}, layer {layer + 1}")
        for kind, name in enumerate(KINDS):
            cells = [
                f"{what} {mean[moment, kind, layer, place]:.3g} ± "
                f"{error[moment, kind, layer, place]:.1g}"
                for place, what in enumerate(MEASURES)
            ]
            print(f"  {name:17} {', '.join(cells)}")
            numbers[f"{('before', 'after')[moment]}, layer {layer + 1}, {name}"] = {
                what: estimate(
                    mean[moment, kind, layer, place], error[moment, kind, layer, place], OVER
                )
                for place, what in enumerate(KEYS)
            }
own = [found[:, :1] - found[:, 1:] for found, _ in results]
mean_gain, error_gain = mean_and_error(own)
print("alignment of the network's own values minus that of")
for moment, when in enumerate(("before", "after")):
    for layer in range(2):
        gains = dict(
            zip(
                list(KINDS)[1:],
                zip(mean_gain[moment, :, layer, 0], error_gain[moment, :, layer, 0], strict=True),
                strict=True,
            )
        )
        cells = [f"{name} {gain:+.3f} ± {by:.3f}" for name, (gain, by) in gains.items()]
        numbers[f"{when}, layer {layer + 1}, own minus"] = {
            name: estimate(*gain, OVER) for name, gain in gains.items()
        }
        print(f"  {when}, layer {layer + 1}: {', '.join(cells)}")

# %%
PLACES = ("layer 1,\nbefore", "layer 2,\nbefore", "layer 1,\nafter", "layer 2,\nafter")
with style.figure_style():
    figure = style.new_figure(style.WIDTH, 3.9)
    figure.suptitle("Are value vectors principal components of the keys?")
    panels = figure.subplots(1, 2)
    for measure, axes in enumerate(panels):
        for kind, (name, colour) in enumerate(KINDS.items()):
            axes.errorbar(
                np.arange(4) + 0.18 * (kind - 1),
                mean[:, kind, :, measure].ravel(),
                error[:, kind, :, measure].ravel(),
                color=colour,
                marker="osD"[kind],
                markersize=5.0,
                linestyle="none",
                label=name,
            )
        axes.axhline(1.0, color=style.BLACK, linewidth=0.8, linestyle="--", label="eigenvectors")
        axes.set_xticks(np.arange(4), PLACES, fontsize=8.0)
    panels[0].set(ylabel="alignment with the components", ylim=(0.0, 1.05))
    panels[1].set(ylabel=f"captured by {COMPONENTS} directions", yscale="log")
    style.legend_below(figure, panels[0].get_legend_handles_labels(), columns=4)
    written = style.save_figure(figure, folder, "value_components")
print("figure:", *written)
record(
    folder,
    "value_components",
    numbers,
    made_by="python -m runs.studies.value_components.study",
    seeds=list(range(SEEDS)),
)
