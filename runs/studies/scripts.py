"""What studies share that are scripts still: folders, numbers computed once, tables, the record.

    python -m runs.studies.NAME.study [FOLDER] [SIZE …]

Without a folder, what takes long is kept in runs/results/NAME and not computed again, and numbers,
figures and the tables of README.md are written into the folder of the study. With a folder
everything goes there; sizes smaller than those of a study need a folder.
"""

import hashlib
import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import FunctionType

import jax
import numpy as np
from matplotlib.figure import Figure
from pydantic import BaseModel

from sampler.presentation import style

jax.config.update("jax_enable_x64", True)
RUNS = Path(__file__).resolve().parents[1]
PACKAGES = ("jax", "jaxlib", "numpyro", "numpy", "scipy")


class Study:
    """A study that was called with these arguments.

    home    its folder in runs/studies
    folder  where numbers are kept that take long
    shown   where record and figures are written
    """

    def __init__(self, file: str) -> None:
        self.home = Path(file).resolve().parent
        self.name = self.home.name
        given, self.sizes = sys.argv[1:2], sys.argv[2:]
        self.folder = Path(given[0]) if given else RUNS / "results" / self.name
        self.shown = self.folder if given else self.home
        self.folder.mkdir(parents=True, exist_ok=True)

    def size(self, place: int, default: int) -> int:
        """A size by its place among those it was called with."""
        return int(self.sizes[place]) if place < len(self.sizes) else default

    def once(self, name: str, measure: Callable[..., dict], *arguments: object) -> dict:
        """What a function returns, from the folder where it was called with the same arguments."""
        file = self.file_of(name, "json", measure, arguments)
        if not file.is_file():
            print(f"{name} …", flush=True)
            content = json.dumps(measure(*arguments), indent=1, default=float)
            file.write_text(content, encoding="utf-8")
        return json.loads(file.read_text(encoding="utf-8"))

    def arrays_once(self, name: str, measure: Callable[..., dict], *arguments: object) -> dict:
        """The same for arrays by name."""
        file = self.file_of(name, "npz", measure, arguments)
        if not file.is_file():
            print(f"{name} …", flush=True)
            np.savez_compressed(file, **measure(*arguments))
        with np.load(file) as arrays:
            return dict(arrays)

    def file_of(self, name: str, ending: str, *settings: object) -> Path:
        """Where that is kept which these settings, and functions by their names, determine."""
        key = hashlib.sha256(text_of(settings).encode()).hexdigest()[:8]
        return self.folder / f"{name.replace('/', '_')}-{key}.{ending}"

    def record(self, numbers: dict, name: str = "numbers", **settings: object) -> None:
        """Write numbers, each plain or an `estimate`, with what else determines them."""
        content = {
            "made": date.today().isoformat(),
            "versions": {package: version(package) for package in PACKAGES},
            **settings,
            "numbers": rounded(numbers),
        }
        text = in_lines(content) + "\n"
        (self.shown / f"{name}.json").write_text(text, encoding="utf-8")

    def table(self, name: str, first: str, rows: Mapping[str, dict], columns: Mapping) -> None:
        """Put numbers into the table of README.md below the comment with this name.

        first    head of the first column, "a | b" of the first two, as in the labels of rows
        columns  head → path to the number, digits, and by what it is multiplied
        """
        lines = [
            [label, *(cell(at(numbers, path), *how) for path, *how in columns.values())]
            for label, numbers in rows.items()
        ]
        self.table_of_text(name, [first, *columns], lines)

    def table_of_text(self, name: str, first: list[str], lines: list[list[str]]) -> None:
        """The same of cells that are text; the first line is that of the heads."""
        rule = "|" + "---|" * (first[0].count("|") + len(first))
        head, *body = (f"| {' | '.join(line)} |" for line in [first, *lines])
        table = "\n".join([head, rule, *body]).replace("|  |", "| |") + "\n"
        page = self.shown / "README.md"
        text = (page if page.is_file() else self.home / page.name).read_text(encoding="utf-8")
        before, comment, after = text.partition(f"<!-- {name} -->\n")
        if not comment:
            raise KeyError(f"README.md has no table {name}")
        page.write_text(
            before + comment + table + re.sub(r"\A(\|.*\n)*", "", after), encoding="utf-8"
        )

    def draw(self, figure: Figure, name: str = "figure") -> None:
        """Write a figure."""
        print("figure:", *style.save_figure(figure, self.shown, name))


def text_of(value: object) -> str:
    """A text that is another one where a setting is another one."""
    if isinstance(value, np.ndarray | jax.Array):
        array = np.ascontiguousarray(value)
        return f"{array.dtype} {array.shape} {hashlib.sha256(array).hexdigest()}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {text_of(part)}' for key, part in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(text_of, value))})"
    if isinstance(value, partial):
        return text_of((value.func, value.args, value.keywords))
    if isinstance(value, Study):
        return text_of((value.name, value.sizes))
    if isinstance(value, type | FunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    if is_dataclass(value):
        return f"{text_of(type(value))} {text_of(vars(value))}"
    if value is None or isinstance(value, str | int | float | Path | BaseModel | np.generic):
        return repr(value)
    raise TypeError(
        f"{value!r}: name the settings that determine a result, not what is made of them"
    )


# --- numbers


def estimate(value: float, error: float, kind: str) -> dict:
    """A number with its error and its kind: "MCSE", "binomial", "over test examples", …"""
    return {"value": float(value), "error": float(error), "kind": kind}


def mean_over(values: Iterable[float], what: str) -> dict:
    """Mean with its standard error over data sets, trainings, … as they are called."""
    numbers = [float(value) for value in values]
    error = statistics.stdev(numbers) / math.sqrt(len(numbers))
    return estimate(statistics.fmean(numbers), error, f"over {len(numbers)} {what}")


def at(numbers: dict, path: str) -> object:
    """What stands at a path, "key/key", of nested numbers; None where it ends before."""
    for key in path.split("/"):
        numbers = numbers.get(key) if isinstance(numbers, Mapping) else None
    return numbers


def cell(number: float | Mapping | None, digits: int, times: float = 1.0) -> str:
    """A number as a table shows it, with its error or its interval; a dash for none."""
    if number is None:
        return "—"
    if isinstance(number, Mapping):
        value = cell(number["value"], digits, times)
        if "low" in number:
            low, high = (cell(number[end], digits, times) for end in ("low", "high"))
            return f"{value} ({low} to {high})"
        return f"{value} ± {cell(number['error'], digits, abs(times))}"
    text = f"{times * number:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def known_digits(number: Mapping) -> str:
    """A number with its error, to two digits of an error that begins with 1, to one of others."""
    if not number["error"]:
        return cell(number, 0)
    power = math.floor(math.log10(number["error"]))
    return cell(number, max(0, (number["error"] < 2.0 * 10.0**power) - power))


def rounded(content: object) -> object:
    """Numbers to seven digits; without what is empty."""
    if isinstance(content, Mapping):
        parts = {str(key): rounded(value) for key, value in content.items()}
        return {key: value for key, value in parts.items() if value not in (None, {}, [])}
    if isinstance(content, list | tuple):
        return [rounded(value) for value in content]
    if content is None or isinstance(content, str | int):
        return content
    if isinstance(content, np.integer):
        return int(content)
    return float(f"{content:.7g}") if math.isfinite(content) else None


def in_lines(content: object, depth: int = 0) -> str:
    """JSON with a line for everything that is short enough."""
    line = json.dumps(content, ensure_ascii=False)
    if len(line) + depth <= 110 or not isinstance(content, Mapping):
        return line
    pad = " " * (depth + 1)
    inner = (f'{pad}"{key}": {in_lines(value, depth + 1)}' for key, value in content.items())
    return "{\n" + ",\n".join(inner) + f"\n{' ' * depth}}}"
