"""Sentences that are to be known when numbers of heads are read, each for a reason in them."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sampler.analysis.estimates import Estimate
from sampler.analysis.names import head_label
from sampler.heads.measures import Loss, over_examples
from sampler.heads.rank_correlation import RankCorrelation
from sampler.heads.removal import MeasuredHeads, RemovedHeads

UNITS: Mapping[Loss, str] = {"likelihood": "nats", "squared": "squared loss"}
# Zero and mean disagree on a head where their costs differ by so many errors, and by this share of
# the larger, and where that is this share of the largest cost of any head.
ERRORS, SHARE, OF_LARGEST = 3.0, 0.5, 0.1
# Gradients are taken to vanish where none of them, nor the loss, is this share of the largest cost.
SATURATED = 0.1
NAMED = 4
CONTRADICTED = "accuracy of the theory says nothing about which heads this model uses"


def notes_of_measures(measured: MeasuredHeads, predicted: Mapping[str, Estimate]) -> list[str]:
    """Sentences on heads that send a constant, and on gradients that vanish."""
    return [*constants(measured), *saturation(measured, predicted)]


def constants(measured: MeasuredHeads) -> Iterator[str]:
    """Warn of heads whose removal costs something else with 0 than with their mean in its place."""
    if not {"zero_loss", "mean_loss"} <= measured.lost.keys():
        return
    zero, mean = (measured.lost[f"{kind}_loss"] for kind in ("zero", "mean"))
    costs = np.stack([zero.mean(axis=1), mean.mean(axis=1)])
    apart = over_examples(zero - mean)
    larger = np.abs(costs).max(axis=0)
    with np.errstate(invalid="ignore"):
        disagree = (
            (np.abs(apart.value) > ERRORS * apart.mcse)
            & (np.abs(apart.value) > SHARE * larger)
            & (np.abs(apart.value) > OF_LARGEST * np.nanmax(larger))
        )
    places = np.flatnonzero(disagree)
    heads, unit = measured.heads.shown, UNITS[measured.loss]
    for more, meaning in (
        (
            places[apart.value[places] > 0],
            "what they send is much the same for all examples, and the layers above count on that "
            "constant: with 0 in its place they leave what they were trained for. The mean says "
            "what depends on the example",
        ),
        (
            places[apart.value[places] < 0],
            "their mean disturbs the layers above more than nothing does",
        ),
    ):
        if len(more):
            named = [
                f"{head_label(*heads[at])}: {costs[0, at]:.2g} with 0, "
                f"{costs[1, at]:.2g} with the mean"
                for at in sorted(more, key=lambda at: -larger[at])[:NAMED]
            ]
            further = f"; {len(more) - NAMED} more" if len(more) > NAMED else ""
            yield (
                f"zero and mean ablation disagree ({'; '.join(named)}{further}; {unit}): {meaning}"
            )


def saturation(measured: MeasuredHeads, predicted: Mapping[str, Estimate]) -> Iterator[str]:
    """Say that gradients vanish where heads that cost something have next to no slope."""
    if "taylor" not in predicted or "zero_loss" not in measured.lost:
        return
    costs = over_examples(measured.lost["zero_loss"])
    resolved = costs.value[costs.value > ERRORS * costs.mcse]
    slope = float(np.nanmax(predicted["taylor"].value))
    loss, unit = float(measured.unpruned["loss"].mean()), UNITS[measured.loss]
    if not resolved.size or max(slope, loss) > SATURATED * resolved.max():
        return
    yield (
        f"gradients are saturated: Taylor importance is {slope:.2g} at most where removal costs up "
        f"to {resolved.max():.2g} {unit}, for the loss is {loss:.2g} with all heads. Its sizes "
        "are not those of costs, and its order need not be"
    )


def notes_of_orders(found: RemovedHeads) -> list[str]:
    """A sentence where the theory puts heads in an order that removal contradicts."""
    wrong = []
    for key, name in (("score", "head score"), ("removed", "loss of the theory")):
        rho = cost_correlation(found, key)
        if rho is not None and rho.value < 0:
            wrong.append(f"{name} ρ = {rho.value:.2f}".replace("-", "−"))
    if not wrong:
        return []
    return [f"the theory's order is not that of removal ({', '.join(wrong)}): {CONTRADICTED}"]


def cost_correlation(found: RemovedHeads, key: str) -> RankCorrelation | None:
    """The correlation of a prediction with what removal costs, by the mean where that is known."""
    if key not in found.predicted:
        return None
    known: Sequence[str] = [one for one in ("mean_loss", "zero_loss") if one in found.measured]
    return found.predicted[key].spearman[known[0]] if known else None
