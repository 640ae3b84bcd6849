"""What a recipe asks for: sizes, settings, memory and cost, without computing anything long."""

from typing import Any

from sampler.attention.variants import AttentionVariant
from sampler.images.sources import CharacterSplits
from sampler.jobs.choice import Choice, Sizes, choose, duration, leading_eigenvalue
from sampler.jobs.forecast import (
    available_bytes,
    byte_text,
    draw_bytes,
    draws_kept_whole,
    gradient_operations,
    machine_seconds,
    memory_parts,
    peak_bytes,
    predicted_times,
    refuse_what_does_not_fit,
)
from sampler.jobs.train import TrainingSplits, read_splits
from sampler.mcmc.algorithm import algorithm_named
from sampler.presentation.terminal import terminal_width, wrapped
from sampler.recipes.recipe import Recipe
from sampler.recipes.sections import AUTO, paired
from sampler.recipes.training_recipe import PATCHES, TOKENS, TrainingRecipe
from sampler.storage.earlier_chains import read_earlier_chains
from sampler.tasks.task import Task
from sampler.transformer.model import TransformerShape
from theory.architecture import order_parameter_sizes, weight_count

OF_THE_DATA = ("task.", "attention.", "network.heads", "network.hypernetwork")


def check_recipe(recipe: Recipe | TrainingRecipe) -> str:
    """What `check` prints; InputError for data or settings that cannot be used."""
    if isinstance(recipe, TrainingRecipe):
        return describe_training(recipe, read_splits(recipe))
    from sampler.jobs.run import refuse_too_many_coordinates, refuse_unusable_own
    from sampler.tasks.make import make_task

    task = make_task(recipe)
    refuse_too_many_coordinates(recipe, task)
    refuse_what_does_not_fit(recipe, task)
    refuse_unusable_own(recipe, task, recipe.theory.own)
    read_earlier_chains(recipe.sampler)
    return describe(recipe, task)


def describe(recipe: Recipe, task: Task) -> str:
    """The text that `check` prints for a valid recipe and its task."""
    eigenvalue = leading_eigenvalue(recipe, task)
    choice = choose(recipe, task, eigenvalue)
    sampled = choice.applied_to(recipe)
    parts = [
        f"{recipe.name} ({recipe.hash8}): recipe and data are valid",
        table("Sizes", sizes_in_words(recipe, task)),
        "Settings, defaults included\n" + indented(settings_in_force(recipe, choice)),
        table("Memory of the largest arrays", memory(sampled, task)),
        table("Cost, leading order, in floating-point operations", cost(sampled, task)),
        table("Time of `run` on this machine, about", times(recipe, task, eigenvalue)),
    ]
    if recipe.sweep:
        parts.append(table("Points of the sweep", sweep_points(recipe, task, eigenvalue)))
    return "\n\n".join(parts)


def settings_in_force(recipe: Recipe, choice: Choice) -> str:
    """The resolved recipe, and what holds for the settings that it leaves open."""
    left_open = []
    if AUTO in (recipe.sampler.space, recipe.sampler.algorithm):
        left_open.append(f"# sampler.space and sampler.algorithm: {choice.explain()}")
    if recipe.network.heads is None:
        left_open.append("# network.heads is not set: the network keeps all heads")
    if recipe.theory.tolerance is None:
        left_open.append("# theory.tolerance is not set: the solver uses its default")
    if recipe.sampler.warmup is None:
        steps = choice.applied_to(recipe).sampler.warmup_steps
        left_open.append(f"# sampler.warmup is not set: {steps} steps, the default of this space")
    said = [wrapped(line, terminal_width() - 2, further="#   ") for line in left_open]
    return "\n".join([recipe.to_toml().strip(), *([""] if said else []), *said])


def sizes_in_words(recipe: Recipe, task: Task) -> list[tuple[str, str]]:
    rows = order_parameter_sizes(task.heads, task.outputs)
    widths = recipe.network.layer_widths(task.layers)
    weights = weight_count(task.heads, widths, task.channels, task.outputs)
    labels = "" if task.test.labels is not None else " (no labels: no accuracy)"
    return [
        ("training examples P", examples_text(recipe, task)),
        ("test examples", f"{task.test.examples}{labels}"),
        ("validation examples", validation_text(task)),
        ("tokens", tokens_text(task)),
        ("channels D", f"{task.channels}"),
        ("outputs O", f"{task.outputs}"),
        ("attention layers L", f"{task.layers}"),
        ("heads per layer", "; ".join(", ".join(names) for names in task.head_names)),
        ("attention paths Π", paths_text(recipe, task)),
        ("widths N_1 … N_L, N_a", ", ".join(map(str, widths))),
        ("variances σ0² … σL², σa²", ", ".join(map(str, layer_variances(recipe, task)))),
        ("parameters of U_1 … U_L, U_a", f"{sum(p * (p + 1) // 2 for p in rows)}"),
        ("weights", f"{weights:,}"),
    ]


def examples_text(recipe: Recipe, task: Task) -> str:
    """Training examples, and how many rows stand for them where these are fewer."""
    examples, rows = task.train.examples, Sizes.of(recipe, task).examples
    if rows == examples:
        return f"{examples}"
    return f"{examples:,}, for which {rows:,} rows stand, exactly"


def tokens_text(task: Task) -> str:
    """The number of tokens, or what follows from there being none."""
    if task.train.tokens is None:
        return "none: attended inputs are given (no distances between heads)"
    return " and ".join(map(str, sorted({split.tokens for split in task.splits})))


def paths_text(recipe: Recipe, task: Task) -> str:
    """The paths, or why there is no sum over them."""
    if not recipe.network.fits_theory:
        return "none: outside the theory, sampled token by token"
    return f"{len(task.path_names)}: {', '.join(task.path_names[:16])}"


def validation_text(task: Task) -> str:
    """The size of the validation split, or what follows from there being none."""
    if task.validation is None:
        return "none (a sweep selects no point)"
    return f"{task.validation.examples}"


def layer_variances(recipe: Recipe, task: Task) -> tuple[float, ...]:
    return recipe.network.layer_variances(task.layers)


def memory(recipe: Recipe, task: Task) -> list[tuple[str, str]]:
    """Bytes of what grows with the data, the paths or the draws, and of the process at its peak."""
    parts = memory_parts(recipe, task)
    rows = [
        (part.name, byte_text(part.bytes) + (f" × {part.copies}" if part.copies > 1 else ""))
        for part in parts
    ]
    most = draws_kept_whole(recipe, task)
    more = draw_bytes(recipe, task, most + 1000) - draw_bytes(recipe, task, most)
    peak = f"{byte_text(peak_bytes(parts))} of {byte_text(available_bytes())}"
    return [*rows, ("1,000 more draws a chain", byte_text(more)), ("all, at the peak", peak)]


def times(recipe: Recipe, task: Task, eigenvalue: float) -> list[tuple[str, str]]:
    """Predicted minutes of every stage."""
    found = predicted_times(recipe, task, eigenvalue, machine_seconds())
    rows = {
        "folding the examples": found.examples,
        "theory": found.theory,
        "sampling": found.sampling,
        "comparison, figures, report": found.results,
        "all": found.whole,
    }
    return [(name, duration(seconds)) for name, seconds in rows.items() if seconds]


def cost(recipe: Recipe, task: Task) -> list[tuple[str, str]]:
    """Operations of the steps that dominate; the sampler's total is an upper bound."""
    settings = recipe.sampler
    algorithm = algorithm_named(settings.algorithm, dict(settings))
    draws = settings.chains * (settings.warmup_steps + settings.most_draws * settings.thinning)
    rows, gradient = [], gradient_operations(recipe, task)
    if recipe.network.fits_theory:
        sizes = Sizes.of(recipe, task)
        cholesky = (sizes.examples * task.outputs) ** 3 / 3
        rows = [
            ("Cholesky factor of K, (P·O)³/3", f"{cholesky:.1e}"),
            ("kernel K(U_1), 2 O² P² for each pair of paths", f"{2 * sizes.kernel_operations:.1e}"),
        ]
    rows += [
        (f"gradient, space {settings.space}", f"{gradient:.1e}"),
    ]
    per_draw = algorithm.gradients_per_draw()
    if per_draw is not None:
        words, steps = per_draw
        rows.append((words, f"{steps}"))
        rows.append(("all chains, all draws, at most", f"{gradient * steps * draws:.1e}"))
    return rows


def sweep_points(recipe: Recipe, task: Task, eigenvalue: float) -> list[tuple[str, str]]:
    lines = []
    # Points with data or heads of their own are chosen for when those are made.
    others = [key for key in recipe.sweep if key.startswith(OF_THE_DATA)]
    for label, point in recipe.points():
        # A sweep may make hypernetworks of the same layers of attention.
        of_attention = task.train.heads
        heads = paired(of_attention, point.network.hypernetworks(len(of_attention)))
        widths = point.network.layer_widths(len(heads))
        settings = point.sampler
        weights = weight_count(heads, widths, task.channels, task.outputs)
        solved = point.network.fits_theory
        what = "theory and sampling" if solved else "sampling (outside the theory)"
        alone = "theory only" if solved else "nothing"
        if not settings.spaces_for(point.network):
            limit = max(settings.largest_width[space] for space in settings.spaces)
            what = f"{alone} (wider than {limit})"
        elif not settings.samples(point.network):
            what = f"{alone} (not in sampler.at_widths)"
        elif settings.points == "selected":
            what = "theory, and sampling if its temperature is chosen"
        left_open = AUTO in (settings.space, settings.algorithm)
        if left_open and settings.samples(point.network) and not others:
            choice = choose(point, task, eigenvalue)
            what += f" ({choice.space}, {choice.algorithm})"
        lines.append((label, f"{weights:,} weights; {what}"))
    return lines


def table(title: str, rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return title + "\n" + indented("\n".join(f"{name:<{width}}  {text}" for name, text in rows))


def indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.split("\n"))


FLOAT32_BYTES = 4


def describe_training(recipe: TrainingRecipe, splits: TrainingSplits) -> str:
    """The text that `check` prints for a valid training recipe and its data."""
    settings = recipe.training
    if isinstance(splits, CharacterSplits):
        counted = "characters, drawings"
        counts = {name: f"{part.characters}, {len(part.images)}" for name, part in named(splits)}
        shape = TransformerShape.of(settings, recipe.task.token_channels)
        tokens, held = TOKENS, len(splits.train.images) * PATCHES * shape.channels
        what, batch, classes = "patches", settings.batch, []
    else:
        counted, what = "series", "series"
        counts = {name: str(part.examples) for name, part in named(splits)}
        examples, tokens, channels = splits.train.inputs.shape
        shape = TransformerShape.of(settings, channels, splits.outputs)
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
            table("Sizes", sizes),
            "Settings, defaults included\n" + indented(recipe.to_toml().strip()),
            table(
                "Memory of the largest arrays",
                [
                    (f"{what} of training", byte_text(float(held * FLOAT32_BYTES))),
                    ("attention of a batch", byte_text(float(weights))),
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


def named(splits: TrainingSplits) -> list[tuple[str, Any]]:
    """The splits with their names."""
    return [("training", splits.train), ("validation", splits.validation), ("test", splits.test)]


def variants_text(variants: tuple[tuple[AttentionVariant, ...], ...]) -> str:
    """The kinds of a layer's heads, or of all of them where they are the same; scales with them."""
    layers = [
        ", ".join(f"{one.kind} {getattr(one, 'scale', '')}".rstrip() for one in of_layer)
        for of_layer in (dict.fromkeys(of_layer) for of_layer in variants)
    ]
    return "; ".join(layers if len(set(layers)) > 1 else layers[:1])


def example_operations(shape: TransformerShape, length: int) -> int:
    """Operations of one forward pass of `length` tokens; the last layer has one token."""
    products = length * shape.channels * shape.widths[0]
    for layer, heads in enumerate(shape.heads, start=1):
        below, above = shape.widths[layer - 1], shape.widths[layer]
        tokens = 1 if layer == shape.layers else length
        products += heads * length * shape.key_size * (2 * shape.channels + length)
        products += heads * tokens * below * (length + above)
    return 2 * products
