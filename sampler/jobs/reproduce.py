"""Redo a run in a directory of its own, and compare it with the stored one number by number."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from sampler.analysis.draws import Draws
from sampler.analysis.estimates import Averages
from sampler.analysis.results import RunResults
from sampler.errors import ExitCode, InputError
from sampler.jobs.interruption import Interruption
from sampler.jobs.plan import FILES, Plan
from sampler.jobs.run import start_run
from sampler.jobs.stages import diagnose_stage
from sampler.presentation.terminal import print_line
from sampler.runtime import DEVICES, divide_processor
from sampler.storage.directory import DRAWS_FILE
from sampler.storage.files import write_json
from sampler.storage.fingerprint import read_stamp
from sampler.storage.manifest import read_manifest

REPRODUCTION_FOLDER = "reproduction"
REPRODUCTION_FILE = "reproduction.json"
# The theory is deterministic up to the tolerance of its solver; samples agree within errors.
THEORY_TOLERANCE = 1e-6
LARGEST_DEVIATION = 5.0
# Stored and redone arrays by name; None where one of both lacks it.
Arrays = Mapping[str, Sequence[np.ndarray | None]]


@dataclass(frozen=True)
class Agreement:
    """The stored theory or draws and their reproduction.

    array       where the difference is largest; None where every array has the same bits
    difference  relative to the largest entry of the array (theory), or of posterior means in units
                of their combined Monte Carlo standard error (draws)
    limit       of that difference; 0 of draws that fail their diagnostics, and so have no errors to
                be compared by: they agree with the same bits alone
    """

    array: str | None
    difference: float
    limit: float
    agrees: bool

    @classmethod
    def of(cls, arrays: Arrays, difference: Callable, limit: float) -> "Agreement":
        """The largest difference among those arrays whose bits are not the same."""
        differing = {
            name: difference(left, right) if np.shape(left) == np.shape(right) else np.inf
            for name, (left, right) in arrays.items()
            if left is None or right is None or not np.array_equal(left, right, equal_nan=True)
        }
        if not differing:
            return cls(None, 0.0, limit, True)
        array = max(differing, key=differing.__getitem__)
        return cls(array, differing[array], limit, 0.0 < limit >= differing[array])


def reproduce_run(plan: Plan, interruption: Interruption) -> ExitCode:
    """Redo the command in DIR/reproduction and compare; OK if every number agrees."""
    directory, recipe = plan.directory, plan.recipe
    manifest = read_manifest(directory)
    if recipe.sampler.points == "selected" and "sample" not in manifest.seconds:
        plan = replace(plan, sampling=False)  # theory chose, in a sweep, not to sample it
    files = [FILES[stage][0] for stage in plan.stages if stage != "compare"]
    missing = [file for file in files if not (directory / file).is_file()]
    if missing:
        remedy = f"holds no {' and no '.join(missing)} to compare with; first use `resume`"
        raise InputError("DIR", directory, remedy)
    if drawn := read_stamp(directory / DRAWS_FILE):
        sampler = recipe.sampler.with_draws(drawn["made"])
        recipe = recipe.model_copy(update={"sampler": sampler})
    print_line(f"once more, to compare: {plan.command} {recipe.name}")
    folder = directory / REPRODUCTION_FOLDER
    redone = replace(plan, asked=recipe, recipe=recipe, directory=folder, figures=False)
    divide_processor(manifest.devices or DEVICES)
    start_run(redone, interruption)
    found = agreements(RunResults(directory), RunResults(folder))
    write_json(directory / REPRODUCTION_FILE, {name: asdict(each) for name, each in found.items()})
    print_line("\n" + "\n".join(agreement_text(name, each) for name, each in found.items()))
    agree = all(each.agrees for each in found.values())
    return ExitCode.OK if agree else ExitCode.NOT_REPRODUCED


def agreements(stored: RunResults, redone: RunResults) -> dict[str, Agreement]:
    """Theory and draws that both runs have, each compared array by array.

    Of the theory what one of them alone stores cannot be compared: a point of a sweep has more than
    a run of its own. How the solver got there (gradient norm) is not.
    """
    found = {}
    if stored.theory is not None and redone.theory is not None:
        tables = stored.theory, redone.theory
        names = sorted(str(name) for name in set(tables[0]) & set(tables[1]) - {"gradient_norm"})
        arrays = {name: [table[name].values.astype(float) for table in tables] for name in names}
        found["theory"] = Agreement.of(arrays, relative_difference, THEORY_TOLERANCE)
    if stored.draws is not None and redone.draws is not None:
        trees = stored.draws, redone.draws
        drawn = Draws(trees[0]), Draws(trees[1])
        limit = LARGEST_DEVIATION if all(diagnose_stage(tree).passed for tree in trees) else 0.0
        arrays = {
            name: [draws[name].values if name in draws else None for draws in drawn]
            for name in sorted({*drawn[0].names, *drawn[1].names})
        }
        averages = [draws.averages for draws in drawn]
        found["draws"] = Agreement.of(arrays, partial(deviation_of_means, *averages), limit)
    return found


def relative_difference(left: np.ndarray, right: np.ndarray) -> float:
    """The largest difference, relative to the largest entry; infinite where one alone is NaN."""
    scale = max(float(np.max(np.abs(left), initial=0.0, where=np.isfinite(left))), 1e-300)
    gap = np.where(np.isnan(left) & np.isnan(right), 0.0, np.abs(left - right))
    return float(np.max(np.nan_to_num(gap, nan=np.inf), initial=0.0)) / scale


def deviation_of_means(
    of_left: Averages, of_right: Averages, left: np.ndarray, right: np.ndarray
) -> float:
    """The largest difference of posterior means, in units of its Monte Carlo standard error."""
    first, other = of_left.mean(left), of_right.mean(right)
    with np.errstate(divide="ignore", invalid="ignore"):  # what never moves has no error
        deviation = np.abs(first.value - other.value) / np.hypot(first.mcse, other.mcse)
    return float(np.max(np.nan_to_num(deviation, nan=np.inf)))


def agreement_text(name: str, found: Agreement) -> str:
    """One line about the theory, or about the draws."""
    if found.array is None:
        return f"{name:<6}  reproduced: the same bits"
    unit = "relative" if name == "theory" else "standard errors"
    limit = f"limit {found.limit:g}" if found.limit else "of draws that fail their diagnostics"
    verdict = "reproduced" if found.agrees else "NOT REPRODUCED"
    return (
        f"{name:<6}  {verdict}: {found.array} differs by {found.difference:.2g} ({unit}; {limit})"
    )
