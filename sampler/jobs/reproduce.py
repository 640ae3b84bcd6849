"""Redo a run in a directory of its own, and compare it with the stored one number by number."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from sampler.analysis.draws import Draws
from sampler.analysis.estimates import OF_CHAINS, Averages
from sampler.analysis.results import RunResults
from sampler.errors import ExitCode, InputError
from sampler.jobs.interruption import Interruption
from sampler.jobs.method import SamplingMethod
from sampler.jobs.plan import Plan, plan_with_data
from sampler.jobs.run import open_run_directory
from sampler.jobs.stages import diagnose_stage, run_stages
from sampler.presentation.terminal import print_line
from sampler.runtime import DEVICES
from sampler.storage.directory import DRAWS_FILE, THEORY_FILE
from sampler.storage.files import to_json, write_json
from sampler.storage.manifest import read_manifest

REPRODUCTION_FOLDER = "reproduction"
REPRODUCTION_FILE = "reproduction.json"
# The theory is deterministic up to the tolerance of its solver; samples agree within errors.
THEORY_TOLERANCE = 1e-6
LARGEST_DEVIATION = 5.0


@dataclass(frozen=True)
class Agreement:
    """One stored array beside its reproduction.

    identical   bit for bit
    difference  largest difference: relative to the largest entry (theory), or of posterior means
                in units of their combined Monte Carlo standard error (draws)
    limit       of that difference; 0 of draws that fail their diagnostics
    """

    identical: bool
    difference: float
    limit: float

    @property
    def agrees(self) -> bool:
        return self.identical or self.difference <= self.limit


def reproduce_run(plan: Plan, interruption: Interruption) -> ExitCode:
    """Redo the command in DIR/reproduction and compare; OK if every number agrees."""
    directory, recipe = plan.directory, plan.asked
    manifest = read_manifest(directory)
    if recipe.sampler.points == "selected" and "sample" not in manifest.seconds:
        plan = replace(plan, sampling=False)  # theory chose, in a sweep, not to sample it
    files = [file for file in plan.files if file in (THEORY_FILE, DRAWS_FILE)]
    if not files:
        raise InputError("DIR", directory, "has no results to compare with")
    missing = [file for file in files if not (directory / file).is_file()]
    if missing:
        remedy = f"holds no {' and no '.join(missing)} to compare with; first use `resume`"
        raise InputError("DIR", directory, remedy)
    if manifest.choice is not None:
        recipe = SamplingMethod(**manifest.choice).applied_to(recipe)
    if manifest.draws_per_chain is not None:
        sampler = recipe.sampler.with_draws(manifest.draws_per_chain)
        recipe = recipe.model_copy(update={"sampler": sampler})
    folder = directory / REPRODUCTION_FOLDER
    redone = plan_with_data(plan.command, recipe, folder, plan.task, recorded=manifest)
    redone = replace(redone, sampling=plan.sampling, figures=False)
    with open_run_directory(redone, devices=manifest.devices or DEVICES):
        run_stages(redone, interruption)
    results = agreements(directory, folder)
    write_json(directory / REPRODUCTION_FILE, to_json(results))
    print_line(f"\n{agreement_text(results)}")
    agree = all(each.agrees for each in results.values())
    return ExitCode.OK if agree else ExitCode.NOT_REPRODUCED


def agreements(directory: Path, other: Path) -> dict[str, Agreement]:
    """Every array of the theory and of the draws that both directories hold.

    How the solver got there (gradient norm) is not compared. Of the theory, what one of them alone
    stores cannot be: a point of a sweep has more than a run of its own. Draws that fail their
    diagnostics have no errors to compare them by: they agree where they are the same bits.
    """
    stored, redone = RunResults(directory), RunResults(other)
    results = {}
    if stored.theory is not None and redone.theory is not None:
        for name in sorted((set(stored.theory) & set(redone.theory)) - {"gradient_norm"}):
            arrays = (table[name].values.astype(float) for table in (stored.theory, redone.theory))
            results[f"theory: {name}"] = agreement(*arrays, relative_difference, THEORY_TOLERANCE)
    if stored.draws is not None and redone.draws is not None:
        trees = stored.draws, redone.draws
        left, right = ({n: d[n].values for n in d.names} for d in map(Draws, trees))
        limit = LARGEST_DEVIATION if all(diagnose_stage(tree).passed for tree in trees) else 0.0
        deviation = partial(deviation_of_means, averages=[Draws(tree).averages for tree in trees])
        for name in sorted(left.keys() | right.keys()):
            arrays = left.get(name), right.get(name)
            results[f"draws: {name}"] = agreement(*arrays, deviation, limit)
    return results


def agreement(
    left: np.ndarray | None, right: np.ndarray | None, difference: Callable, limit: float
) -> Agreement:
    """Two arrays of one name, by their difference where the bits are not the same."""
    if left is None or right is None or left.shape != right.shape:
        return Agreement(False, np.inf, limit)
    if np.array_equal(left, right, equal_nan=True):
        return Agreement(True, 0.0, limit)
    return Agreement(False, difference(left, right), limit)


def relative_difference(left: np.ndarray, right: np.ndarray) -> float:
    """The largest difference, relative to the largest entry; infinite where one alone is NaN."""
    scale = max(float(np.max(np.abs(left), initial=0.0, where=np.isfinite(left))), 1e-300)
    gap = np.where(np.isnan(left) & np.isnan(right), 0.0, np.abs(left - right))
    return float(np.max(np.nan_to_num(gap, nan=np.inf), initial=0.0)) / scale


def deviation_of_means(
    left: np.ndarray,
    right: np.ndarray,
    averages: Sequence[Averages] = (OF_CHAINS, OF_CHAINS),
) -> float:
    """The largest difference of posterior means, in units of its Monte Carlo standard error."""
    first, other = (of.mean(draws) for of, draws in zip(averages, (left, right), strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):  # what never moves has no error
        deviation = np.abs(first.value - other.value) / np.hypot(first.mcse, other.mcse)
    return float(np.max(np.nan_to_num(deviation, nan=np.inf)))


def agreement_text(results: Mapping[str, Agreement]) -> str:
    """One line per array."""
    width = max(map(len, results))
    lines = []
    if any(not each.agrees and each.limit == 0.0 for each in results.values()):
        lines.append("draws fail their diagnostics: they are compared bit by bit")
    for name, each in results.items():
        unit = "standard errors" if name.startswith("draws") else "(relative)"
        how = f"differs by {each.difference:.2g} {unit}, limit {each.limit:g}"
        end = "" if each.agrees else "  NOT REPRODUCED"
        lines.append(f"{name:<{width}}  {'the same bits' if each.identical else how}{end}")
    return "\n".join(lines)
