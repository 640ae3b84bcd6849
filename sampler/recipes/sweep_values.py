"""The grid of a sweep as the command line gives it: `--over KEY=V1,V2,…`.

Values are TOML, separated by commas that stand outside of brackets and quotation marks; a single
word needs no quotation marks. A:B is the range of whole numbers A, A+1, …, B−1, and A:B:STEP every
STEP-th of them.
"""

import re
from typing import Any

from sampler.errors import InputError
from sampler.recipes.recipe import parse_override
from sampler.recipes.toml_text import toml_value

RANGE = re.compile(r"([+-]?\d+):([+-]?\d+)(?::([+-]?\d+))?")
LONGEST_RANGE = 100_000


def sweep_override(over: str) -> str:
    """The override of a recipe, `sweep.KEY=[…]`, that `--over KEY=V1,V2,…` stands for."""
    key, equals, text = (part.strip() for part in over.partition("="))
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key):
        raise InputError("--over", over, "use KEY=V1,V2, as in network.widths=10,100")
    values = [value for item in split_values(text) for value in item_values(key, item)]
    if not values:
        raise InputError(f"--over {key}", text, "is empty; give at least one value")
    return f"sweep.{key}={toml_value(values)}"


def split_values(text: str) -> list[str]:
    """Split at the commas outside of brackets and quotation marks."""
    items, depth, quote = [""], 0, ""
    for position, character in enumerate(text):
        escaped = quote == '"' and text[position - 1] == "\\"
        if quote:
            quote = "" if character == quote and not escaped else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "," and depth == 0:
            items.append("")
            continue
        items[-1] += character
    return [item.strip() for item in items]


def item_values(key: str, item: str) -> list[Any]:
    """The value that one item stands for, or the values of its range."""
    found = RANGE.fullmatch(item)
    if found is None:
        try:
            return [parse_override(f"{key}={item}")[1]]
        except InputError as problem:
            raise InputError(f"--over {key}", item, problem.remedy) from None
    start, stop, step = int(found[1]), int(found[2]), int(found[3] or 1)
    if step == 0:
        raise InputError(f"--over {key}", item, "the step of a range must not be 0")
    values = range(start, stop, step)
    if not 0 < len(values) <= LONGEST_RANGE:
        raise InputError(
            f"--over {key}",
            item,
            f"a range has from 1 to {LONGEST_RANGE} numbers; 0:3 stands for 0, 1, 2",
        )
    return list(values)
