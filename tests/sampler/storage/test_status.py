"""Where a sweep stands while its points are done one by one, as by a job array."""

import numpy as np
import pytest

from sampler.errors import ExitCode
from sampler.settings.recipe import load_recipe, settings_that_fix_draws
from sampler.storage.checkpoint import write_sealed
from sampler.storage.lock import locked
from sampler.storage.manifest import claim_directory, determining, finish_command
from sampler.storage.run_directory import CHECKPOINT_FOLDER, point_directory
from sampler.storage.status import FINISHED, INTERRUPTED, NOT_BEGUN, RUNNING, state_of
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


def words(directory) -> list[str]:
    """Where the sweep stands, and its points."""
    state = state_of(directory)
    return [state.word, *(point.word for point in state.points.values())]


def test_points_of_an_array_are_counted_until_they_are_gathered(sweep):
    directory, points = sweep
    found = [INTERRUPTED, NOT_BEGUN, NOT_BEGUN]
    assert words(directory) == found
    for place, (label, recipe) in enumerate(points.items(), start=1):
        point = point_directory(directory, label)
        claim(point, recipe)
        with locked(point):
            found[place] = RUNNING
            assert words(directory) == found
        found[place] = INTERRUPTED
        assert words(directory) == found
        finish_command(point, "run", ExitCode.OK)
        found[place] = FINISHED
        assert words(directory) == found
    finish_command(directory, "run", ExitCode.OK)
    assert words(directory) == 3 * [FINISHED]


def test_finished_repetitions_are_counted_without_pilots_and_unfinished_ones(tmp_path):
    path, directory = tmp_path / "tiny.toml", tmp_path / "run"
    path.write_text(TINY)
    claim(directory, load_recipe(path))
    folder = directory / CHECKPOINT_FOLDER
    folder.mkdir(exist_ok=True)
    powers = {"modes-000": 1.0, "modes-001": 1.0, "modes-002": 0.3, "modes-pilot-000": 1.0,
              "prior-000": 1.0}  # fmt: skip
    for name, power in powers.items():
        write_sealed(folder / f"repetition-{name}.bin", {"power": power}, {"a": np.zeros(2)})
    (folder / "repetition-prior-001.bin").write_bytes(b"cut off")
    assert state_of(directory).repetitions == {"modes": 2, "prior": 1}
