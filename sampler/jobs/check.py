"""The text of `check`: the plan of a recipe, without computing anything long."""

from textwrap import indent

from sampler.analysis.text import section, terminal_width, wrapped
from sampler.data.task import Task
from sampler.jobs.memory import available_bytes, byte_text, peak_bytes
from sampler.jobs.plan import Plan, make_plan
from sampler.settings.recipe import Recipe, TrainingRecipe
from sampler.settings.section import meaning
from sampler.settings.types import AUTO
from theory.size_limits import HESSIAN_COORDINATES, next_order_fits

# Paths that are named in one line.
MOST_NAMED = 16


def check_recipe(recipe: Recipe | TrainingRecipe) -> str:
    """The text of `check`. Raises InputError for data or settings that cannot be used."""
    if isinstance(recipe, TrainingRecipe):
        from sampler.jobs.check_training import describe_training
        from sampler.jobs.train import read_splits

        return describe_training(recipe, read_splits(recipe))
    plan = make_plan("run", recipe)
    first = (plan.points or (plan,))[0]
    parts = [
        f"{recipe.name} ({recipe.hash8}): recipe and data are valid",
        *(wrapped(f"Warning: {text}", further="  ") for text in plan.task.concerns),
        section("Sizes", sizes_in_words(plan.task, first)),
        f"Settings, defaults included\n{indent(settings_in_force(recipe, first), '  ')}",
        section("Memory of the largest arrays", memory_in_words(plan)),
    ]
    if recipe.sweep:
        parts.append(section("Points of the sweep", points_in_words(plan)))
    return "\n\n".join(parts)


def settings_in_force(recipe: Recipe, plan: Plan) -> str:
    """The resolved recipe, and what holds for the settings that it leaves open."""
    left_open = []
    if plan.method is not None and AUTO in (recipe.sampler.space, recipe.sampler.algorithm):
        left_open.append(f"# sampler.space and sampler.algorithm: {plan.method.explain()}")
    for name, key in (("network", "heads"), ("theory", "tolerance")):
        part = getattr(recipe, name)
        if getattr(part, key) is None:
            left_open.append(f"# {name}.{key} is not set: {meaning(type(part), key)}")
    if recipe.sampler.warmup is None and plan.method is not None:
        steps = plan.recipe.sampler.warmup_steps
        left_open.append(f"# sampler.warmup is not set: {steps} steps, enough for these chains")
    lines = [wrapped(line, terminal_width() - 2, further="#   ") for line in left_open]
    return "\n".join([recipe.to_toml().strip(), *([""] if lines else []), *lines])


def sizes_in_words(task: Task, plan: Plan) -> list[tuple[str, str]]:
    sizes, network, recipe = plan.sizes, plan.sizes.architecture, plan.recipe
    examples = f"{task.train.examples}"
    if sizes.examples < task.train.examples:
        examples = f"{task.train.examples:,}, for which {sizes.examples:,} rows stand, exactly"
    labels = "" if task.test.labels is not None else " (no labels: no accuracy)"
    validation = "none (a sweep selects no point)"
    if task.validation is not None:
        validation = f"{task.validation.examples}"
    tokens = "none: attended inputs are given (no distances between heads)"
    if task.train.tokens is not None:
        tokens = " and ".join(map(str, sorted({split.tokens for split in task.splits})))
    paths = "none: outside the theory, sampled token by token"
    if recipe.has_theory or task.learned is not None:
        more = ", …" if len(task.path_names) > MOST_NAMED else ""
        paths = f"{len(task.path_names):,}: {', '.join(task.path_names[:MOST_NAMED])}{more}"
    infinite = recipe.network.is_infinite
    rows = [
        ("training examples P", examples),
        ("test examples", f"{task.test.examples}{labels}"),
        ("validation examples", validation),
        ("tokens", tokens),
        ("channels D", f"{network.channels}"),
        ("outputs O", f"{network.outputs}"),
        ("attention layers L", f"{network.layers}"),
        *(("from a model", line) for line in task.origin),
        ("heads per layer", "; ".join(", ".join(names) for names in task.head_names)),
        ("attention paths Π", paths),
        ("widths N_1 … N_L, N_a", "infinite" if infinite else ", ".join(map(str, network.widths))),
        ("variances σ0² … σL², σa²", ", ".join(map(str, network.variances))),
    ]
    if task.learned is not None:
        form = task.learned.form.replace("_", " ")
        rows.append(("logit weights of learned heads", f"{sizes.logits:,} ({form})"))
    if recipe.fits_theory and not infinite:
        rows.append(("parameters of U_1 … U_L, U_a", f"{network.coordinate_count}"))
    weights = f"{sizes.weight_count:,}"
    rows.append(("weights", "none: integrated out at infinite width" if infinite else weights))
    return rows + theory_in_words(task, plan)


def theory_in_words(task: Task, plan: Plan) -> list[tuple[str, str]]:
    """Which theory there is, where it is not the whole one that is asked for."""
    recipe, network = plan.recipe, plan.sizes.architecture
    if recipe.has_value_theories:
        size = (task.train.examples * task.train.tokens) ** 2
        return [("theory", f"infinite width; (P T)² = {size:.1e} covariances a layer")]
    asked = recipe.has_theory and recipe.theory.next_order and not recipe.network.is_infinite
    if not asked or next_order_fits(network):
        return []
    reason = f"{network.path_count:,} paths of {network.channels:,} channels"
    if network.bartlett_coordinate_count > HESSIAN_COORDINATES:
        count = network.bartlett_coordinate_count
        reason = f"{count:,} coordinates, {HESSIAN_COORDINATES:,} at most"
    return [("next order in 1/N", f"none: {reason}; keep fewer heads, or fewer channels")]


def memory_in_words(plan: Plan) -> list[tuple[str, str]]:
    """Bytes of what grows with the data, the paths or the draws, and of the process at its peak."""
    rows = [
        (part.name, byte_text(part.bytes) + (f" × {part.copies}" if part.copies > 1 else ""))
        for part in plan.arrays
    ]
    peak = f"{byte_text(peak_bytes(plan.arrays))} of {byte_text(available_bytes())}"
    return [*rows, ("all, at the peak", peak)]


def points_in_words(sweep: Plan) -> list[tuple[str, str]]:
    """Weights of every point, and what is done there."""
    rows = []
    for plan in sweep.points:
        settings = plan.asked.sampler
        reason = "attention is sampled" if plan.sizes.logits else "outside the theory"
        what = "theory and sampling" if plan.is_solved else f"sampling ({reason})"
        if settings.points == "selected":
            what = "theory, and sampling if its temperature is chosen"
        left_open = AUTO in (settings.space, settings.algorithm)
        if left_open and plan.method is not None:
            what += f" ({plan.method.space}, {plan.method.algorithm})"
        rows.append((plan.label, f"{plan.sizes.weight_count:,} weights; {what}"))
    return rows
