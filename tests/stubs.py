"""The stubs of both packages, for editors and type checkers: `python -m tests.stubs` writes them.

Both read source text, and follow neither an import at first use nor a signature that is made from
the fields of a section: stubs have them written out. What a keyword means is in the help of the
function, which Python knows, and in the reference of recipes.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from textwrap import fill, indent
from types import ModuleType
from typing import Any

import sampler
import theory

HEAD = """# Written by `python -m tests.stubs`, from CONTENTS and the settings of recipes.
"""
# What types in signatures are called by.
IMPORTS = """
import collections.abc
import pathlib
import typing
from typing import Any, Literal

import numpy
import sampler
import xarray as xr
"""


def stub_of(package: ModuleType) -> str:
    """Return the text of `__init__.pyi`: imports, and what has a signature made at run time."""
    imports, written = [], []
    for module, names in package.CONTENTS.items():
        for name in names.split():
            value, alias = getattr(package, name), name
            if hasattr(value, "__signature__"):
                written.append(definition(value, documented=True))
                continue
            if inspect.isclass(value) and hasattr(value.__init__, "__signature__"):
                alias = f"_{name}"
                body = indent(definition(value.__init__, documented=False), "    ")
                written.append(f"\nclass {name}({alias}):\n{docstring(value)}\n{body}")
            imports.append(f"from {package.__name__}.{module} import {name} as {alias}")
    version = ["", "__version__: str"] if hasattr(package, "__version__") else []
    return "\n".join([HEAD + IMPORTS * bool(written), *imports, *written, *version, ""])


def definition(function: Callable[..., Any], documented: bool) -> str:
    """Return a function with its signature, and the first line of its docstring if asked for."""
    text = fill(
        f"def {function.__name__}{inspect.signature(function)}:", 100, subsequent_indent="    ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return f"\n{text}\n{docstring(function)}" if documented else f"\n{text} ..."


def docstring(thing: Any) -> str:
    """Return the first line of a docstring, as a docstring."""
    return f'    """{inspect.getdoc(thing).splitlines()[0]}"""'


if __name__ == "__main__":
    for each in (sampler, theory):
        path = Path(each.__file__).with_suffix(".pyi")
        path.write_text(stub_of(each), encoding="utf-8")
