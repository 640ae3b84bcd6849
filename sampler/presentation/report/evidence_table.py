"""The log evidence, where it was stored."""

from collections.abc import Mapping

from sampler.presentation.report.elements import Html, table
from sampler.presentation.report.numbers import Number

CAPTION = (
    "Log evidence ln p(y) of the training labels, with its Monte Carlo error. Between two networks "
    "or temperatures on the same data the larger one is supported, without any test example."
)


def evidence_table(evidence: Mapping) -> Html | None:
    """ln p(y) of theory, samples and infinite width; None where samples do not know it."""
    sampled = evidence.get("sampled")
    if not sampled:
        return None
    doubt = "" if sampled.get("trusted") else ", not to be trusted"
    rows = [
        [
            f"exact posterior, by {sampled['method']}{doubt}",
            Number(sampled["value"], sampled["mcse"]),
        ],
        ["theory: Laplace's form at the saddle point", Number(evidence.get("theory"))],
        ["infinite width (GP)", Number(evidence.get("gp"))],
    ]
    return table(CAPTION, ("log evidence of", "ln p(y)"), rows)
