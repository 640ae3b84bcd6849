"""The point chosen on the validation split: the rule, its errors, and what it never reads."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.predictors import along_predictors
from sampler.analysis.results import RunResults
from sampler.analysis.selection import (
    CRITERIA,
    EVIDENCE,
    OTHER_DATA,
    Candidate,
    Score,
    choose,
    evidence_score,
    select,
    validation_scores,
)
from sampler.analysis.sweep_dataset import swept_points
from sampler.data.markov_chain import MarkovChainSection
from sampler.errors import ExitCode
from sampler.settings.recipe import load_recipe
from sampler.settings.task_sections import AttentionSection
from sampler.storage.result_files import write_result
from tests.assertions import assert_equal_to_rounding
from tests.commands import in_process as command
from tests.commands import made_once, without_drawing

pytestmark = pytest.mark.usefixtures("undrawn")

DENSITY = "log_predictive_density"
PREDICTORS = {"leading", "next", "infinite", "sampled"}
# Infinite width at its own temperature is one candidate, whatever temperatures are swept.
OWN = "infinite_tuned"

SWEEP = """
name = "temperatures"
[task]
{task}
[network]
widths = 3
[sampler]
evidence = true
[sweep]
"posterior.temperature" = [0.1, 1.0]
"""


def candidate(point, density, accuracy=(1.0, 0.0), mcse=None, data="same"):
    by_example = {DENSITY: np.array(density), "accuracy": np.array(accuracy)}
    errors = {DENSITY: mcse, "accuracy": None}
    scores = {n: Score(values.mean(), errors[n], values) for n, values in by_example.items()}
    return Candidate(point, {"key": point}, data, scores)


def test_the_largest_value_is_chosen_and_the_second_is_the_runner_up():
    candidates = [
        candidate("a", [-3.0, -2.0]),
        candidate("b", [-1.0, -1.0]),
        candidate("c", [-2.0] * 2),
    ]
    choice = choose(candidates, DENSITY)
    assert (choice["point"], choice["runner_up"]["point"]) == ("b", "c")
    assert choice["settings"] == {"key": "b"}
    assert choice["runner_up"]["difference"] == 1.0
    assert "mcse" not in choice


def test_equal_accuracies_are_told_apart_by_the_density_and_else_by_their_order():
    candidates = [candidate("a", [-3.0, -2.0]), candidate("b", [-1.0, -1.0])]
    assert choose(candidates, "accuracy")["point"] == "b"
    equal = [candidate("a", [-1.0, 0.0]), candidate("b", [-1.0, 0.0])]
    assert choose(equal, DENSITY)["point"] == "a"


def test_points_with_the_same_examples_are_compared_example_by_example():
    """Examples differ by ten, points by 0.1 ± 0.02: only paired examples show it."""
    common = np.array([-10.0, 0.0, 10.0, 3.0])
    better = common + 0.1 + np.array([0.03, -0.03, 0.04, -0.04])
    paired = choose([candidate("a", common), candidate("b", better)], DENSITY)["runner_up"]
    expected = np.std([0.13, 0.07, 0.14, 0.06], ddof=1) / 2
    assert_equal_to_rounding(paired["error_of_difference"], expected, operations=100, scale=10)
    assert not paired["within_errors"]
    other = candidate("a", common, data="other")
    apart = choose([other, candidate("b", better)], DENSITY)["runner_up"]
    expected = np.hypot(np.std(common, ddof=1) / 2, np.std(better, ddof=1) / 2)
    assert_equal_to_rounding(apart["error_of_difference"], expected, operations=100)
    assert apart["within_errors"]


def test_monte_carlo_errors_add_to_the_error_of_the_difference():
    first, second = candidate("a", [-1.0] * 3, mcse=3.0), candidate("b", [-2.0] * 3, mcse=4.0)
    choice = choose([first, second], DENSITY)
    assert choice["runner_up"]["error_of_difference"] == 5.0
    assert choice["runner_up"]["within_errors"]
    assert choice["mcse"] == 3.0


@pytest.mark.parametrize("place", [0, 2])
def test_a_score_that_is_no_number_is_never_chosen(place):
    """Nothing is larger than NaN, wherever it stands."""
    candidates = [candidate("a", [-2.0, -2.0]), candidate("b", [-1.0, -1.0])]
    candidates.insert(place, candidate("none", [np.nan, 0.0]))
    choice = choose(candidates, DENSITY)
    assert (choice["point"], choice["runner_up"]["point"]) == ("b", "a")
    # Of equal accuracies, the density tells nothing apart where one of them has none.
    assert choose(candidates, "accuracy")["point"] == candidates[0].point
    assert choose([candidates[place]], DENSITY) is None


def read(path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    """A small task in three splits, as a user would store it."""
    section = MarkovChainSection(
        kind="markov_chain", examples_train=8, examples_test=40, examples_validation=20,
        tokens=4, features=6,
    )  # fmt: skip
    task = section.make(AttentionSection(heads=(("good", "uniform"), ("uniform",))))
    stored = {}
    for name, split in (
        ("train", task.train),
        ("test", task.test),
        ("validation", task.validation),
    ):
        stored |= {f"inputs_{name}": split.inputs, f"labels_{name}": split.labels}
        for layer, matrices in enumerate(split.attention, start=1):
            stored[f"attention_{name}_{layer}"] = matrices
    return stored


def run_sweep(folder, arrays, stage="run"):
    """Run a sweep over temperatures with these arrays, or solve it alone; its directory."""
    folder.mkdir()
    np.savez(folder / "arrays.npz", **arrays)
    recipe = folder / "recipe.toml"
    recipe.write_text(SWEEP.format(task='kind = "arrays"\npath = "arrays.npz"'), encoding="utf-8")
    with without_drawing():
        code = command(stage, recipe, "--out", folder / "results")
    assert code == ExitCode.OK
    return folder / "results"


@pytest.fixture(scope="module")
def finished(arrays, tmp_path_factory):
    def make(folder: Path) -> str:
        return run_sweep(folder / "run", arrays).name

    folder, name = made_once(tmp_path_factory, "sweep_over_temperatures", make)
    return folder / "run" / name


def left_out_of(finished, name) -> dict[str, str]:
    """Points whose next order is not to be trusted, which is chosen by nowhere else."""
    if name != "next":
        return {}
    runs = {p.label: p.run for p in swept_points(finished, load_recipe(finished / "recipe.toml"))}
    return {
        label: run.theory.attrs["next_order_explanation"]
        for label, run in runs.items()
        if run.theory.attrs["next_order_status"] != "fine"
    }


@pytest.mark.heavy
def test_a_sweep_over_temperatures_chooses_one_for_every_predictor(finished):
    selection = read(finished / "selection.json")
    points = dict(load_recipe(finished / "recipe.toml").points())
    assert set(selection) == {*PREDICTORS, OWN, EVIDENCE}
    assert len(left_out_of(finished, "next")) == 1
    for name in PREDICTORS:
        found = selection[name]
        left_out = left_out_of(finished, name)
        assert found["candidates"] == 2 - len(left_out)
        assert found["left_out"] == left_out
        for criterion in CRITERIA:
            chosen = found[criterion]
            temperature = points[chosen["point"]].posterior.temperature
            assert chosen["settings"] == {"posterior.temperature": temperature}
            assert ("mcse" in chosen) == (name == "sampled")
            values = {}
            for label in points.keys() - left_out:
                summary = read(finished / label / "comparison.json")["summary"]
                values[label] = summary[f"validation_{criterion}"][name]["value"]
            assert values[chosen["point"]] == max(values.values()) == chosen["value"]
            summary = read(finished / chosen["point"] / "comparison.json")["summary"]
            assert chosen["test_accuracy"]["value"] == summary["accuracy"][name]["value"]
    first = read(finished / next(iter(points)) / "comparison.json")["summary"]
    with xr.open_dataset(finished / next(iter(points)) / "theory.nc") as theory:
        temperature = float(theory["temperature"].sel(predictor=OWN))
    for criterion in CRITERIA:
        chosen = selection[OWN][criterion]
        assert chosen["settings"] == {"posterior.temperature": temperature}
        assert chosen["value"] == first[f"validation_{criterion}"][OWN]["value"]
        assert chosen["runner_up"] is None
        assert chosen["test_accuracy"]["value"] == first["accuracy"][OWN]["value"]
    # Of all temperatures, those of the sweep among them, its own has the best density.
    best = selection[OWN][DENSITY]["value"]
    assert best >= selection["infinite"][DENSITY]["value"]


@pytest.mark.heavy
def test_the_largest_evidence_is_chosen_on_the_training_data(finished):
    selection = read(finished / "selection.json")[EVIDENCE]
    points = [label for label, _ in load_recipe(finished / "recipe.toml").points()]
    assert set(selection) == {*PREDICTORS, OWN}
    assert selection[OWN]["candidates"] == 1
    for name in PREDICTORS:
        found = selection[name]
        left_out = left_out_of(finished, name)
        labels = [label for label in points if label not in left_out]
        assert (found["candidates"], found["left_out"]) == (len(labels), left_out)
        values = {}
        for label in labels:
            evidence = read(finished / label / "comparison.json")["summary"][EVIDENCE]
            values[label] = evidence[name]["value"]
        chosen = found[EVIDENCE]
        assert values[chosen["point"]] == max(values.values()) == chosen["value"]
        if len(labels) == 1:
            assert chosen["runner_up"] is None
            continue
        error = chosen["runner_up"]["error_of_difference"]
        if name == "sampled":
            both = [read(finished / label / "comparison.json")["summary"][EVIDENCE][name]
                    for label in labels]  # fmt: skip
            assert error == pytest.approx(np.hypot(*(one["error"] for one in both)))
        else:
            assert error == 0.0


@pytest.mark.parametrize(
    ("attributes", "density", "evidence", "reasons"),
    [
        (
            {"next_order_status": "large", "next_order_explanation": "fluctuates by 0.9"},
            -1.0,
            -2.0,
            ("fluctuates by 0.9", "fluctuates by 0.9"),
        ),
        (
            {"next_order_status": "fine"},
            np.nan,
            np.nan,
            (
                "predictive variance not positive at next order",
                "not computed of so many order parameters",
            ),
        ),
        ({"next_order_status": "fine"}, -1.0, -2.0, (None, None)),
    ],
    ids=["large", "not defined", "fine"],
)
def test_a_next_order_that_is_not_to_be_used_has_its_reason(
    attributes, density, evidence, reasons, tmp_path
):
    columns = {
        "predictor_mean": (("test_example",), np.ones(3)),
        "predictor_variance": (("test_example",), np.ones(3)),
        f"validation_{DENSITY}": ((), np.mean([density, -3.0])),
        f"validation_{DENSITY}_by_example": (("validation_example",), [density, -3.0]),
        "log_evidence": ((), evidence),
    }
    table = along_predictors({"next": columns}).assign_attrs(attributes)
    write_result(tmp_path, "theory.nc", table)
    run = RunResults(tmp_path)
    received = validation_scores(run, "next"), evidence_score(run, "next")
    if reasons == (None, None):
        assert received[0][DENSITY].value == -2.0
        assert received[1] == {EVIDENCE: Score(-2.0)}
    else:
        assert received == reasons
    empty = RunResults(tmp_path / "empty")
    assert validation_scores(empty, "next") == "not solved"


@pytest.mark.heavy
def test_evidence_of_other_labels_is_not_compared(finished):
    first, second = swept_points(finished, load_recipe(finished / "recipe.toml"))
    task = second.recipe.task.model_copy(update={"path": "b.npz"})
    foreign = replace(second, recipe=second.recipe.model_copy(update={"task": task}))
    found = select("leading", [first, foreign], EVIDENCE)
    assert found["left_out"] == {second.label: OTHER_DATA}
    assert found[EVIDENCE]["point"] == first.label


@pytest.mark.heavy
def test_without_a_validation_split_the_evidence_chooses(tmp_path):
    recipe = tmp_path / "recipe.toml"
    task = 'kind = "markov_chain"\nexamples_train = 4\nexamples_test = 4\ntokens = 3\nfeatures = 4'
    recipe.write_text(SWEEP.format(task=task), encoding="utf-8")
    assert command("solve", recipe, "--out", tmp_path / "results") == ExitCode.OK
    found = read(tmp_path / "results" / "selection.json")
    assert all(found[name]["candidates"] == 0 for name in PREDICTORS)
    # Without validation there is the evidence of the training data: here of infinite width alone.
    assert found[EVIDENCE]["infinite"]["candidates"] == 2
    narrow = set(found[EVIDENCE]["leading"]["left_out"].values())
    assert narrow == {"no saddle point, or a narrow layer"}


@pytest.mark.heavy
def test_test_labels_have_no_part_in_the_choice(finished, arrays, tmp_path):
    changed = arrays | {"labels_test": -arrays["labels_test"]}
    other = run_sweep(tmp_path / "run", changed, "solve")
    received, expected = read(other / "selection.json"), read(finished / "selection.json")
    for each in (received, expected, received[EVIDENCE], expected[EVIDENCE]):
        each.pop("sampled")
    for name in (*(PREDICTORS - {"sampled"}), OWN):
        for criterion in CRITERIA:
            tested = [s[name][criterion].pop("test_accuracy") for s in (received, expected)]
            # what was right is wrong now
            assert tested[0]["value"] == pytest.approx(1 - tested[1]["value"])
            assert tested[0]["value"] != tested[1]["value"] or name == OWN
    assert received == expected


@pytest.mark.heavy
def test_points_that_cannot_be_trusted_are_left_out_by_name(tmp_path):
    recipe = tmp_path / "recipe.toml"
    task = (
        'kind = "markov_chain"\nexamples_train = 4\nexamples_test = 4\ntokens = 3\nfeatures = 4\n'
        "examples_validation = 4"
    )
    recipe.write_text(SWEEP.format(task=task), encoding="utf-8")
    override = [
        "--set",
        "theory.max_steps=1",
        "theory.starts=1",
        "sweep.posterior.temperature=[0.01]",
    ]
    code = command("solve", recipe, "--out", tmp_path / "results", *override)
    assert code == ExitCode.NOT_CONVERGED
    found = read(tmp_path / "results" / "selection.json")
    label = "posterior.temperature=0.01"
    assert found["leading"]["left_out"] == {label: "saddle point not converged"}
    assert found["leading"][DENSITY] is None
    assert found["infinite"][DENSITY]["point"] == label
    assert found["sampled"]["left_out"] == {label: "not sampled"}


@pytest.mark.heavy
def test_only_the_chosen_temperature_of_each_width_is_sampled(arrays, tmp_path):
    np.savez(tmp_path / "arrays.npz", **arrays)
    text = SWEEP.format(task='kind = "arrays"\npath = "arrays.npz"')
    text = text.replace("evidence = true", 'draws = 50\npoints = "selected"\nat_widths = [3]')
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(text + '"network.widths" = [3, 4]\n', encoding="utf-8")
    out = tmp_path / "results"
    assert command("run", recipe, "--out", out) in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED)
    groups = read(out / "selection.json")["by_temperature"]
    assert [group["settings"] for group in groups] == [{"network.widths": n} for n in (3, 4)]
    for group in groups:
        labels = [label for label, _ in load_recipe(out / "recipe.toml").points()
                  if label.endswith(f"widths={group['settings']['network.widths']}")]  # fmt: skip
        assert group["leading"]["candidates"] == len(labels) == 2
        assert group["leading"]["accuracy"]["point"] in labels
    sampled = {path.parent.name for path in out.glob("*/draws.nc")}
    assert sampled == {groups[0]["leading"]["accuracy"]["point"]}
    for option in (["--slurm"], ["--point", 0]):
        assert command("sweep", recipe, "--out", tmp_path / "other", *option) == ExitCode.BAD_INPUT
    # A point that was not chosen is reproduced by its theory alone.
    (not_chosen,) = {path.parent for path in out.glob("*widths=3/theory.nc")} - {
        out / name for name in sampled
    }
    assert command("reproduce", not_chosen) == ExitCode.OK
    assert not (not_chosen / "reproduction" / "draws.nc").exists()


@pytest.mark.heavy
def test_a_choice_that_cannot_be_made_is_refused(tmp_path, capsys):
    recipe = tmp_path / "recipe.toml"
    task = 'kind = "markov_chain"\nexamples_train = 4\nexamples_test = 4\ntokens = 3\nfeatures = 4'
    text = SWEEP.format(task=task).replace("evidence = true", 'draws = 50\npoints = "selected"')
    recipe.write_text(text, encoding="utf-8")
    assert command("run", recipe, "--out", tmp_path / "results") == ExitCode.BAD_INPUT
    assert "sampler.points = " in capsys.readouterr().err
