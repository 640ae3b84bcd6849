"""Temperature and prior variances, where they were sampled."""

from collections.abc import Mapping

from sampler.presentation.report.elements import Html, table
from sampler.presentation.report.numbers import Number
from sampler.presentation.summary import named_hyper_parameters

CAPTION = (
    "What is listed here was sampled, its prior log-normal about the median, at which the theory "
    "is solved."
)


def hyper_parameter_table(found: Mapping) -> Html | None:
    """Prior median, posterior mean ± MCSE and standard deviation; None if nothing was sampled."""
    rows = [
        [name, Number(median), Number(sampled, mcse), Number(deviation, digits=3)]
        for name, median, sampled, mcse, deviation in named_hyper_parameters(dict(found))
    ]
    header = ("what", "prior median", "sampled ± MCSE", "posterior standard deviation")
    return table(CAPTION, header, rows) if rows else None
