"""Keywords of Python functions are settings of recipes: made from them, explained, completed."""

import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import sampler
import theory
from sampler.api.keywords import meaning
from sampler.recipes.recipe import sections_of
from sampler.recipes.sections import InPython, Mark, Section
from sampler.recipes.task_section import TASKS, AttentionSection
from sampler.recipes.training_recipe import TRAINED, TrainingSection
from sampler.tasks.raven import TrainedRavenSection
from sampler.tasks.time_series import SeriesArchiveSection
from tests.stubs import stub_file, stub_of

OF_TASKS = {f"{kind}_task": TASKS[kind] for kind in TASKS} | {
    "series_archive_task": SeriesArchiveSection,
    "trained_raven_task": TrainedRavenSection,
}
SECTIONS = [one for one in sections_of({}).values() if one]
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


@pytest.mark.parametrize(
    "section", [*SECTIONS, *OF_TASKS.values(), *TRAINED.values(), TrainingSection]
)
def test_every_setting_says_what_it_means(section):
    for key in section.model_fields:
        assert meaning(section, key).endswith("."), key


@pytest.mark.parametrize(
    "name",
    [*(name for name in FUNCTIONS if name not in OTHERS), "arrays_task", "make_task", "compare"],
)
def test_every_keyword_is_explained(name):
    function = getattr(sampler, name)
    written = inspect.getdoc(function)
    beginnings = [re.match(r"\w+(, \w+)*(?=  |$)", line) for line in written.split("\n")]
    explained = {word for found in beginnings if found for word in found[0].split(", ")}
    assert set(inspect.signature(function).parameters) <= explained


def test_every_task_has_a_function():
    expected = {"arrays_task", "make_task", *OF_TASKS}
    assert {name for name in sampler.__all__ if name.endswith("_task")} == expected


@pytest.mark.parametrize("package", [sampler, theory], ids=lambda package: package.__name__)
def test_the_stub_for_type_checkers_is_current(package):
    written = stub_file(package).read_text(encoding="utf-8")
    assert written == stub_of(package), "run `python -m tests.stubs`"


@pytest.mark.parametrize("package", [sampler, theory], ids=lambda package: package.__name__)
def test_public_names_are_listed_and_nothing_else(package):
    names = [name for of_module in package.CONTENTS.values() for name in of_module.split()]
    assert set(dir(package)) - {"__version__"} == set(package.__all__) == set(names)
    assert not {"recipes", "import_module"} & set(dir(package))
    assert (Path(package.__file__).parent / "py.typed").is_file()
    assert pkgutil.resolve_name(f"{package.__name__}:{package.__all__[0]}").__doc__
