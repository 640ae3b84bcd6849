"""The text of `check` for a training recipe and its data."""

from textwrap import indent
from typing import Any

from sampler.attention.variants import AttentionVariant
from sampler.data.episodes import PATCHES, TOKENS
from sampler.data.one_shot import CharacterSplits
from sampler.data.raven import PANELS, MatrixSplits, MatrixTokens
from sampler.jobs.memory import byte_text
from sampler.jobs.train import TrainingSplits
from sampler.presentation.table import section
from sampler.settings.recipe import TrainingRecipe
from sampler.transformer.model import Transformer

FLOAT32_BYTES = 4


def describe_training(recipe: TrainingRecipe, splits: TrainingSplits) -> str:
    """The text that `check` prints for a valid training recipe and its data."""
    settings = recipe.training
    if isinstance(splits, CharacterSplits):
        counted = "characters, drawings"
        counts = {name: f"{part.characters}, {len(part.images)}" for name, part in named(splits)}
        shape = Transformer.of(recipe, recipe.task.token_channels)
        tokens, held = TOKENS, len(splits.train.images) * PATCHES * shape.channels
        what, batch, classes = "patches", settings.batch, []
    elif isinstance(splits, MatrixSplits):
        counted = "compositions"
        counts = {"seen": str(len(splits.seen)), "held out": str(len(splits.held_out))}
        form = MatrixTokens.of(recipe.task)
        shape = Transformer.of(recipe, form.channels, form.outputs)
        tokens, batch = PANELS, settings.batch
        what, held, classes = "tokens of a batch", batch * PANELS * form.channels, []
    else:
        counted, what = "series", "series"
        counts = {name: str(part.examples) for name, part in named(splits)}
        examples, tokens, channels = splits.train.inputs.shape
        shape = Transformer.of(recipe, channels, splits.outputs)
        held, batch = splits.train.inputs.size, min(settings.batch, examples)
        classes = [("classes", ", ".join(splits.names)), ("tokens T", str(tokens))]
    operations = 3 * batch * example_operations(shape, tokens)
    sizes = [
        *((f"{name}: {counted}", count) for name, count in counts.items()),
        *classes,
        ("heads per layer", ", ".join(map(str, shape.heads))),
        ("attention", variants_text(settings.variants)),
        ("widths N_1 … N_L, N_a", ", ".join(map(str, shape.widths))),
        ("key channels G, input channels D", f"{shape.key_size}, {shape.channels}"),
        ("parameters", f"{shape.parameter_count:,}"),
    ]
    weights = batch * sum(shape.heads) * tokens**2 * FLOAT32_BYTES
    return "\n\n".join(
        [
            f"{recipe.name} ({recipe.hash8}): recipe and {recipe.task.of_training} are valid",
            section("Sizes", sizes),
            "Settings, defaults included\n" + indent(recipe.to_toml().strip(), "  "),
            section(
                "Memory of the largest arrays",
                [
                    (f"{what} of training", byte_text(float(held * FLOAT32_BYTES))),
                    ("attention of a batch", byte_text(float(weights))),
                ],
            ),
            section(
                "Cost, leading order, in floating-point operations",
                [
                    ("one step", f"{operations:.1e}"),
                    (f"{settings.steps} steps", f"{operations * settings.steps:.1e}"),
                ],
            ),
        ]
    )


def named(splits: TrainingSplits) -> list[tuple[str, Any]]:
    return [("training", splits.train), ("validation", splits.validation), ("test", splits.test)]


def variants_text(variants: tuple[tuple[AttentionVariant, ...], ...]) -> str:
    """The kinds of a layer's heads, or of all of them where they are the same; scales with them."""
    layers = [
        ", ".join(f"{one.kind} {getattr(one, 'scale', '')}".rstrip() for one in of_layer)
        for of_layer in (dict.fromkeys(of_layer) for of_layer in variants)
    ]
    return "; ".join(layers if len(set(layers)) > 1 else layers[:1])


def example_operations(shape: Transformer, length: int) -> int:
    """Operations of one forward pass of `length` tokens; the last layer has one token."""
    products = length * shape.channels * shape.widths[0]
    attended = length * shape.key_size * (2 * shape.channels + length)
    products += sum(shape.heads) * attended
    for layer, heads in enumerate(shape.value_heads, start=1):
        below, above = shape.widths[layer - 1], shape.widths[layer]
        tokens = 1 if layer == shape.layers else length
        products += heads * tokens * below * (length + above)
    return 2 * products
