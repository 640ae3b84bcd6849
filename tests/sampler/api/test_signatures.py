"""Signatures written out for people hold what the sections of the recipe say, and nothing else."""

import ast
import inspect
import pkgutil
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest

import sampler
import theory
from sampler.api.tasks import KEYS_OF_ATTENTION
from sampler.recipes.sections import (
    NetworkSection,
    PosteriorSection,
    SamplerSection,
    TheorySection,
)
from sampler.recipes.task_section import TASKS, AttentionSection
from sampler.tasks.time_series import SeriesArchiveSection

OF_TASKS = {
    "markov_chain_task": TASKS["markov_chain"],
    "time_series_task": TASKS["time_series"],
    "series_archive_task": SeriesArchiveSection,
    "digits_task": TASKS["digits"],
    "one_shot_task": TASKS["one_shot"],
    "trained_series_task": TASKS["trained_series"],
}
FUNCTIONS = {
    **{name: (section,) for name, section in OF_TASKS.items()},
    "make_network": (NetworkSection, PosteriorSection),
    "solve": (TheorySection,),
    "sample": (SamplerSection,),
}
# Arguments that are no settings.
OTHERS = {"solve": ("task", "network"), "sample": ("task", "network", "progress")}
# What only a sweep or a run directory has.
NOT_FROM_PYTHON = {
    "largest_width", "at_widths", "points", "selected_by", "checkpoint_seconds", "kind",
    "own",  # an argument of `compare`
}  # fmt: skip
# Left to what else is given: a task sets the readout, the number of draws says when they end.
LEFT_OPEN = {"readout": "last", "until": "trusted"}


def fields_of(name: str) -> dict[str, tuple[Any, Any]]:
    """Keyword → type and default of every setting that a function has."""
    fields = {
        key: (field.annotation, inspect.Parameter.empty if field.is_required() else field.default)
        for section in FUNCTIONS[name]
        for key, field in section.model_fields.items()
        if key not in NOT_FROM_PYTHON
    }
    section = OF_TASKS.get(name)
    if section is None or not section.head_kinds:
        return fields
    attention = AttentionSection.model_fields
    for keyword, key in KEYS_OF_ATTENTION.items():
        if key in ("lag",) and "lag" not in section.head_kinds:
            continue
        default = section.attention_defaults.get(key, attention[key].default)
        fields[keyword] = attention[key].annotation, default
    return fields


def kinds(annotation: Any) -> set:
    """The alternatives of a type, as written in a section or in a signature."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kinds(inner[0])
    if origin in (Union, UnionType):
        return set().union(*map(kinds, inner))
    if origin is Literal:
        return {("literal", value) for value in inner}
    if origin in (tuple, Sequence):
        return {("several", frozenset(kinds(inner[0])))}
    if origin in (dict, Mapping):
        return {"table"}
    return {annotation}


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", FUNCTIONS)
def test_names_and_defaults_are_those_of_the_sections(name):
    parameters = inspect.signature(getattr(sampler, name)).parameters
    settings = {key: one for key, one in parameters.items() if key not in OTHERS.get(name, ())}
    expected = fields_of(name)
    assert settings.keys() == expected.keys()
    for key, one in settings.items():
        default = expected[key][1]
        if key in LEFT_OPEN:
            assert (one.default, default) == (None, LEFT_OPEN[key])
        else:
            assert plain(one.default) == plain(default), key


@pytest.mark.parametrize("name", FUNCTIONS)
def test_types_are_those_of_the_sections(name):
    parameters = inspect.signature(getattr(sampler, name)).parameters
    for key, (annotation, default) in fields_of(name).items():
        expected, received = kinds(annotation), kinds(parameters[key].annotation)
        if key == "form":  # what `read_variants` reads
            continue
        if key == "draws":  # a table by space is for sweeps over spaces
            expected.discard("table")
        if key == "head_lag":  # each of these tasks has a default
            expected.discard(NoneType)
        expected |= {Path} if Path in received and str in expected else set()
        expected |= {NoneType} if key in LEFT_OPEN else set()
        assert received == expected, key
        assert (default is None) == (NoneType in expected - {*LEFT_OPEN}) or key in LEFT_OPEN, key


@pytest.mark.parametrize("name", [*FUNCTIONS, "arrays_task", "make_task", "compare"])
def test_every_keyword_is_explained(name):
    function = getattr(sampler, name)
    written = inspect.getdoc(function)
    beginnings = [re.match(r"\w+(, \w+)*(?=  |$)", line) for line in written.split("\n")]
    explained = {word for found in beginnings if found for word in found[0].split(", ")}
    assert set(inspect.signature(function).parameters) <= explained


def test_every_task_has_a_function():
    expected = {"arrays_task", "make_task", *OF_TASKS}
    assert {name for name in sampler.__all__ if name.endswith("_task")} == expected
    assert {f"{kind}_task" for kind in TASKS} <= expected


@pytest.mark.parametrize("package", [sampler, theory], ids=lambda package: package.__name__)
def test_public_names_are_known_to_type_checkers_and_nothing_else_is_listed(package):
    folder = Path(package.__file__).parent
    stub = ast.parse((folder / "__init__.pyi").read_text(encoding="utf-8"))
    listed = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    modules = {alias.asname: node.module for node in listed for alias in node.names}
    expected = {
        name: f"{package.__name__}.{module}"
        for module, names in package.CONTENTS.items()
        for name in names.split()
    }
    assert modules == expected
    assert set(dir(package)) - {"__version__"} == set(package.__all__) == set(expected)
    assert not {"recipes", "import_module"} & set(dir(package))
    assert (folder / "py.typed").is_file()
    assert pkgutil.resolve_name(f"{package.__name__}:{package.__all__[0]}").__doc__
