"""The stubs of both packages, for editors and type checkers: `python -m tests.stubs` writes them.

Type checkers read source text: they follow neither an import at first use nor a signature that is
made from the fields of a section. So the stubs have both written out, and a test compares. What a
keyword means is in the help of the function, which Python knows, and in the reference of recipes.
"""

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import sampler
import theory

WRITTEN = "# Written by `python -m tests.stubs`, from CONTENTS and the settings of recipes."
WIDTH = 100
IMPORTS = """
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import xarray as xr
from numpy.random import Generator, RandomState

from sampler.attention.variants import AttentionVariant
"""


def stub_of(package: ModuleType) -> str:
    """Return the text of `__init__.pyi`: imports, and what has a signature made at run time."""
    imports, written = [], []
    for module, names in package.CONTENTS.items():
        full = f"{package.__name__}.{module}"
        plain = []
        for name in names.split():
            value = getattr(package, name)
            if inspect.isclass(value) and hasattr(value.__init__, "__signature__"):
                plain.append(f"{name} as _{name}")
                written += ["", f"class {name}(_{name}):", f'    """{first_line(value)}"""', ""]
                written += [*definition(value.__init__, "    "), ""]
            elif inspect.isfunction(value) and hasattr(value, "__signature__"):
                written += ["", *definition(value), f'    """{first_line(value)}"""', ""]
            else:
                plain.append(f"{name} as {name}")
        line = f"from {full} import {', '.join(plain)}"
        if len(line) > WIDTH:
            imports += [f"from {full} import (", *packed(plain, "    "), ")"]
        elif plain:
            imports.append(line)
    head = [WRITTEN, *(IMPORTS.splitlines() if written else [""])]
    version = ["", "__version__: str"] if hasattr(package, "__version__") else []
    return "\n".join([*head, *imports, *written, *version, ""])


def definition(function: Any, indent: str = "") -> Iterator[str]:
    """Yield the lines of the signature of a function."""
    signature = inspect.signature(function)
    yield f"{indent}def {function.__name__}("
    words, star = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            words.append("*")
        text = parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {type_text(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}"
        words.append(text)
    yield from packed(words, f"{indent}    ")
    body = " ..." if indent else ""
    yield f"{indent}) -> {type_text(signature.return_annotation)}:{body}"


def packed(words: Iterable[str], indent: str) -> Iterator[str]:
    """Yield lines of a list with commas, each as full as it may be."""
    line = ""
    for word in words:
        if line and len(f"{indent}{line} {word},") > WIDTH:
            yield indent + line
            line = ""
        line += f" {word}," if line else f"{word},"
    yield indent + line


def first_line(thing: Any) -> str:
    """The first line of a docstring."""
    return inspect.getdoc(thing).splitlines()[0]


def type_text(annotation: Any) -> str:
    """Return a type as source text has it."""
    if isinstance(annotation, str):
        return annotation
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " | ".join(map(type_text, inner))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, inner))}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(type_text, inner))}]"
    return "None" if annotation in (None, NoneType) else annotation.__name__


def stub_file(package: ModuleType) -> Path:
    """Return where the stub of a package is."""
    return Path(package.__file__).with_suffix(".pyi")


if __name__ == "__main__":
    for each in (sampler, theory):
        stub_file(each).write_text(stub_of(each), encoding="utf-8")
