"""Which stages of a run are done is said by its files: of what they were made, and their worth."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sampler.data.task import Task
from sampler.errors import ExitCode
from sampler.jobs.done import finished_code, is_done
from sampler.jobs.plan import make_plan
from sampler.settings.recipe import load_recipe
from sampler.storage.fingerprint import FINGERPRINT, read_stamp
from sampler.storage.manifest import read_manifest
from sampler.storage.result_files import read_comparison, read_draws, read_table, write_result
from tests import FIXTURES

STAGES = ["solve", "sample", "compare"]


@pytest.fixture
def run(tmp_path) -> Path:
    """A finished run, whose draws failed their diagnostics."""
    return Path(shutil.copytree(FIXTURES / "finished", tmp_path / "run"))


def planned(run: Path, *settings: str, command: str = "run"):
    return make_plan(command, load_recipe(run / "recipe.toml", settings), run)


def done(plan) -> list[str]:
    return [stage for stage in STAGES if is_done(plan, stage)]


def code(plan) -> ExitCode | None:
    return finished_code(plan, read_manifest(plan.directory))


def with_stamp(run: Path, file: str, **changes) -> None:
    tree = read_draws(run) if file == "draws.nc" else read_comparison(run)
    tree.attrs[FINGERPRINT] = json.dumps(read_stamp(run / file) | changes)
    write_result(run, file, tree)


def with_verdict(run: Path, verdict: str) -> None:
    comparison = read_comparison(run)
    comparison.attrs["diagnostics"] = json.dumps({"verdict": verdict})
    write_result(run, "comparison.nc", comparison)


def test_of_a_finished_run_all_is_done_and_its_code_is_that_of_its_files(run):
    assert done(planned(run)) == STAGES
    assert code(planned(run)) == ExitCode.DIAGNOSTICS_FAILED
    assert code(planned(run, command="solve")) == ExitCode.OK
    theory = read_table(run, "theory.nc")
    theory.attrs["converged"] = 0
    write_result(run, "theory.nc", theory)
    assert code(planned(run)) == code(planned(run, command="solve")) == ExitCode.NOT_CONVERGED
    with_verdict(run, "pass")
    assert code(planned(run, command="sample")) == ExitCode.OK


@pytest.mark.parametrize(
    ("setting", "left"),
    [
        ("network.widths=4", []),
        ("sampler.seed=1", []),
        ("task.seed=1", []),
        ("sampler.draws=41", ["solve"]),
        ("sampler.until=trusted", ["solve"]),
        ("sampler.max_draws=30000", STAGES),
    ],
)
def test_other_settings_undo_what_was_made_of_them(setting, left, run):
    """Numbers of draws undo no theory; what no draw depends on undoes nothing."""
    changed = replace(make_plan("run", load_recipe(run / "recipe.toml", [setting])), directory=run)
    assert done(changed) == left
    assert (code(changed) is None) == (left != STAGES)


@pytest.mark.parametrize(("change", "left"), [(1e-14, STAGES), (1e-9, [])])
def test_data_that_another_processor_rounds_differently_undo_nothing(change, left, run, rng):
    plan = planned(run)
    splits = [
        replace(split, inputs=split.inputs * (1 + change * rng.standard_normal(split.inputs.shape)))
        for split in (plan.task.train, plan.task.test)
    ]
    moved = Task.of(*splits)
    assert moved.identity["sha256"] != plan.task.identity["sha256"]
    assert done(replace(plan, task=moved)) == left


@pytest.mark.parametrize(
    ("file", "left"),
    [
        ("theory.nc", ["sample", "compare"]),
        ("draws.nc", ["solve"]),
        ("comparison.nc", ["solve", "sample"]),
        ("comparison.json", ["solve", "sample"]),
    ],
)
def test_what_lacks_a_file_is_not_finished(file, left, run):
    (run / file).unlink()
    assert done(planned(run)) == left
    assert code(planned(run)) is None


def test_a_comparison_is_of_the_draws_that_are_there_and_of_the_theory_beside_them(run):
    with_stamp(run, "draws.nc", made=50)
    assert done(planned(run)) == ["solve", "sample"]
    with_stamp(run, "comparison.nc", made=50)
    assert done(planned(run)) == STAGES
    with_stamp(run, "comparison.nc", with_theory=False)
    assert done(planned(run)) == ["solve", "sample"]
    assert is_done(planned(run, command="sample"), "compare")


@pytest.mark.parametrize("verdict", ["pass", "fail"])
def test_draws_that_a_limit_ended_go_on_where_it_is_raised_unless_they_are_trusted(verdict, run):
    draws = read_draws(run)
    draws["sample_stats"].attrs["ended_by"] = "max_draws"
    write_result(run, "draws.nc", draws)
    with_verdict(run, verdict)
    for limit, same in ((20_000, True), (10_000, True), (20_001, verdict == "pass")):
        assert is_done(planned(run, f"sampler.max_draws={limit}"), "sample") == same


def test_what_was_killed_before_its_end_is_not_finished(run):
    """As among its figures, which are no stage; another command may have come to its end there."""
    manifest = json.loads((run / "manifest.json").read_text())
    for outcome in (None, {"command": "solve", "code": 0}):
        (run / "manifest.json").write_text(json.dumps(manifest | {"outcome": outcome}))
        assert code(planned(run)) is None
    assert code(planned(run, command="solve")) == ExitCode.OK
