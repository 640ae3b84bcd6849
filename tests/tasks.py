"""Tasks made from the settings that a test names; the rest are defaults."""

from sampler.recipes.task_section import AttentionSection
from sampler.tasks.markov_chain import MarkovChainSection
from sampler.tasks.time_series import TimeSeriesSection


def markov_chain(heads=(("good",), ("uniform",)), beta=10.0, **settings):
    section = MarkovChainSection(kind="markov_chain", **settings)
    return section.make(AttentionSection(heads=heads, inverse_temperature=beta))


def time_series(heads=(("lag",), ("uniform",)), look_back=2, beta=10.0, form=None, **settings):
    section = TimeSeriesSection(kind="time_series", **settings)
    attention = AttentionSection(heads=heads, lag=look_back, inverse_temperature=beta, form=form)
    return section.make(attention)
