"""What a recipe asks of the order parameters that has a limit in their number."""

from sampler.posterior.hessian_limit import coordinate_count, refuse_without_hessian
from sampler.recipes.recipe import Recipe
from sampler.tasks.task import Task


def refuse_too_many_coordinates(recipe: Recipe, task: Task) -> None:
    """Raise InputError where importance draws or the evidence would need too large a Hessian."""
    for _, point in recipe.points():
        settings = point.sampler
        if not point.network.fits_theory or point.network.heads != recipe.network.heads:
            continue
        count = coordinate_count(task.heads, point.network.layer_widths(task.layers), task.outputs)
        if settings.algorithm == "importance":
            refuse_without_hessian("sampler.algorithm", settings.algorithm, count)
        if settings.evidence:
            refuse_without_hessian("sampler.evidence", settings.evidence, count)
