"""The stubs of both packages, for editors and type checkers: `python -m tests.stubs` writes them.

Both read source text, and follow neither an import at first use nor a signature that is made from
the fields of a section: stubs have them written out. What a keyword means is in the help of the
function, which Python knows, and in the reference of recipes.
"""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import fill, indent
from types import ModuleType
from typing import Any

import sampler
import theory

HEAD = "# Written by `python -m tests.stubs`, from CONTENTS and the settings of recipes."
# Types in signatures.
IMPORTS = """
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Optional, Union

from numpy.random import Generator, RandomState
from xarray import Dataset, DataTree

from sampler.attention.variants import AttentionVariant
"""
NO_BREAK = "\u00a0"
MODULE = re.compile(r"\b([a-z_]\w*\.)+(?=[A-Z])")


def stub_of(package: ModuleType) -> str:
    """Return the text of `__init__.pyi`: imports, and what has a signature made at run time."""
    imports, written = [], []
    for module, names in package.CONTENTS.items():
        plain = []
        for name in names.split():
            value, alias = getattr(package, name), name
            if hasattr(value, "__signature__"):
                written.append(f"\n{definition(value)}\n{docstring(value)}")
                continue
            if inspect.isclass(value) and hasattr(value.__init__, "__signature__"):
                alias = f"_{name}"
                body = indent(definition(value.__init__), "    ")
                written.append(f"\nclass {name}({alias}):\n{docstring(value)}\n\n{body} ...")
            plain.append(f"{name} as {alias}")
        if plain:
            imports.append(wrapped(f"from {package.__name__}.{module} import ({', '.join(plain)})"))
    version = ["", "__version__: str"] if hasattr(package, "__version__") else []
    return "\n".join([HEAD, IMPORTS * bool(written), *imports, *written, *version, ""])


def definition(function: Callable[..., Any]) -> str:
    """Return the signature of a function, types without their modules."""
    signature = inspect.signature(function)
    returned = inspect.formatannotation(signature.return_annotation)
    accepted = signature.replace(return_annotation=signature.empty)
    return wrapped(MODULE.sub("", f"def {function.__name__}{accepted} -> {returned}:"))


def wrapped(text: str) -> str:
    """Return a statement in lines, each of which ends between two names or parameters."""
    for bound in (": ", " = ", " | ", " as ", " -> "):
        text = text.replace(bound, bound.replace(" ", NO_BREAK))
    further = {"subsequent_indent": "    ", "break_on_hyphens": False, "break_long_words": False}
    return fill(text, 96, **further).replace(NO_BREAK, " ")


def docstring(thing: Any) -> str:
    """Return the first line of a docstring, as a docstring."""
    return f'    """{inspect.getdoc(thing).splitlines()[0]}"""'


if __name__ == "__main__":
    for each in (sampler, theory):
        path = Path(each.__file__).with_suffix(".pyi")
        path.write_text(stub_of(each), encoding="utf-8")
