"""The text of `check`: the plan of a recipe, without computing anything long."""

from textwrap import indent

from sampler.analysis.text import terminal_width, wrapped
from sampler.data.task import Task
from sampler.jobs.memory import (
    available_bytes,
    byte_text,
    draw_bytes,
    draws_kept_whole,
    peak_bytes,
)
from sampler.jobs.plan import Plan, make_plan
from sampler.jobs.sizes import Sizes
from sampler.presentation.table import section
from sampler.settings.recipe import Recipe, TrainingRecipe
from sampler.settings.types import AUTO, meaning
from theory.architecture import HESSIAN_COORDINATES

# Swept keys that give a point data of its own.
OF_THE_DATA = ("task.", "attention.")
Rows = list[tuple[str, str]]
# Paths that are named in one line.
MOST_NAMED = 16


def check_recipe(recipe: Recipe | TrainingRecipe) -> str:
    """The text of `check`. Raises InputError for data or settings that cannot be used."""
    if isinstance(recipe, TrainingRecipe):
        from sampler.jobs.check_training import describe_training
        from sampler.jobs.train import read_splits

        return describe_training(recipe, read_splits(recipe))
    return describe(make_plan("run", recipe))


def describe(plan: Plan) -> str:
    recipe, run = plan.asked, (plan.points or (plan,))[0]
    parts = [
        f"{recipe.name} ({recipe.hash8}): recipe and data are valid",
        *(wrapped(f"Warning: {text}", further="  ") for text in plan.task.concerns),
        section("Sizes", sizes_in_words(plan.task, run)),
        "Settings, defaults included\n" + indent(settings_in_force(recipe, run), "  "),
        section("Memory of the largest arrays", memory(plan, run)),
    ]
    if recipe.sweep:
        parts.append(section("Points of the sweep", points_in_words(plan)))
    return "\n\n".join(parts)


def settings_in_force(recipe: Recipe, run: Plan) -> str:
    """The resolved recipe, and what holds for the settings that it leaves open."""
    left_open = []
    if run.method is not None and AUTO in (recipe.sampler.space, recipe.sampler.algorithm):
        left_open.append(f"# sampler.space and sampler.algorithm: {run.method.explain()}")
    for name, key in (("network", "heads"), ("theory", "tolerance")):
        part = getattr(recipe, name)
        if getattr(part, key) is None:
            left_open.append(f"# {name}.{key} is not set: {meaning(type(part), key)}")
    if recipe.sampler.warmup is None and run.method is not None:
        steps = run.recipe.sampler.warmup_steps
        left_open.append(f"# sampler.warmup is not set: {steps} steps, enough for these chains")
    lines = [wrapped(line, terminal_width() - 2, further="#   ") for line in left_open]
    return "\n".join([recipe.to_toml().strip(), *([""] if lines else []), *lines])


def sizes_in_words(task: Task, run: Plan) -> Rows:
    one, examples = run.sizes.architecture, f"{task.train.examples}"
    if run.sizes.examples < task.train.examples:
        examples = f"{task.train.examples:,}, for which {run.sizes.examples:,} rows stand, exactly"
    labels = "" if task.test.labels is not None else " (no labels: no accuracy)"
    held = task.validation
    validation = "none (a sweep selects no point)" if held is None else f"{held.examples}"
    tokens = "none: attended inputs are given (no distances between heads)"
    if task.train.tokens is not None:
        tokens = " and ".join(map(str, sorted({split.tokens for split in task.splits})))
    paths = "none: outside the theory, sampled token by token"
    if run.recipe.has_theory or task.learned is not None:
        more = ", …" if len(task.path_names) > MOST_NAMED else ""
        paths = f"{len(task.path_names):,}: {', '.join(task.path_names[:MOST_NAMED])}{more}"
    return [
        ("training examples P", examples),
        ("test examples", f"{task.test.examples}{labels}"),
        ("validation examples", validation),
        ("tokens", tokens),
        ("channels D", f"{one.channels}"),
        ("outputs O", f"{one.outputs}"),
        ("attention layers L", f"{one.layers}"),
        *(("from a model", line) for line in task.origin),
        ("heads per layer", "; ".join(", ".join(names) for names in task.head_names)),
        ("attention paths Π", paths),
        ("widths N_1 … N_L, N_a", widths_in_words(run)),
        ("variances σ0² … σL², σa²", ", ".join(map(str, one.variances))),
        *learned_in_words(task, run.sizes),
        *weights_in_words(run),
        *next_order_in_words(run),
        *values_in_words(task, run),
    ]


def values_in_words(task: Task, run: Plan) -> Rows:
    """Say that a network with nonlinear values has the theory of infinite width."""
    if not run.recipe.has_value_theories:
        return []
    size = (task.train.examples * task.train.tokens) ** 2
    return [("theory", f"infinite width; (P T)² = {size:.1e} covariances a layer")]


def next_order_in_words(run: Plan) -> Rows:
    """Say why there is no theory to next order, where it is asked for and too large."""
    asked = run.recipe.has_theory and run.recipe.theory.next_order
    if not asked or run.recipe.network.is_infinite or run.sizes.architecture.has_next_order:
        return []
    count, paths = (
        run.sizes.architecture.bartlett_coordinate_count,
        run.sizes.architecture.path_count,
    )
    reason = f"{paths:,} paths of {run.sizes.architecture.channels:,} channels"
    if count > HESSIAN_COORDINATES:
        reason = f"{count:,} coordinates, {HESSIAN_COORDINATES:,} at most"
    return [("next order in 1/N", f"none: {reason}; keep fewer heads, or fewer channels")]


def widths_in_words(run: Plan) -> str:
    if run.recipe.network.is_infinite:
        return "infinite"
    return ", ".join(map(str, run.sizes.architecture.widths))


def learned_in_words(task: Task, sizes: Sizes) -> Rows:
    """Number of logit weights that are sampled, where heads are learned."""
    if task.learned is None:
        return []
    form = task.learned.form.replace("_", " ")
    return [("logit weights of learned heads", f"{sizes.logits:,} ({form})")]


def weights_in_words(run: Plan) -> Rows:
    if run.recipe.network.is_infinite:
        return [("weights", "none: integrated out at infinite width")]
    weights = ("weights", f"{run.sizes.weight_count:,}")
    if not run.recipe.fits_theory:
        return [weights]
    return [("parameters of U_1 … U_L, U_a", f"{run.sizes.architecture.coordinate_count}"), weights]


def memory(plan: Plan, run: Plan) -> Rows:
    """Bytes of what grows with the data, the paths or the draws, and of the process at its peak."""
    rows = [
        (part.name, byte_text(part.bytes) + (f" × {part.copies}" if part.copies > 1 else ""))
        for part in plan.arrays
    ]
    most = draws_kept_whole(run.recipe, run.sizes)
    more, less = (draw_bytes(run.recipe, run.sizes, draws) for draws in (most + 1000, most))
    peak = f"{byte_text(peak_bytes(plan.arrays))} of {byte_text(available_bytes())}"
    return [*rows, ("1,000 more draws a chain", byte_text(more - less)), ("all, at the peak", peak)]


def points_in_words(plan: Plan) -> Rows:
    """Weights of every point, and what is done there."""
    rows = []
    # Points with data of their own are chosen for when those are made.
    own_data = any(key.startswith(OF_THE_DATA) for key in plan.recipe.sweep)
    for run in plan.points:
        network, settings = run.asked.network, run.asked.sampler
        reason = "attention is sampled" if run.sizes.logits else "outside the theory"
        what = "theory and sampling" if run.is_solved else f"sampling ({reason})"
        alone = "theory only" if run.is_solved else "nothing"
        if not settings.spaces_for(network, run.asked.fits_theory):
            limit = max(settings.largest_width[space] for space in settings.spaces)
            what = f"{alone} (wider than {limit})"
        elif not run.is_sampled:
            what = f"{alone} (not in sampler.at_widths)"
        elif settings.points == "selected":
            what = "theory, and sampling if its temperature is chosen"
        left_open = AUTO in (settings.space, settings.algorithm)
        if left_open and run.method is not None and not own_data:
            what += f" ({run.method.space}, {run.method.algorithm})"
        rows.append((run.label, f"{run.sizes.weight_count:,} weights; {what}"))
    return rows
