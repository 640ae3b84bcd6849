"""Sizes and memory of a training, which `check` prints."""

from sampler.attention.variants import AttentionVariant
from sampler.data.labelled_inputs import LearningSizes
from sampler.jobs.memory import SINGLE, Part
from sampler.settings.recipe import TrainingRecipe
from sampler.transformer.trained_transformer import Transformer


def sizes_of_training(
    recipe: TrainingRecipe, data: LearningSizes
) -> tuple[list[tuple[str, str]], list[Part]]:
    """Sizes of the data and of the network, in words, and the largest arrays."""
    batch, (numbers, source) = recipe.training.batch, data.numbers
    shape = Transformer.of(recipe, data.channels, data.outputs)
    sizes = [
        *data.described,
        ("heads per layer", ", ".join(map(str, shape.heads))),
        ("attention", variants_text(recipe.training.variants)),
        ("widths N_1 … N_L, N_a", ", ".join(map(str, shape.widths))),
        ("key channels G, input channels D", f"{shape.key_size}, {shape.channels}"),
        ("parameters", f"{shape.parameter_count:,}"),
    ]
    together = batch if data.examples is None else min(batch, data.examples)
    matrices = together * sum(shape.heads) * data.tokens**2
    remedy = "use a smaller training.batch"
    arrays = [
        Part(source, SINGLE * numbers, "use fewer examples"),
        Part("attention of a batch", SINGLE * matrices, remedy),
    ]
    return sizes, arrays


def variants_text(variants: tuple[tuple[AttentionVariant, ...], ...]) -> str:
    """The kinds of a layer's heads, or of all of them where they are the same; scales with them."""
    layers = [
        ", ".join(
            f"{variant.kind} {getattr(variant, 'scale', '')}".rstrip() for variant in of_layer
        )
        for of_layer in (dict.fromkeys(of_layer) for of_layer in variants)
    ]
    return "; ".join(layers if len(set(layers)) > 1 else layers[:1])
