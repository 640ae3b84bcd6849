"""Sizes and memory of a training, which `check` prints."""

from typing import Any

from sampler.attention.variants import AttentionVariant
from sampler.data.episodes import PATCHES, TOKENS
from sampler.data.one_shot import CharacterSplits
from sampler.jobs.memory import SINGLE, Part
from sampler.jobs.train import TrainingSplits
from sampler.settings.recipe import TrainingRecipe
from sampler.transformer.trained_transformer import Transformer


def sizes_of_training(
    recipe: TrainingRecipe, splits: TrainingSplits
) -> tuple[list[tuple[str, str]], list[Part]]:
    """Sizes of the data and of the network, in words, and the largest arrays."""
    batch = recipe.training.batch
    if isinstance(splits, CharacterSplits):
        counts = [
            (f"{name}: characters, drawings", f"{part.characters}, {len(part.images)}")
            for name, part in named(splits)
        ]
        shape = Transformer.of(recipe, recipe.task.token_channels)
        tokens, numbers = TOKENS, len(splits.train.images) * PATCHES * shape.channels
        data = "patches of training"
    else:
        examples, tokens, channels = splits.train.inputs.shape
        counts = [(f"{name}: series", f"{part.examples}") for name, part in named(splits)]
        counts += [("classes", ", ".join(splits.names)), ("tokens T", f"{tokens}")]
        shape = Transformer.of(recipe, channels, splits.outputs)
        numbers, batch = splits.train.inputs.size, min(batch, examples)
        data = "series of training"
    sizes = [
        *counts,
        ("heads per layer", ", ".join(map(str, shape.heads))),
        ("attention", variants_text(recipe.training.variants)),
        ("widths N_1 … N_L, N_a", ", ".join(map(str, shape.widths))),
        ("key channels G, input channels D", f"{shape.key_size}, {shape.channels}"),
        ("parameters", f"{shape.parameter_count:,}"),
    ]
    matrices = batch * sum(shape.heads) * tokens**2
    remedy = "use a smaller training.batch"
    arrays = [
        Part(data, SINGLE * numbers, "use fewer examples"),
        Part("attention of a batch", SINGLE * matrices, remedy),
    ]
    return sizes, arrays


def named(splits: TrainingSplits) -> list[tuple[str, Any]]:
    return [("training", splits.train), ("validation", splits.validation), ("test", splits.test)]


def variants_text(variants: tuple[tuple[AttentionVariant, ...], ...]) -> str:
    """The kinds of a layer's heads, or of all of them where they are the same; scales with them."""
    layers = [
        ", ".join(
            f"{variant.kind} {getattr(variant, 'scale', '')}".rstrip() for variant in of_layer
        )
        for of_layer in (dict.fromkeys(of_layer) for of_layer in variants)
    ]
    return "; ".join(layers if len(set(layers)) > 1 else layers[:1])
