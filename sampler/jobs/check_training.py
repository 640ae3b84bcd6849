"""The text of `check` for a training recipe and its data."""

from textwrap import indent
from typing import Any

from sampler.analysis.text import section
from sampler.attention.variants import AttentionVariant
from sampler.data.episodes import PATCHES, TOKENS
from sampler.data.one_shot import CharacterSplits
from sampler.jobs.memory import byte_text
from sampler.jobs.train import TrainingSplits
from sampler.settings.recipe import TrainingRecipe
from sampler.transformer.trained_transformer import Transformer

FLOAT32_BYTES = 4


def describe_training(recipe: TrainingRecipe, splits: TrainingSplits) -> str:
    """The text that `check` prints for a valid training recipe and its data."""
    settings, batch = recipe.training, recipe.training.batch
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
        ("attention", variants_text(settings.variants)),
        ("widths N_1 … N_L, N_a", ", ".join(map(str, shape.widths))),
        ("key channels G, input channels D", f"{shape.key_size}, {shape.channels}"),
        ("parameters", f"{shape.parameter_count:,}"),
    ]
    matrices = batch * sum(shape.heads) * tokens**2
    arrays = {data: numbers, "attention of a batch": matrices}
    memory = [(name, byte_text(float(FLOAT32_BYTES * size))) for name, size in arrays.items()]
    parts = [
        f"{recipe.name} ({recipe.hash8}): recipe and {recipe.task.of_training} are valid",
        section("Sizes", sizes),
        f"Settings, defaults included\n{indent(recipe.to_toml().strip(), '  ')}",
        section("Memory of the largest arrays", memory),
    ]
    return "\n\n".join(parts)


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
