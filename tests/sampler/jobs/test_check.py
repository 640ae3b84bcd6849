"""What `check` says of memory."""

import pytest

from sampler.jobs.check import memory
from sampler.jobs.plan import Point, make_plan
from sampler.recipes.recipe import load_recipe

UNITS = {"bytes": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}


def of_draws(draws: int, examples: int) -> tuple[float, float]:
    """Bytes of all draws, and of 1,000 more a chain."""
    settings = [
        f"sampler.draws={draws}",
        f"task.examples_test={examples}",
        "sampler.weight_draws=0",
    ]
    recipe = load_recipe("runs/quickstart.toml", settings)
    plan = make_plan("run", Point(recipe, None))
    rows = dict(memory(plan, plan.runs[0]))
    found = (
        rows[name].split()[:2] for name in (f"draws, {draws:,} a chain", "1,000 more draws a chain")
    )
    return tuple(float(number) * UNITS[unit] for number, unit in found)


@pytest.mark.heavy
def test_growth_with_the_number_of_draws_is_stated():
    first, growth = of_draws(12_000, 1000)
    second, _ = of_draws(17_000, 1000)
    assert second - first == pytest.approx(5 * growth, rel=0.05)
    # All elements of three quantities would take sixty times that.
    assert growth == pytest.approx(4000 * (3 * 10 * 4 + (6 + 8) * 8), rel=0.01)


def test_few_test_examples_are_kept_whole_and_many_draws_of_many_are_not():
    # In single precision; statistics and order parameters in double.
    kept = 4 * 1000 * (3 * 60 * 4 + (6 + 8) * 8)
    assert of_draws(1000, 60)[0] == pytest.approx(kept, rel=0.01)
    # Of more draws every k-th, up to 1 MiB a predictor, and 10 elements of all.
    kept = 3 * (2**20 + 4 * 12_000 * 4 * 10) + 4 * 12_000 * (6 + 8) * 8
    assert of_draws(12_000, 1000)[0] == pytest.approx(kept, rel=0.01)
