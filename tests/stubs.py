"""The stubs of both packages, for editors and type checkers: `python -m tests.stubs` writes them.

Type checkers read source text: they follow neither an import at first use nor a signature that is
made from the fields of a section. So the stubs have both written out, and a test compares.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import sampler
import theory

WRITTEN = "# Written by `python -m tests.stubs`, from CONTENTS and the settings of recipes."
IMPORTS = """
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from sampler.attention.variants import AttentionVariant
"""


def stub_of(package: ModuleType) -> str:
    """Return the text of `__init__.pyi`: imports, and what has a signature made at run time."""
    imports, written = [], []
    for module, names in package.CONTENTS.items():
        full = f"{package.__name__}.{module}"
        for name in names.split():
            value = getattr(package, name)
            if inspect.isclass(value) and hasattr(value.__init__, "__signature__"):
                imports.append(f"from {full} import {name} as _{name}")
                written += ["", "", f"class {name}(_{name}):", *help_of(value, "    "), ""]
                written += [*definition(value.__init__, "    "), "        ..."]
            elif inspect.isfunction(value) and hasattr(value, "__signature__"):
                written += ["", "", *definition(value), *help_of(value, "    ")]
            else:
                imports.append(f"from {full} import {name} as {name}")
    head = [WRITTEN, *(IMPORTS.splitlines() if written else [""])]
    version = ["", "", "__version__: str"] if hasattr(package, "__version__") else []
    return "\n".join([*head, *imports, *written, *version, ""])


def definition(function: Any, indent: str = "") -> Iterator[str]:
    """Yield the lines of the signature of a function."""
    signature = inspect.signature(function)
    yield f"{indent}def {function.__name__}("
    star = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            yield f"{indent}    *,"
        text = parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {type_text(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}"
        yield f"{indent}    {text},"
    yield f"{indent}) -> {type_text(signature.return_annotation)}:"


def help_of(thing: Any, indent: str) -> Iterator[str]:
    """Yield the lines of a docstring."""
    first, *others = inspect.getdoc(thing).splitlines()
    yield f'{indent}"""{first}'
    yield from (f"{indent}{line}".rstrip() for line in others)
    yield f'{indent}"""'


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
