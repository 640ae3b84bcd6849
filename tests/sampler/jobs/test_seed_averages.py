"""Means and standard errors over the seeds of a sweep."""

import csv
import math

import numpy as np
import pytest

from sampler.errors import ExitCode
from sampler.jobs.sweep_tables import seed_averages
from tests.commands import TINY, in_process, settings


def test_rows_are_means_over_seeds_with_their_errors():
    points = [
        {"network.widths": width, "task.seed": seed, "sampler.seed": other}
        for width in (3, 4)
        for seed in (0, 1)
        for other in (0, 1)
    ]
    values = np.array([1.0, 2.0, 3.0, np.nan, 5.0, 5.0, 5.0, 5.0])
    rows = seed_averages(points, {"accuracy": values, "absent": np.full(8, np.nan)})
    assert [row["settings"] for row in rows] == ["network.widths=3", "network.widths=4"]
    assert [row["points"] for row in rows] == [4, 4]
    assert rows[0]["accuracy"] == 2.0
    assert math.isclose(rows[0]["accuracy_error"], 1 / math.sqrt(3))
    assert rows[1]["accuracy_error"] == 0.0
    assert rows[0]["absent"] == rows[0]["absent_error"] == ""


@pytest.mark.usefixtures("undrawn")
def test_a_sweep_over_seeds_and_forms_leaves_the_table(tmp_path):
    recipe = tmp_path / "tiny.toml"
    forms = '[{kind = "softmax"}, {kind = "scaled_heads", scale = 2, beta = 0.5}]'
    recipe.write_text(f'{TINY}[sweep]\n"attention.form" = {forms}\n"task.seed" = [0, 1]\n')
    out = tmp_path / "results"
    assert in_process("solve", recipe, "--out", out) == ExitCode.OK
    with (out / "seed_averages.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2
    for row in rows:
        assert row["settings"].startswith("attention.form={kind = ")
        assert row["points"] == "2"
        for name in ("participation_ratio", "off_diagonal_share", "path_alignment"):
            assert 0.0 <= float(row[name]) <= 2.0
        assert float(row["head_distance_matrices"]) > 0.0
    without = tmp_path / "without"
    words = settings("task.seed=0")
    assert in_process("solve", recipe, "--out", without, *words) == ExitCode.OK
    assert not (without / "seed_averages.csv").exists()


def test_plain_softmax_is_the_softmax_form(tmp_path):
    """The default, computed as ever, and the same as a form."""
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(TINY)
    from sampler.recipes.recipe import load_recipe
    from sampler.tasks.make import make_task

    plain = make_task(load_recipe(recipe))
    form = make_task(load_recipe(recipe, ['attention.form={kind="softmax"}']))
    for one, other in zip(plain.train.attention, form.train.attention, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-12)
