"""What is public says in one sentence what it is, and which axes its arrays have."""

import ast
import dataclasses
import enum
import inspect
import re
import types
import typing

import jax
import numpy as np
import pytest

import sampler
import theory
from tests import ROOT

PUBLIC = {
    **{f"theory.{name}": getattr(theory, name) for name in theory.__all__},
    **{f"sampler.{name}": getattr(sampler, name) for name in sampler.__all__},
}
# Where an array has whatever axes it has.
BARE_ARRAYS = (np.ndarray, jax.Array)

# A first sentence that says nothing where it stands alone, as in an editor.
NOT_ALONE = re.compile(r"(Of|The same|What|Why|Where|Who|How)\b")
FILES = [*ROOT.glob("sampler/**/*.py"), *ROOT.glob("theory/**/*.py")]
FOLDERS = sorted({str(path.parent.relative_to(ROOT)) for path in FILES})


def docstrings_of(node: ast.AST, name: str) -> dict[str, str]:
    """Docstrings of a module or class and of what is public in it, by name."""
    found = {name: ast.get_docstring(node) or ""}
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef) and inner.name[0] != "_":
            if isinstance(inner, ast.ClassDef):
                found |= docstrings_of(inner, f"{name}.{inner.name}")
            else:
                found[f"{name}.{inner.name}"] = ast.get_docstring(inner) or ""
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_docstring_says_what_it_is_about_where_it_stands_alone(folder):
    wrong = {}
    for path in sorted((ROOT / folder).glob("*.py")):
        written = docstrings_of(ast.parse(path.read_text(encoding="utf-8")), path.stem)
        wrong |= {name: text for name, text in written.items() if NOT_ALONE.match(text)}
    assert wrong == {}


def public_objects() -> dict[str, object]:
    """Functions and classes, and the functions and properties of the classes."""
    objects = {}
    for name, value in PUBLIC.items():
        if isinstance(value, types.ModuleType) or not callable(value):
            continue
        objects[name] = value
        members = vars(value) if inspect.isclass(value) else {}
        for member, inner in members.items():
            inner = inner.fget if isinstance(inner, property) else inner
            inner = getattr(inner, "func", getattr(inner, "__func__", inner))
            own = getattr(inner, "__module__", None) == value.__module__
            if not member.startswith("_") and inspect.isfunction(inner) and own:
                objects[f"{name}.{member}"] = inner
    return objects


OBJECTS = public_objects()


def annotations_of(value) -> dict[str, object]:
    """Annotations of parameters, of the result, or of fields."""
    if inspect.isclass(value):
        fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
        return {field.name: field.type for field in fields if not field.name.startswith("_")}
    parameters = inspect.signature(value).parameters.values()
    given = {p.name: p.annotation for p in parameters if p.name not in ("self", "cls")}
    return given | {"return": inspect.signature(value).return_annotation}


def is_bare(annotation) -> bool:
    """Whether an annotation, or a part of it, is an array without axes."""
    if annotation in BARE_ARRAYS:
        return True
    return any(is_bare(part) for part in typing.get_args(annotation))


def test_a_docstring_begins_with_one_sentence():
    wrong = {}
    for name, value in OBJECTS.items():
        written = inspect.getdoc(value) or ""
        if inspect.isclass(value) and not vars(value).get("__doc__"):
            written = ""  # an inherited one says nothing of this class
        first = written.split("\n\n")[0].split("\n")[0]
        ends = first.endswith((".", ":", "?"))
        if not ends or not (first[0].isupper() or not first[0].isalpha()):
            wrong[name] = first
    assert wrong == {}


def test_every_argument_is_annotated_and_every_array_has_axes():
    wrong = []
    for name, value in OBJECTS.items():
        if inspect.isclass(value) and issubclass(value, enum.Enum | Exception):
            continue
        for argument, annotation in annotations_of(value).items():
            if annotation is inspect.Parameter.empty:
                wrong.append(f"{name}: {argument} has no annotation")
            elif is_bare(annotation):
                wrong.append(f"{name}: {argument} is an array without axes")
    assert wrong == []


def test_the_test_sees_what_it_looks_for():
    def undocumented(values: np.ndarray, rest: tuple[jax.Array, ...]):
        return values, rest

    given = annotations_of(undocumented)
    assert is_bare(given["values"])
    assert is_bare(given["rest"])
    assert given["return"] is inspect.Signature.empty
    assert {"theory.head_scores", "theory.Predictor.for_examples", "sampler.solve"} <= set(OBJECTS)
