"""Finished stages of a plan, by the fingerprints and verdicts in its files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sampler.errors import ExitCode
from sampler.jobs.plan import FILES, Plan
from sampler.settings.recipe import Recipe
from sampler.storage.directory import COMPARISON_FILE, DRAWS_FILE, THEORY_FILE
from sampler.storage.fingerprint import FINGERPRINT, carries, read_attributes, read_stamp, stamp
from sampler.storage.manifest import Manifest
from sampler.storage.run_directory import NUMBERS_OF_DRAWS

# Settings of the sampler that end draws which are not trusted yet.
LIMITS = ("max_draws", "max_minutes")


def finished_code(plan: Plan, manifest: Manifest) -> ExitCode | None:
    """Exit code of a plan that came to its end here, by its files; None where any is missing."""
    ended = manifest.outcome is not None and manifest.outcome.command in (plan.command, "run")
    if not (ended and all(is_done(plan, stage) for stage in plan.stages)):
        return None
    return worth(plan)


def worth(plan: Plan) -> ExitCode:
    """Verdicts in the files of a plan, if all exist."""
    return max([code_of(plan.directory, stage) for stage in plan.stages], default=ExitCode.OK)


def is_done(plan: Plan, stage: str) -> bool:
    """Whether the files of a stage are those of this plan."""
    if not all((plan.directory / file).is_file() for file in FILES[stage]):
        return False
    stamped = read_stamp(plan.directory / FILES[stage][0])
    if stage == "compare":
        return is_done(plan, "sample") and compares(plan, stamped)
    if not carries(stamped, plan.fingerprint):
        return False
    if stage == "solve":
        return True
    same = {**stamped["numbers"], **numbers_of(plan.asked)} == stamped["numbers"]
    return same and not was_cut_short(plan, stamped)


def code_of(directory: Path, stage: str) -> ExitCode:
    """Verdict in the file of a stage: whether the theory converged, and the verdict on draws."""
    if stage == "solve":
        converged = read_attributes(directory / THEORY_FILE)["converged"]
        return ExitCode.OK if converged else ExitCode.NOT_CONVERGED
    if stage == "compare":
        return ExitCode.OK if is_trusted(directory) else ExitCode.DIAGNOSTICS_FAILED
    return ExitCode.OK


def is_trusted(directory: Path) -> bool:
    """Whether the draws passed their diagnostics where they were compared."""
    attributes = read_attributes(directory / COMPARISON_FILE)
    return json.loads(attributes.get("diagnostics", "{}")).get("verdict") == "pass"


# --- stamps


def theory_stamp(plan: Plan) -> str:
    """The attribute of `theory.nc`."""
    return json.dumps(stamp(plan.fingerprint))


def draws_stamp(plan: Plan, made: int) -> str:
    """The attribute of `draws.nc`: how many draws were asked for and how many were made."""
    limits = {key: getattr(plan.asked.sampler, key) for key in LIMITS}
    numbers = numbers_of(plan.asked) | limits
    return json.dumps(stamp(plan.fingerprint, numbers=numbers, made=made))


def comparison_stamp(draws: Mapping[str, Any], with_theory: bool) -> str:
    """The attribute of `comparison.nc`, by the attributes of the draws: with the theories compared.

    with_theory  whether there was a theory
    """
    return json.dumps({**json.loads(draws.get(FINGERPRINT, "{}")), "with_theory": with_theory})


def compares(plan: Plan, stamped: Mapping[str, Any]) -> bool:
    """Whether a comparison is of the draws that are there, with a theory where one is solved."""
    drawn = read_stamp(plan.directory / DRAWS_FILE)
    theory = stamped.get("with_theory", False)
    return stamped == {**drawn, "with_theory": theory} and (theory or not plan.is_solved)


def numbers_of(recipe: Recipe) -> dict[str, Any]:
    """The settings of the number of draws, as JSON."""
    settings = recipe.sampler.model_dump(mode="json")
    return {key: settings[key] for key in (name.split(".")[1] for name in NUMBERS_OF_DRAWS)}


def was_cut_short(plan: Plan, stamped: Mapping[str, Any]) -> bool:
    """Whether draws are not trusted, by a limit that ended them and that the plan raises."""
    attributes = read_attributes(plan.directory / DRAWS_FILE, "sample_stats")
    limit = attributes["ended_by"]
    if limit not in LIMITS or is_trusted(plan.directory):
        return False
    return getattr(plan.asked.sampler, limit) > stamped["numbers"][limit]
