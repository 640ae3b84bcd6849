"""Where a sweep stands while its points are done one by one, as by a job array."""

import pytest

from sampler.errors import ExitCode
from sampler.presentation.status import status_text
from sampler.recipes.recipe import load_recipe, settings_that_fix_draws
from sampler.storage.lock import locked
from sampler.storage.manifest import claim_directory, determining, finish_command
from sampler.storage.run_directory import point_directory
from sampler.tasks.make import build_task
from tests.commands import TINY


@pytest.fixture
def sweep(tmp_path):
    """Directory of a sweep of two points, and their recipes by label."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    recipe = load_recipe(path, ["sweep.sampler.seed=[0, 1]"])
    directory = tmp_path / "sweep"
    claim(directory, recipe)
    return directory, dict(recipe.points())


def claim(directory, recipe) -> None:
    settings, data = settings_that_fix_draws(recipe), build_task(recipe).identity
    claim_directory(directory, recipe, "run", determining(settings, data))


def first_line(directory) -> str:
    return status_text(directory).splitlines()[0].removeprefix(f"{directory}: ")


def test_points_of_an_array_are_counted_until_they_are_gathered(sweep):
    directory, points = sweep
    go_on = f"go on with: resume {directory}"
    assert first_line(directory) == f"2 points, 2 not begun; {go_on}"
    for count, (label, recipe) in enumerate(points.items(), start=1):
        point = point_directory(directory, label)
        claim(point, recipe)
        with locked(point):
            assert ", 1 running" in first_line(directory)
            assert "resume" not in first_line(directory)
        assert "1 interrupted" in first_line(directory)
        finish_command(point, "run", ExitCode.OK)
        assert first_line(directory).startswith(f"2 points, {count} finished")
    gather = f"gather them with: sweep {directory}/recipe.toml --out {directory}"
    assert first_line(directory) == f"2 points, 2 finished; {gather}"
    finish_command(directory, "run", ExitCode.OK)
    assert first_line(directory) == "`run` finished with exit code 0"
