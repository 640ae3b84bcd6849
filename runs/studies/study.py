"""What studies share: points are measured to rows; numbers, tables and figures follow from rows.

    python -m runs.studies.NAME.study [--small] [--out FOLDER] [--tables]

Rows are kept in runs/results/NAME, and not measured again with the same arguments. Numbers and
figures go into the folder of the study, tables into the pages that show them. With --small a few
points of small size are measured, and all goes to runs/results/NAME-small; with --out, all goes to
that folder. --tables writes the tables of pages from the numbers that are kept, and nothing else.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

from runs.studies.numbers import in_lines, rounded
from runs.studies.tables import Table, put_on_pages
from sampler.presentation import style

RUNS = Path(__file__).resolve().parents[1]
PACKAGES = ("jax", "jaxlib", "numpyro", "numpy", "scipy")


@dataclass(frozen=True)
class Study:
    """A study, by what makes its parts.

    file     its study.py
    points   name → function that measures a row, and its arguments; of small size, with a folder
             for what else it writes
    numbers  what numbers.json keeps, of rows by name
    tables   for pages, by name, of numbers
    figures  by name, of rows and numbers
    """

    file: str
    points: Callable[[bool, Path], dict[str, tuple]]
    numbers: Callable[[dict[str, dict]], dict]
    tables: Callable[[dict], dict[str, Table]] = lambda numbers: {}
    figures: Callable[[dict, dict], dict[str, Figure]] = lambda rows, numbers: {}

    @property
    def home(self) -> Path:
        return Path(self.file).resolve().parent

    def kept(self, name: str = "numbers") -> dict:
        """Numbers that are kept in the folder of the study."""
        return json.loads((self.home / f"{name}.json").read_text(encoding="utf-8"))["numbers"]

    def run(self) -> None:
        """Do what the command line asks for."""
        parser = argparse.ArgumentParser(description=f"The study {self.home.name}.")
        parser.add_argument("--small", action="store_true", help="a few points of small size")
        parser.add_argument("--out", type=Path, help="where everything goes")
        parser.add_argument("--tables", action="store_true", help="write the tables of pages anew")
        given = parser.parse_args()
        if given.tables:
            kept = self.kept()
            put_on_pages(self.home.name, self.tables(kept), kept)
            return
        jax.config.update("jax_enable_x64", True)
        folder = given.out or RUNS / "results" / (self.home.name + "-small" * given.small)
        shown = folder if given.out or given.small else self.home
        folder.mkdir(parents=True, exist_ok=True)
        points = self.points(given.small, folder).items()
        rows = {name: once(folder, name, *point) for name, point in points}
        numbers = rounded(self.numbers(rows))
        content = {
            "made": date.today().isoformat(),
            "versions": {package: version(package) for package in PACKAGES},
            "numbers": numbers,
        }
        (shown / "numbers.json").write_text(in_lines(content) + "\n", encoding="utf-8")
        tables = self.tables(numbers)
        if shown == self.home:
            put_on_pages(self.home.name, tables, numbers)
        with style.figure_style():
            for name, figure in self.figures(rows, numbers).items():
                print("figure:", *style.save_figure(figure, shown, name))


def once(folder: Path, name: str, measure: Callable[..., dict], *arguments: object) -> dict:
    """What a function returns, from the folder where it was called with the same arguments."""
    file = folder / f"{name.replace('/', '_')}.row.json"
    of = json.loads(json.dumps([measure.__name__, *arguments], default=text_of_path))
    if file.is_file():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["of"] == of:
            return kept["row"]
    print(f"{name} …", flush=True)
    text = json.dumps({"of": of, "row": measure(*arguments)}, default=array_as_lists)
    file.write_text(text, encoding="utf-8")
    return json.loads(text)["row"]


def array_as_lists(one: object) -> object:
    """Numbers and arrays of NumPy, JAX and xarray, which JSON does not know."""
    return np.asarray(one, float).tolist()


def text_of_path(one: object) -> str:
    """Of arguments that JSON does not know, paths have a text."""
    if isinstance(one, Path):
        return str(one)
    raise TypeError(f"{one!r}: name the settings that determine a row, not what is made of them")
