"""Results of a sweep: its Dataset over the swept settings, and tables and verdicts from it."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from sampler.analysis.difference import Difference
from sampler.analysis.estimate import fit_power_law
from sampler.analysis.labels import LEADING, LIMIT, NEXT_ORDER
from sampler.analysis.results import RunResults
from sampler.analysis.text import Number, percent
from sampler.analysis.verdict import HEADLINE, Verdict
from sampler.recipes.settings import setting_text
from sampler.storage.results import has_results, read_table
from sampler.storage.run_directory import SWEEP_DATASET_FILE, plain, read_json

SWEEP_FILE = "sweep.csv"
SELECTION_FILE, FINITE_SIZE_FILE = "selection.json", "finite_size.json"
SEED_AVERAGES_FILE = "seed_averages.csv"

# Accuracies of the theory with U_1 cut to its diagonal, and with an equal diagonal.
CUT = ("accuracy_diagonal_only", "accuracy_equal_diagonal")
# The first columns of the table of a sweep; all others follow by name.
COLUMNS = (
    "point", "directory", "width", "accuracy_theory", "accuracy_gp_own", "accuracy_gp",
    "accuracy_sampled", "accuracy_sampled_mcse", "accuracy_sampled_binomial", "sampled_space",
    *CUT,
)  # fmt: skip
# Attribute of what is a column of the table in the Dataset, where names have no slash: its name.
COLUMN = "column"
GAUSSIAN_PROCESS_PREFIX = "gp:"
# Columns that say where a point is, not what was found there; and those that hold text.
PLACES = COLUMNS[:3]
TEXTS = ("point", "directory", "sampled_space", "next_order_status", "diagnostics")
PASSED, FAILED = "pass", "fail"
# Attribute of a swept setting whose values are written as in a recipe: they are lists, or mixed.
TOML = "toml"
WIDTHS, SPACE = "network.widths", "sampler.space"
# Before the name of a theory of the user's own.
OWN = "own: "
PATHS = ("path", "path_")
# Fields of a difference in the Dataset: name, what stands where there is none, whether two bounds.
DIFFERENCE_FIELDS = tuple(
    (field.name, "" if field.type is str else math.nan, False)
    if field.name != "interval"
    else (field.name, (math.nan, math.nan), True)
    for field in fields(Difference)
)


def table_of_sweep(dataset: xr.Dataset) -> pd.DataFrame:
    """Return the table of a sweep, a row for each point in the order of the grid."""
    found = {v.attrs[COLUMN]: v.values.ravel() for v in dataset.values() if COLUMN in v.attrs}
    first = [name for name in COLUMNS if name in found]
    return pd.DataFrame({name: found[name] for name in [*first, *sorted({*found} - {*first})]})


@dataclass(frozen=True)
class PointSummary:
    """A point of a sweep, as its Dataset has it.

    label        `key=value,…`
    directory    of the run
    settings     swept key → its value here, as a label of the Dataset
    one_width    the width of all layers; None where layers differ
    stored       whether the run has results
    columns      the row of the table
    differences  key of a quantity → theory against samples as a whole
    """

    label: str
    directory: Path
    settings: Mapping[str, object]
    one_width: int | None
    stored: bool
    columns: Mapping[str, Any]
    differences: Mapping[str, Difference]

    @property
    def trusted(self) -> bool | None:
        """Whether the samples passed their diagnostics; None where nothing was sampled."""
        return {PASSED: True, FAILED: False}.get(self.columns.get("diagnostics"))

    @property
    def solved(self) -> bool:
        return self.has("accuracy_gp")

    def number(self, name: str) -> float:
        """Return a number of the table, NaN where there is none."""
        return float(self.columns.get(name, math.nan))

    def has(self, name: str) -> bool:
        return math.isfinite(self.number(name))


@dataclass(frozen=True)
class SweepResults:
    """Results of a sweep: its Dataset, and those of its points; a file never written is None.

    Files are read when they are first asked for, and kept. Every property raises InputError for a
    file that is damaged or of another schema.
    """

    directory: Path

    @classmethod
    def held(cls, directory: Path, **known: Any) -> "SweepResults":
        """Results of which some are in memory: the dataset, the selection, ….

        What is not given is read from the directory when it is asked for.
        """
        sweep = cls(directory)
        vars(sweep).update(known)
        return sweep

    @cached_property
    def dataset(self) -> xr.Dataset:
        """The content of `sweep.nc`; InputError also where there is no such file."""
        return read_table(self.directory, SWEEP_DATASET_FILE)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The content of `sweep.csv`, a row for each point."""
        return table_of_sweep(self.dataset)

    @cached_property
    def points(self) -> list[PointSummary]:
        """Every point of the grid, in its order, whether anything is stored of it or not."""
        return points_of_dataset(self.dataset, self.directory)

    @cached_property
    def rows(self) -> list[PointSummary]:
        """The points by width where it is what tells them apart, else in the order of the grid."""
        widths = [point.number("width") for point in self.points]
        distinct = np.isfinite(widths).all() and len({*widths}) == len(widths)
        return [self.points[at] for at in np.argsort(widths)] if distinct else self.points

    @property
    def widths(self) -> np.ndarray | None:
        """The width of each row; None if the rows are not told apart by their width."""
        widths = self.numbers("width")
        return widths if (np.diff(widths) > 0).all() else None

    def numbers(self, name: str) -> np.ndarray:
        """Return a number of the table, [row], NaN where there is none."""
        return np.array([point.number(name) for point in self.rows])

    @property
    def subnetworks(self) -> list[str]:
        """Labels of the sub-networks whose Gaussian process limit was tabulated."""
        size = len(GAUSSIAN_PROCESS_PREFIX)
        return [name[size:] for name in self.table if name.startswith(GAUSSIAN_PROCESS_PREFIX)]

    @cached_property
    def runs(self) -> list[RunResults | None]:
        """The results of every row; None where nothing is stored."""
        places = [point.directory for point in self.rows]
        return [RunResults(place) if has_results(place) else None for place in places]

    @property
    def solved(self) -> RunResults | None:
        return next((run for run in self.runs if run is not None and run.theory is not None), None)

    @cached_property
    def selection(self) -> dict | None:
        """The content of `selection.json`: the points chosen by validation split or evidence."""
        path = self.directory / SELECTION_FILE
        return read_json(path) if path.is_file() else None

    @cached_property
    def finite_size(self) -> dict | None:
        """U_1 by width, and power laws, as `finite_size.json` has them."""
        return plain(finite_size(self.dataset))

    @cached_property
    def seed_averages(self) -> pd.DataFrame | None:
        """The content of `seed_averages.csv`; None where no seed is swept."""
        return seed_averages(self.points) if any(map(is_seed, self.dataset["point"].dims)) else None


# --- what is derived from the Dataset


def points_of_dataset(dataset: xr.Dataset, directory: Path) -> list[PointSummary]:
    """Return the points of a sweep, in the order of its grid."""
    table, shape = table_of_sweep(dataset), dataset["point"].shape
    differences = {
        name: dataset[f"difference_{name}"].values.reshape(len(table), -1)
        for name, _, _ in DIFFERENCE_FIELDS
        if f"difference_{name}" in dataset
    }
    keys = [str(key) for key in dataset["quantity"].values]
    points = []
    for row, place in enumerate(np.ndindex(shape)):
        axes = zip(dataset["point"].dims, place, strict=True)
        settings = {str(key): setting_at(dataset[key], at) for key, at in axes}
        found = {
            key: difference_from({name: v[row] for name, v in differences.items()}, number)
            for number, key in enumerate(keys)
        }
        of_row = dict(table.iloc[row])
        points.append(
            PointSummary(
                label=str(of_row["point"]),
                directory=directory / str(of_row["directory"]),
                settings=settings,
                one_width=int(of_row["width"]) if dataset["one_width"].values[place] else None,
                stored=bool(dataset["stored"].values[place]),
                columns=of_row,
                differences={key: one for key, one in found.items() if one is not None},
            )
        )
    return points


def setting_at(axis: xr.DataArray, place: int) -> Any:
    value = axis.values[place]
    if TOML not in axis.attrs:
        return value.item() if isinstance(value, np.generic) else value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:  # a word beside lists
        return value


def difference_from(values: Mapping[str, np.ndarray], column: int) -> Difference | None:
    """Return the difference in a column of its fields; None where nothing was compared."""
    found: dict[str, Any] = {}
    for name, missing, bounds in DIFFERENCE_FIELDS:
        if name not in values:
            return None
        at = values[name][2 * column : 2 * column + 2] if bounds else values[name][column]
        found[name] = tuple(map(float, at)) if bounds else type(missing)(at)
    if not found["state"]:
        return None
    return Difference(**found | {"elements": int(found["elements"])})


def finite_size(dataset: xr.Dataset) -> dict | None:
    """Return U_1 by width from theory and from every sampled space, with power laws in N.

    The theory to leading and to next order, which is NaN where it is not known. None unless the
    points differ by width (and space) alone, layers have one width, and some point is solved.
    """
    swept = set(dataset["point"].dims)
    if not {WIDTHS} <= swept <= {WIDTHS, SPACE} or dataset[WIDTHS].dtype.kind not in "iu":
        return None
    prefix, shape = "order_parameter_", dataset["point"].shape
    parts = {
        str(name).removeprefix(prefix): one.values.reshape(-1, *one.shape[len(shape) :])
        for name, one in dataset.items()
        if str(name).startswith(prefix)
    }
    theory, next_order, sampled = {}, {}, {}
    table = table_of_sweep(dataset)
    nothing = [""] * len(table)
    status, judged = (table.get(name, nothing) for name in ("next_order_status", "diagnostics"))
    for place, width in enumerate(map(int, table["width"])):
        known = {part: v[place] for part, v in parts.items() if np.isfinite(v[place]).any()}
        if "theory" in known:
            theory[width] = known["theory"]
            next_order[width] = known.get("next_order", np.full_like(known["theory"], np.nan))
        if "sampled" in known:
            of_space = sampled.setdefault(str(table["sampled_space"][place]), {})
            fine = status[place] == "fine"
            of_space[width] = known | {"trusted": judged[place] != FAILED, "fine": fine}
    if not theory:
        return None
    widths, names = sorted(theory), [str(name) for name in dataset["path"].values]
    content = {
        "paths": names,
        "theory": {
            "widths": widths,
            "order_parameter": [theory[w] for w in widths],
            f"order_parameter{NEXT_ORDER}": [next_order[w] for w in widths],
        },
        "sampled": {space: by_width(found) for space, found in sampled.items()},
    }
    if len(sampled.get("order_parameters", {})) >= 3:
        exact = content["sampled"]["order_parameters"]
        content["power_laws"] = power_laws(exact, names)
        if np.isfinite(exact[f"difference{NEXT_ORDER}"]).any():
            content[f"power_laws{NEXT_ORDER}"] = power_laws(exact, names, NEXT_ORDER)
    return content


def by_width(found: Mapping[int, Mapping[str, Any]]) -> dict:
    """Return U_1 of one space at every width: mean, MCSE, theory − sampled, next order − sampled.

    `trusted` says whether the samples of that width passed their diagnostics, `next_order_fine`
    whether the expansion in 1/N holds there. own: what theories of the user's own predict, by name.
    """
    widths = sorted(found)
    tables = [found[w] for w in widths]
    sampled = np.stack([np.array(table["sampled"], dtype=float) for table in tables])

    def stacked(key: str) -> np.ndarray:
        """Stack what is stored under a key at every width, NaN where there is nothing."""
        nothing = np.full(sampled.shape[1:], np.nan)
        return np.stack([np.array(table.get(key, nothing), dtype=float) for table in tables])

    own = dict.fromkeys(key for table in tables for key in table if key.startswith(OWN))
    return {
        "widths": widths,
        "trusted": [bool(table["trusted"]) for table in tables],
        "next_order_fine": [bool(table.get("fine")) for table in tables],
        "order_parameter": sampled,
        "mcse": stacked("mcse"),
        "difference": stacked("theory") - sampled,
        f"difference{NEXT_ORDER}": stacked("next_order") - sampled,
        **({"own": {key.removeprefix(OWN): stacked(key) for key in own}} if own else {}),
    }


def power_laws(exact: dict, names: list[str], order: str = "") -> list[dict]:
    """One power law for every diagonal element of U_1, of the points whose samples are trusted.

    order: `_next_order` for next order − sampled, of the points where the expansion holds, too.
    """
    used = np.array(exact["trusted"])
    if order:
        used &= np.array(exact["next_order_fine"])
    widths = np.array(exact["widths"])[used]
    difference, mcse = (exact[key][used] for key in (f"difference{order}", "mcse"))
    return [
        {"path": name} | asdict(fit_power_law(widths, difference[:, i, i], mcse[:, i, i]))
        for i, name in enumerate(names)
    ]


def is_seed(key: str) -> bool:
    """Whether a swept key only draws other random numbers."""
    return key.rpartition(".")[2] in ("seed", "head_seed")


def seed_averages(points: Sequence[PointSummary]) -> pd.DataFrame:
    """Return settings without seeds, the number of points, and every column's mean and error.

    Points that lack a number do not count for it; one number alone has no error.
    """
    groups: dict[str, list[PointSummary]] = {}
    for point in points:
        others = (setting_text(k, value) for k, value in point.settings.items() if not is_seed(k))
        groups.setdefault(",".join(others), []).append(point)
    rows = []
    for others, alike in groups.items():
        row: dict[str, object] = {"settings": others, "points": len(alike)}
        for name in points[0].columns:
            if name not in (*PLACES, *TEXTS):
                values = np.array([point.number(name) for point in alike])
                kept = values[np.isfinite(values)]
                row[name] = kept.mean() if kept.size else math.nan
                enough = kept.size > 1
                row[f"{name}_error"] = (
                    kept.std(ddof=1) / math.sqrt(kept.size) if enough else math.nan
                )
        rows.append(row)
    return pd.DataFrame(rows)


# --- verdicts: whether the samples can be trusted, and the trend with width


def sweep_trust(points: Sequence[PointSummary]) -> Verdict:
    """Return the number of points sampled, and those that failed their diagnostics."""
    sampled = [point for point in points if point.trusted is not None]
    failed = [point.label for point in sampled if not point.trusted]
    stored = sum(point.stored for point in points)
    reasons = () if stored == len(points) else (f"{stored} of {len(points)} points have results.",)
    if not sampled:
        return Verdict("neutral", "No point was sampled.", reasons)
    if failed:
        headline = (
            f"The samples of {len(failed)} of {len(sampled)} sampled points cannot be trusted."
        )
        return Verdict("bad", headline, (*reasons, f"Diagnostics failed at {', '.join(failed)}."))
    headline = f"The samples of all {len(sampled)} sampled points can be trusted."
    return Verdict("good", headline, reasons)


LAW = (
    "All points have the same number of examples: the 1/N of the theory is that of examples in "
    "proportion to N and does not apply here; at a fixed number theory and exact posterior share "
    "their first correction to infinite width, and no power is predicted."
)


def sweep_trend(points: Sequence[PointSummary], finite_size: Mapping | None) -> Verdict:
    """Whether theory and exact posterior approach each other as the width grows.

    They do where the 95 % interval of the relative difference of U_1 at the largest width lies
    below that at the smallest. Only points with trusted samples count, whatever their difference.
    finite_size: the content of `finite_size.json`.
    """
    compared = [p for p in points if p.trusted and p.one_width and p.differences]
    compared.sort(key=lambda point: point.one_width)
    widths = {point.one_width for point in compared}
    if len(widths) < 2:
        headline = "No trend with width: fewer than two widths have trusted samples and a theory."
        return Verdict("neutral", headline, _accuracy_reasons(points), _worst_and_best(points))
    if len(widths) < len(compared):
        headline = "Several points share a width: the table compares theory and samples at each."
        return Verdict("neutral", headline, _accuracy_reasons(points), _worst_and_best(points))
    one, other = (p.differences.get(HEADLINE) for p in (compared[0], compared[-1]))
    if one is None or other is None:
        return Verdict("neutral", "No trend with width: U₁ was not compared.")
    reasons = [
        f"{one.name}, N = {point.one_width}: {point.differences[HEADLINE].statement}."
        for point in compared
        if HEADLINE in point.differences
    ]
    fitted = "Fitted powers of N of the difference of U₁, from N = 30 on: "
    slopes = _slopes(finite_size, "power_laws")
    if slopes:
        reasons.append(f"{fitted}{slopes}. {LAW}")
    beyond = _slopes(finite_size, "power_laws_next_order")
    if beyond:
        reasons.append(f"{fitted.replace('of U₁', 'of U₁ to next order')}{beyond}.")
    reasons += _accuracy_reasons(points)
    short = _extent_at({f"N = {p.one_width}": p for p in (compared[0], compared[-1])})
    if other.interval[0] > one.interval[1]:
        headline = f"Theory and exact posterior differ more in {one.name} the larger the width."
        return Verdict("caution", headline, tuple(reasons), short)
    if other.interval[1] < one.interval[0]:
        headline = f"Theory and exact posterior differ less in {one.name} the larger the width."
        return Verdict("good", headline, tuple(reasons), short)
    headline = (
        f"The draws cannot tell whether theory and exact posterior differ less in {one.name} the "
        "larger the width."
    )
    return Verdict("neutral", headline, tuple(reasons), short)


def _extent_at(points: Mapping[str, PointSummary]) -> str:
    """A sentence on how far the theory is off at some points, each with the name of its place."""
    ends = {at: point.differences[HEADLINE] for at, point in points.items()}
    said = [f"{one.in_short} at {at}" for at, one in ends.items() if one.said]
    return f"{LEADING.capitalize()}, U₁: {', '.join(said)}." if said else ""


def _worst_and_best(points: Sequence[PointSummary]) -> str:
    """The same at the points where the theory is furthest from the samples and closest to them."""
    known = [point for point in points if point.trusted and HEADLINE in point.differences]
    known.sort(key=lambda point: -point.differences[HEADLINE].below)
    return _extent_at({point.label: point for point in (known[:1] + known[-1:])})


def _slopes(finite_size: Mapping | None, key: str) -> str:
    return "; ".join(
        f"{law['path']} {Number(law['slope'], law['slope_error'])}"
        for law in (finite_size or {}).get(key, ())
        if law.get("slope") is not None
    )


def _accuracy_reasons(points: Sequence[PointSummary]) -> tuple[str, ...]:
    solved = [p for p in points if p.one_width and p.solved]
    solved = sorted(solved, key=lambda point: point.one_width)
    widths = {point.one_width for point in solved}
    if not 2 <= len(widths) == len(solved):
        return ()
    said = []
    for point in (solved[0], solved[-1]):
        sampled = percent(point.number("accuracy_sampled"), point.number("accuracy_sampled_mcse"))
        exact = f", exact posterior {sampled}" if point.has("accuracy_sampled") else ""
        leading = percent(point.number("accuracy_theory"))
        said.append(f"{LEADING} {leading}{exact} at N = {point.one_width}")
    same, own = (percent(solved[0].number(f"accuracy_gp{of}")) for of in ("", "_own"))
    limit = f"{same} at the same temperature"
    if own.defined:
        limit = f"{own} tuned, {limit}"
    return (f"Accuracy: {'; '.join(said)}; {LIMIT} {limit}.",)
