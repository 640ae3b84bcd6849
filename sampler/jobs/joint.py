"""Heads removed together from a trained model: the scores that are asked for, in their order."""

from collections.abc import Mapping, Sequence

import xarray as xr

from sampler.analysis.names import order_parameter_dimensions
from sampler.analysis.predictors import predicted
from sampler.errors import InputError
from sampler.heads.gates import GatedModel, Numbering, Replacement
from sampler.heads.joint import (
    Candidates,
    JointRemoval,
    Ranking,
    RemovableModel,
    removed_together,
)
from sampler.heads.left import JointTheory
from sampler.heads.measures import Loss, Outputs, TheoryWithoutHeads
from sampler.jobs.ablation import shown_steps
from sampler.problem import Problem
from theory import OrderParameters

ALL = "all"


def jointly_removed(
    gated: Mapping[str, GatedModel],
    labels: Mapping[str, Outputs],
    heads: Numbering,
    loss: Loss,
    replacement: Replacement,
    theory: tuple[Problem, xr.Dataset] | None,
    scores: Sequence[str],
    *,
    emptied: bool,
    sets: int,
    random: int,
    seed: int,
    progress: bool,
) -> JointRemoval:
    """Find the order of removal by each of these scores, and measure its sets.

    theory   the problem that was learned, and its solved table
    emptied  whether a layer may lose all of its heads
    sets     of each order that are measured, at most

    Raises InputError for a score that there is not.
    """
    validation, test = (
        RemovableModel(gated[split], heads.gates, labels[split], loss, replacement)
        for split in ("validation", "test")
    )
    known = rankings_of(validation, heads, theory)
    candidates = Candidates(heads.gates, tuple(gated["test"].heads), emptied)
    wanted = list(dict.fromkeys(scores))
    if ALL in wanted:
        wanted = [*(key for key in wanted if key != ALL), *known]
        wanted = list(dict.fromkeys(wanted))
    for key in wanted:
        if key not in known:
            remedy = f"there are {', '.join(known)}; those of the theory need a `network`"
            raise InputError("score", key, remedy)
    with shown_steps(progress) as steps:
        return removed_together(
            validation,
            test,
            heads,
            candidates,
            {key: known[key] for key in wanted},
            sets=sets,
            random=random,
            seed=seed,
            steps=steps,
        )


def rankings_of(
    model: RemovableModel, heads: Numbering, theory: tuple[Problem, xr.Dataset] | None
) -> dict[str, Ranking]:
    """The scores that there are of a model, and of its theory where there is one."""
    found = model.rankings()
    if theory is None:
        return found
    return found | joint_theory(*theory, heads).rankings()


def joint_theory(problem: Problem, table: xr.Dataset, heads: Numbering) -> JointTheory:
    """A solved theory, some of whose heads go."""
    names = order_parameter_dimensions(problem.architecture.layers)
    at = OrderParameters.from_matrices([table[name].values for name, _ in names])
    whole = TheoryWithoutHeads(
        problem.learning, problem.attended_validation, predicted(table, "order_parameter")
    )
    return JointTheory(whole, at, heads.theory, heads.gates, problem.labels_validation)
