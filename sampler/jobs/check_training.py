"""What a training recipe asks for: sizes, settings, memory and cost."""

from sampler.attention.forms.form import Form
from sampler.images.character_splits import CharacterSplits
from sampler.jobs.check import byte_text, indented, table
from sampler.recipes.episode_tokens import PATCHES, TOKENS
from sampler.recipes.training_recipe import TrainingRecipe
from sampler.transformer.shape import TransformerShape

FLOAT32_NUMBERS = 0.5  # in units of float64


def describe_training(recipe: TrainingRecipe, splits: CharacterSplits) -> str:
    """The text that `check` prints for a valid training recipe and its images."""
    settings, shape = recipe.training, TransformerShape.of(recipe)
    operations = 3 * settings.batch * example_operations(shape)
    drawings = [
        (
            f"{name}: characters, drawings",
            f"{part.characters}, {len(part.images)}",
        )
        for name, part in (
            ("training", splits.train),
            ("validation", splits.validation),
            ("test", splits.test),
        )
    ]
    sizes = [
        *drawings,
        ("heads per layer", ", ".join(map(str, shape.heads))),
        ("attention", forms_text(recipe.forms)),
        ("widths N_1 … N_L, N_a", ", ".join(map(str, shape.widths))),
        ("key channels G, input channels D", f"{shape.key_size}, {shape.channels}"),
        ("parameters", f"{shape.parameter_count:,}"),
    ]
    patches = len(splits.train.images) * PATCHES * shape.channels * FLOAT32_NUMBERS
    weights = settings.batch * sum(shape.heads) * TOKENS**2 * FLOAT32_NUMBERS
    return "\n\n".join(
        [
            f"{recipe.name} ({recipe.hash8}): recipe and images are valid",
            table("Sizes", sizes),
            "Settings, defaults included\n" + indented(recipe.to_toml().strip()),
            table(
                "Memory of the largest arrays",
                [
                    ("patches of training", byte_text(int(patches))),
                    ("attention of a batch", byte_text(int(weights))),
                ],
            ),
            table(
                "Cost, leading order, in floating-point operations",
                [
                    ("one step", f"{operations:.1e}"),
                    (f"{settings.steps} steps", f"{operations * settings.steps:.1e}"),
                ],
            ),
        ]
    )


def forms_text(forms: tuple[tuple[Form, ...], ...]) -> str:
    """The kinds of a layer's heads, or of all of them where they are the same; scales with them."""
    layers = [
        ", ".join(f"{form.kind} {getattr(form, 'scale', '')}".rstrip() for form in of_layer)
        for of_layer in (dict.fromkeys(of_layer) for of_layer in forms)
    ]
    return "; ".join(layers if len(set(layers)) > 1 else layers[:1])


def example_operations(shape: TransformerShape) -> int:
    """Operations of one forward pass of one example; the last layer has one token."""
    products = TOKENS * shape.channels * shape.widths[0]
    for layer, heads in enumerate(shape.heads, start=1):
        below, above = shape.widths[layer - 1], shape.widths[layer]
        tokens = 1 if layer == shape.layers else TOKENS
        products += heads * TOKENS * shape.key_size * (2 * shape.channels + TOKENS)
        products += heads * tokens * below * (TOKENS + above)
    return 2 * products
