"""Beginning a command on a recipe, or going on with it, up to where JAX is needed."""

from pathlib import Path

from sampler.errors import ExitCode, InputError
from sampler.jobs.coordinates import refuse_too_many_coordinates
from sampler.jobs.interruption import Interruption
from sampler.numerics import use_float64
from sampler.recipes.network_fit import refuse_without_theory
from sampler.recipes.recipe import Recipe
from sampler.storage.claim import claim_directory
from sampler.storage.fingerprint import fingerprint
from sampler.storage.lock import locked, remove_lock_of_lost_host
from sampler.tasks.make import make_task


def start_run(
    command: str, recipe: Recipe, directory: Path, interruption: Interruption, alone: bool = False
) -> ExitCode:
    """Make the data, claim the directory, and do what is left of the command.

    `alone` says that no other process can be at work there: a lock left behind on another host is
    then that of a lost process.
    """
    if recipe.sweep and recipe.sampler.points == "selected" and command == "sample":
        raise InputError("sampler.points", "selected", "use `run`: theory chooses what is sampled")
    if command == "solve":
        for _, point in recipe.points():
            refuse_without_theory(point.network, "use `run` or `sample`")
    task = make_task(recipe)
    if command != "solve":
        refuse_too_many_coordinates(recipe, task)
    claim_directory(directory, recipe, command, fingerprint(recipe, task.checksum))
    if alone:
        remove_lock_of_lost_host(directory)
    with locked(directory):
        use_float64()
        from sampler.jobs.run import work

        return work(command, recipe, task, directory, interruption)
