"""Repetitions of tempered particles as runs: stored, judged and ended."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.errors import ExitCode
from sampler.jobs.stages import diagnose_stage
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.diagnostics import Diagnostics, QuantityDiagnostics
from sampler.mcmc.stopping import InterimVerdict, RepetitionRule
from sampler.storage.result_files import read_draws
from tests.commands import in_process, made_once, settings
from tests.problems import TEMPERED

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn")]
FEW = ("sampler.algorithm=tempered", "sampler.particles=32", "sampler.space=order_parameters")
COUNTED = (*FEW, "sampler.until=draws")


@pytest.fixture(scope="module")
def run_of_four(recipe_file, tmp_path_factory) -> Path:
    """A finished run of four repetitions."""

    def make(folder: Path) -> int:
        from tests.commands import without_drawing

        with without_drawing():
            return in_process("run", recipe_file, "--out", folder / "run", *settings(*COUNTED))

    folder, code = made_once(tmp_path_factory, "four_repetitions", make)
    assert code in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED)
    return folder / "run"


def test_draws_are_particles_and_chains_repetitions(run_of_four):
    tree = read_draws(run_of_four)
    posterior, statistics = tree["posterior"].to_dataset(), tree["sample_stats"].to_dataset()
    assert dict(posterior.sizes)["chain"] == 4
    assert dict(posterior.sizes)["draw"] == 32
    logs = statistics["log_evidence"].values
    assert (np.ptp(logs, axis=1) == 0).all()
    assert len(np.unique(logs[:, 0])) == 4
    # Repetitions from the prior alone are others, and have an evidence only.
    assert len(np.unique([*logs[:, 0], *statistics["log_evidence_prior"].values[:, 0]])) == 8
    path = tree["warmup_sample_stats"].to_dataset()["power"].values
    assert (np.nanmax(path, axis=1) == 1.0).all()
    assert np.all(np.diff(path, axis=1)[np.isfinite(np.diff(path, axis=1))] > 0)
    stored = json.loads((run_of_four / "comparison.json").read_text())
    evidence = stored["summary"]["log_evidence"]["sampled"]
    largest = logs[:, 0].max()
    expected = largest + np.log(np.mean(np.exp(logs[:, 0] - largest)))
    assert evidence["value"] == pytest.approx(expected, rel=1e-12)
    # Means weigh repetitions by their evidence.
    weights = np.exp(logs[:, 0] - largest)
    means = posterior["order_parameter"].values.mean(axis=1)
    expected = np.tensordot(weights / weights.sum(), means, axes=1)
    with xr.open_datatree(run_of_four / "comparison.nc", engine="h5netcdf") as compared:
        elements = compared["elements/order_parameter"].to_dataset().load()
    np.testing.assert_allclose(elements["sampled"], expected, rtol=1e-10)
    # The jackknife, from means without each repetition, and what the largest weights may hide.
    weights = weights / weights.sum()
    without = [np.average(np.delete(means, r, 0), 0, np.delete(weights, r)) for r in range(4)]
    square = sum((expected - one) ** 2 for one in without) * 3 / 4
    powers = np.maximum(np.log(4 * weights), -1.5)
    shares = 1 / 4 + (powers - powers.mean()) / 3
    square += 9.0 * (np.tensordot(shares, means, axes=1) - expected) ** 2
    np.testing.assert_allclose(elements["error"], np.sqrt(square), rtol=1e-9)


def test_repetitions_are_made_until_their_draws_are_trusted(recipe_file, tmp_path, monkeypatch):
    asked = []

    def judged(rule, most):
        asked.append(len(rule.collected.statistics["lp"]))
        return verdict(passed=len(asked) == 3)

    monkeypatch.setattr(RepetitionRule, "judge", judged)
    in_process("sample", recipe_file, "--out", tmp_path / "run", *settings(*FEW))
    assert asked == [4, 5, 7]  # 30 % more after each check, to the nearest number
    tree = read_draws(tmp_path / "run")
    assert tree["sample_stats"].attrs["ended_by"] == "trusted"
    assert tree["posterior"].sizes["chain"] == 7


def verdict(passed: bool) -> Diagnostics:
    quantities = {"order_parameter": QuantityDiagnostics(1.2, 100.0, 100.0)}
    return Diagnostics("pass" if passed else "fail", (), (), quantities, 4, 32, {})


def test_reasons_to_end():
    def reason(check):
        return RepetitionRule(TEMPERED, DrawCollector(), 32, np.inf, checks=[check]).ended

    failed = InterimVerdict(4, False, 1.0, 1.2, 100.0, "x", evidence_error=0.1)
    assert reason(replace(failed, passed=True)) == "trusted"
    assert reason(failed) is None
    assert reason(replace(failed, done=32)) == "repetitions"
    # Effective draws and evidence are known well enough: what fails is something else.
    known = replace(failed, ess=600.0)
    assert reason(known) == "failed"
    assert reason(replace(known, evidence_error=1.0)) is None
    assert reason(replace(known, evidence_error=None)) is None


def test_few_particles_fail_their_diagnostics_with_a_remedy(run_of_four):
    """Four repetitions of 32 particles are 128 draws at most."""
    found = diagnose_stage(read_draws(run_of_four))
    assert not found.passed
    assert any("`repetitions`" in reason for reason in found.reasons)
    assert found.r_hat_limit == 1.05
    assert all(one.ess_bulk <= 128 for one in found.quantities.values())
