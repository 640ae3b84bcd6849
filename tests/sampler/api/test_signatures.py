"""Keywords of Python functions are the settings of recipes, with their defaults."""

import inspect

import pytest

import sampler
from sampler.recipes.recipe import sections_of
from sampler.recipes.sections import InPython, Mark, Section
from sampler.recipes.task_section import TASKS, AttentionSection
from sampler.tasks.raven import TrainedRavenSection
from sampler.tasks.time_series import SeriesArchiveSection

OF_TASKS = {f"{kind}_task": TASKS[kind] for kind in TASKS} | {
    "series_archive_task": SeriesArchiveSection,
    "trained_raven_task": TrainedRavenSection,
}
FUNCTIONS = {
    **{name: (section,) for name, section in OF_TASKS.items() if name != "arrays_task"},
    "make_network": (sections_of({})["network"], sections_of({})["posterior"]),
    "solve": (sections_of({})["theory"],),
    "sample": (sections_of({})["sampler"],),
}
# Arguments that are no settings.
OTHERS = {"solve": {"task", "network"}, "sample": {"task", "network", "progress"}}


def keywords_of(section: type[Section]) -> set[str]:
    """The keywords that Python functions take, by the declarations of the settings."""
    found = set()
    for key, field in section.model_fields.items():
        names = [mark.name for mark in field.metadata if isinstance(mark, InPython) and mark.name]
        found |= set() if Mark.NOT_IN_PYTHON in field.metadata else {*(names or [key])}
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_a_keyword_for_every_setting(name):
    parameters = inspect.signature(getattr(sampler, name)).parameters
    expected = set().union(*map(keywords_of, FUNCTIONS[name]))
    section = OF_TASKS.get(name)
    if section is not None and section.head_kinds:
        expected |= keywords_of(AttentionSection)
        expected -= {"head_lag"} if "lag" not in section.head_kinds else set()
    assert set(parameters) - OTHERS.get(name, set()) == expected


def test_defaults_and_types_are_those_of_the_fields():
    parameters = inspect.signature(sampler.sample).parameters
    assert parameters["chains"].default == 4
    assert parameters["until"].default is None, "other settings can change it"
    parameters = inspect.signature(sampler.time_series_task).parameters
    assert (parameters["head_lag"].default, parameters["lag"].default) == (5, 5)
    assert parameters["heads"].default == (("lag", "random"), ("uniform", "random"))
    parameters = inspect.signature(sampler.make_network).parameters
    assert parameters["widths"].default is inspect.Parameter.empty
    assert parameters["widths"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
