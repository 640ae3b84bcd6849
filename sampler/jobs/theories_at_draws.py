"""Theories at draws of learned attention, as the last step of sampling."""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import xarray as xr

from sampler.analysis.attention_table import kept_logits
from sampler.analysis.attention_theories import attention_theories, why_no_theories
from sampler.jobs.progress import LOG, ProgressDisplay
from sampler.learned_problem import LearnedProblem
from sampler.mcmc.draws import DrawCollector
from sampler.mcmc.tempered import repetition_weights
from sampler.presentation.telling import tell
from sampler.problem import AnyProblem
from sampler.recipes.sampler_section import SamplerSection


def theories_at_draws(
    problem: AnyProblem,
    collected: DrawCollector,
    settings: SamplerSection,
    evidence: Mapping[str, Any],
    show: bool,
) -> xr.Dataset | None:
    """Theories at draws of attention; None where attention is fixed, or the theories do not serve.

    Nothing else is said of theories where attention is sampled.
    """
    if not isinstance(problem, LearnedProblem):
        return None
    draws = settings.attention_theories
    reason = why_no_theories(problem, settings.space, draws)
    if reason:
        text = f"no theories at draws of attention: {reason}"
        LOG.info(text)
        if show:
            tell(text)
        return None
    logits, _ = kept_logits(collected, [name for name, _ in problem.sites])
    weights = repetition_weights(collected.statistics)
    known = float(evidence.get("log_evidence", float("nan")))
    began = time.monotonic()
    with ProgressDisplay() if show else nullcontext() as display:

        def done(number: int, count: int) -> None:
            left = (time.monotonic() - began) * (count - number) / number
            if display is not None:
                display.show("theories at draws of attention", number, count, f"{left:.0f} s left")

        return attention_theories(problem, logits, weights, draws, known, settings.seed, done)
