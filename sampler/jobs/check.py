"""The text of `check`: sizes, settings in force, space, algorithm and memory."""

from pathlib import Path
from textwrap import indent

from sampler.analysis.text import section, wrapped
from sampler.data.task import Task
from sampler.jobs.memory import Part, available_bytes, byte_text, peak_bytes, require_memory
from sampler.jobs.plan import Plan, make_plan
from sampler.settings.recipe import Recipe, TrainingRecipe
from theory.size_limits import HESSIAN_COORDINATES, next_order_fits

# Paths that are named in one line, and arrays whose memory is told.
MOST_NAMED, MOST_ARRAYS = 16, 4
Rows = list[tuple[str, str]]


def check_recipe(recipe: Recipe | TrainingRecipe) -> str:
    """The text of `check`. Raises InputError for data or settings that cannot be used."""
    parts = [f"{recipe.name} ({recipe.hash8}): recipe and data are valid"]
    settings = f"Settings, defaults included\n{indent(settings_in_words(recipe), '  ')}"
    if isinstance(recipe, TrainingRecipe):
        from sampler.jobs.check_training import sizes_of_training

        sizes, arrays = sizes_of_training(recipe, recipe.task.read(recipe.training).sizes)
        memory = section("Memory", memory_in_words(require_memory(arrays)))
        return "\n\n".join([*parts, section("Sizes", sizes), settings, memory])
    plan = make_plan("run", recipe)
    parts += [wrapped(f"Warning: {text}", further="  ") for text in plan.task.concerns]
    sizes = sizes_in_words(plan.task, (plan.points or (plan,))[0])
    parts += [section("Sizes", sizes), settings]
    if plan.method is not None:
        parts.append(section("Sampling", method_in_words(plan)))
    if plan.points:
        parts.append(section("Points of the sweep", [point_in_words(p) for p in plan.points]))
    return "\n\n".join([*parts, section("Memory", memory_in_words(plan.arrays))])


def settings_in_words(recipe: Recipe | TrainingRecipe) -> str:
    """Settings in force as TOML; of arrays in memory the name of the file that a run will write."""
    text = recipe.to_toml().strip()
    if file := recipe.task.unwritten:
        text = text.replace(file, Path(file).name)
    return text


def sizes_in_words(task: Task, plan: Plan) -> Rows:
    """Sizes of the data and of the network, and parts without a theory."""
    sizes, network, recipe = plan.sizes, plan.sizes.architecture, plan.recipe
    infinite, given = recipe.network.is_infinite, task.train.tokens is None
    tokens = " and ".join(map(str, sorted({split.tokens for split in task.splits} - {None})))
    examples = f"{task.train.examples:,}"
    if sizes.examples < task.train.examples:
        examples += f", replaced by {sizes.examples:,} rows (exact)"
    rows = [
        ("training examples P", examples),
        ("test examples", f"{task.test.examples:,}"),
        ("validation examples", f"{0 if task.validation is None else task.validation.examples:,}"),
        ("tokens", "attended inputs are given" if given else tokens),
        ("channels D", f"{network.channels}"),
        ("outputs O", f"{network.outputs}"),
        ("attention layers L", f"{network.layers}"),
        *(("from a model", line) for line in task.origin),
        ("heads per layer", "; ".join(", ".join(names) for names in task.head_names)),
        ("widths N_1 … N_L, N_a", "infinite" if infinite else ", ".join(map(str, network.widths))),
        ("variances σ0² … σL², σa²", ", ".join(map(str, network.variances))),
    ]
    if recipe.fits_theory:
        more = ", …" if len(task.path_names) > MOST_NAMED else ""
        named = f"{', '.join(task.path_names[:MOST_NAMED])}{more}"
        rows.append(("attention paths Π", f"{len(task.path_names):,}: {named}"))
    if recipe.fits_theory and not infinite:
        rows.append(("parameters of U_1 … U_L, U_a", f"{network.coordinate_count}"))
    if not infinite:
        rows.append(("weights", f"{sizes.weight_count:,}"))
    if task.learned is not None:
        form = task.learned.form.replace("_", " ")
        rows.append(("logit weights of learned heads", f"{sizes.logits:,} ({form})"))
    return rows + missing_theory(plan)


def missing_theory(plan: Plan) -> Rows:
    """Parts of the theory that are missing."""
    recipe, network = plan.recipe, plan.sizes.architecture
    if recipe.has_value_theories:
        return [("theory", "infinite width alone")]
    if not recipe.has_theory:
        return [("theory", "none")]
    if not recipe.theory.next_order or next_order_fits(network):
        return []
    reason = f"{network.path_count:,} paths of {network.channels:,} channels"
    if network.bartlett_coordinate_count > HESSIAN_COORDINATES:
        count = network.bartlett_coordinate_count
        reason = f"{count:,} coordinates, {HESSIAN_COORDINATES:,} at most"
    return [("next order in 1/N", f"none: {reason}; keep fewer heads, or fewer channels")]


def method_in_words(plan: Plan) -> Rows:
    """Space and algorithm, why, and how long the warm-up of chains is."""
    method, sampler = plan.method, plan.recipe.sampler
    rows = [("space", method.space), ("algorithm", method.algorithm), ("chosen", method.reason)]
    is_chain = sampler.algorithm_class.counts.axis == "draw"
    return rows + [("warm-up", f"{sampler.warmup_steps} steps")] * is_chain


def point_in_words(plan: Plan) -> tuple[str, str]:
    """Weights and steps of a point of a sweep."""
    what = "theory and sampling" if plan.is_solved else "sampling"
    if plan.asked.sampler.points == "selected":
        what = "theory, and sampling if its temperature is chosen"
    how = f"{plan.method.space}, {plan.method.algorithm}"
    return plan.label, f"{plan.sizes.weight_count:,} weights; {what} ({how})"


def memory_in_words(arrays: tuple[Part, ...]) -> Rows:
    """Memory of the largest arrays, and of the process at its peak; too much is refused."""
    largest = sorted(arrays, key=Part.held, reverse=True)[:MOST_ARRAYS]
    rows = [(part.name, byte_text(part.held())) for part in largest]
    peak, available = byte_text(peak_bytes(arrays)), byte_text(available_bytes())
    return [*rows, ("all, at the peak", f"{peak} of {available}: fits")]
