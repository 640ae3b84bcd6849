"""Runs and sweeps from Python, stored in directories as on the command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampler.api.recipes import (
    RecipeOrPath,
    carried_out,
    doubts_of_theory,
    recipe_from,
    warn_of,
)
from sampler.errors import ABSENT, InputError, ReliabilityWarning, Verbatim
from sampler.settings.recipe import AnyRecipe, Recipe
from sampler.settings.toml import read_toml
from sampler.storage.directory import RECIPE_FILE, find_directory

if TYPE_CHECKING:
    import pandas
    import xarray as xr
    from matplotlib.figure import Figure

    from sampler.analysis.learned_heads import SampledHeads
    from sampler.analysis.results import RunResults
    from sampler.analysis.sweep_results import SweepResults
    from sampler.analysis.verdict import Verdict
    from sampler.presentation.notebook import Comparison
    from sampler.presentation.several_runs import Models


# --- stored results


@dataclass(frozen=True, repr=False)
class Stored:
    """Base of runs and sweeps: a directory with results, figures and a page."""

    directory: Path

    if TYPE_CHECKING:
        verdict: Verdict
        reliability: Verdict
        _parts: list[Any]

    def __post_init__(self) -> None:
        # Files are read later, when the working directory may be another one.
        object.__setattr__(self, "directory", Path(self.directory).absolute())

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe that was run."""
        return Recipe.load(self.directory / RECIPE_FILE)

    def report(self) -> Path:
        """Write `report.html`, everything on one page, and the figures; the path of the page."""
        from sampler.presentation.report import write_report

        return write_report(self.directory)[-1]

    def __repr__(self) -> str:
        verdicts = f"{self.verdict.headline} {self.reliability.headline}"
        return f"{type(self).__name__}({str(self.directory)!r}): {verdicts}"

    def __str__(self) -> str:
        return "\n".join([*map(str, self._parts), f"results: {self.directory}"])

    def _repr_html_(self) -> str:
        parts = "".join(part._repr_html_() for part in self._parts)
        return f"{parts}<p>results: <code>{escape(str(self.directory))}</code></p>"


@dataclass(frozen=True, repr=False)
class Run(Stored):
    """A run in its directory; each file is read when it is first asked for.

    `print` shows the comparison, or the verdicts where there is none.
    """

    @cached_property
    def _results(self) -> "RunResults":
        from sampler.analysis.results import open_run

        return open_run(self.directory)

    @property
    def theory(self) -> "xr.Dataset | None":
        """The theory, as `solve` returns it; None where there is none."""
        return self._results.theory

    @property
    def draws(self) -> "xr.DataTree | None":
        """The draws, as `sample` returns them; None where nothing was sampled."""
        return self._results.draws

    @property
    def attention(self) -> "SampledHeads | None":
        """Attention of learned heads, with errors; None where no attention was sampled."""
        return self._results.attention

    @property
    def comparison(self) -> "Comparison | None":
        """The comparison, as `compare` returns it; None without draws, or without a theory."""
        from sampler.presentation.notebook import Comparison

        results = self._results
        is_compared = results.comparison is not None and results.theory is not None
        return Comparison.of(results) if is_compared else None

    @property
    def verdict(self) -> "Verdict":
        """On the theory: verdict from the samples."""
        return self._results.verdict

    @property
    def reliability(self) -> "Verdict":
        """On the samples: whether they can be trusted, each number with its limit."""
        return self._results.reliability

    @property
    def trusted(self) -> bool | None:
        """Whether the samples passed their diagnostics; None where nothing was sampled."""
        return self._results.trusted

    def plot(self, figure: str = "theory_against_draws", **options: Any) -> "Figure":
        """A figure by its name in the folder `figures`; InputError for one that there is not.

        `plot("kernels", paths=True)` has, below, the kernels of pairs of paths.
        """
        from sampler.presentation.figures.catalogue import draw_figure

        return draw_figure(self._results, figure, **options)

    @property
    def _parts(self) -> list[Any]:
        comparison = self.comparison
        return [self.verdict, self.reliability] if comparison is None else [comparison]


@dataclass(frozen=True, repr=False)
class Sweep(Stored):
    """A sweep in its directory: its points, its table, and the verdicts on all of them."""

    @cached_property
    def _results(self) -> "SweepResults":
        from sampler.analysis.sweep_dataset import stored_sweep

        return stored_sweep(self.directory)

    @property
    def points(self) -> dict[str, Run | None]:
        """Label `key=value,…` → the run; None where nothing is stored yet."""
        rows = self._results.rows
        return {row.label: Run(row.directory) if row.stored else None for row in rows}

    @property
    def table(self) -> "pandas.DataFrame":
        """The content of `sweep.csv`, a row for each point, numbers as numbers."""
        return self._results.table.set_index("point")

    @property
    def dataset(self) -> "xr.Dataset":
        """The content of `sweep.nc`: table, differences and U₁ over the swept keys."""
        return self._results.dataset

    @property
    def verdict(self) -> "Verdict":
        """On the theory: whether its relative error in U₁ falls with the width."""
        from sampler.analysis.sweep_results import sweep_trend

        return sweep_trend(self._results.points)

    @property
    def reliability(self) -> "Verdict":
        """On the samples: at how many points they can be trusted."""
        from sampler.analysis.sweep_results import sweep_trust

        return sweep_trust(self._results.points)

    def plot(self, figure: str = "accuracy_against_width") -> "Figure":
        """A figure by its name in the folder `figures`; InputError for one that there is not."""
        from sampler.presentation.figures.catalogue import draw_figure

        return draw_figure(self._results, figure)

    @property
    def _parts(self) -> list[Any]:
        from sampler.presentation.several_runs import points_table

        return [self.verdict, self.reliability, points_table(self._results.points)]


def open_results(directory: str | PathLike[str]) -> Run | Sweep:
    """Open the results of an earlier run or sweep.

    directory  where they are

    Raises InputError if there are none.
    """
    folder = find_directory(Path(directory))
    return Sweep(folder) if read_toml(folder / RECIPE_FILE).get("sweep") else Run(folder)


def compare_models(runs: "Sequence[Run | str | Path] | Mapping[str, Run | str | Path]") -> "Models":
    """Compare runs with the same training labels by leave-one-out cross-validation.

    runs  runs or their directories; a mapping names them

    Every run brings its network, by the exact posterior, and infinite width as models; the leading
    order stands in only for samples that are missing or not to be trusted. The result has `plot()`,
    and `to_dataframe()` for the numbers. Raises InputError where the training labels are not the
    same, and for a run that has nothing to compare.
    """
    from sampler.analysis.model_comparison import compare_directories
    from sampler.presentation.several_runs import Models

    if not runs:
        raise InputError("runs", runs, "name at least one run")
    names = list(runs) if isinstance(runs, Mapping) else None
    each = runs.values() if isinstance(runs, Mapping) else runs
    directories = [run.directory if isinstance(run, Run) else Path(run) for run in each]
    return Models(compare_directories(directories, names))


# --- commands


def run(
    recipe: RecipeOrPath,
    *,
    out: str | PathLike[str] | None = None,
    figures: bool = True,
    progress: bool = True,
) -> Run:
    """Do everything for a recipe, as `attention-posterior run`, and open the results.

    recipe    a `Recipe`, or the path of a TOML file
    out       where results go; None: `runs/results/<name>-<hash>`
    figures   draw the figures; `report()` of the result does so later
    progress  print progress on stdout and stderr

    Called again, an interrupted run continues, and a finished one is opened. Arrays of a
    task in memory are kept in the directory. Raises InputError for unusable input. A
    `ReliabilityWarning` is issued where diagnostics fail, or a saddle point did not converge.
    """
    from sampler.jobs.run import start_run

    chosen = recipe_from(recipe)
    if chosen.sweep:
        remedy = "this recipe has a grid of points: use sampler.sweep"
        raise InputError("sweep", chosen.sweep, remedy)
    done = Run(carried_out("run", chosen, out, start_run, figures, progress))
    doubts = doubts_of_theory(done.theory)
    doubts += [str(done.reliability)] if done.trusted is False else []
    warn_of(doubts, ReliabilityWarning)
    return done


def sweep(
    recipe: RecipeOrPath,
    over: Mapping[str, Sequence[Any]] | None = None,
    *,
    out: str | PathLike[str] | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    figures: bool = True,
    progress: bool = True,
) -> Sweep:
    """Run a recipe at every point of a grid, as `attention-posterior sweep`, and open the results.

    recipe     a `Recipe`, or the path of a TOML file
    over       values of settings, such as {"network.widths": [10, 100]}; None: the recipe's own
    out        where results go; None: `runs/results/<name>-<hash>`
    workers    number of processes of this machine, which load installed extensions only: a task, an
               algorithm or anything else that the script itself has registered is refused
    scheduler  address of a Dask cluster, as in "tcp://host:8786"
    figures    draw the figures of all points and of the sweep
    progress   print progress on stdout and stderr

    A point that fails stops no other one; called again, points that are finished are left as they
    are. Raises InputError for unusable input. A `ReliabilityWarning` names the points whose
    diagnostics fail or whose saddle point did not converge.
    """
    from sampler.jobs.sweep import start_sweep

    grid = recipe_from(recipe)
    if over:
        grid = grid.changed({f"sweep.{key}": list(values) for key, values in over.items()})
    if not grid.sweep:
        remedy = 'name what to vary, as in over={"network.widths": [10, 100]}'
        raise InputError("over", ABSENT, remedy)
    start = partial(start_sweep, workers=workers, scheduler=scheduler)
    done = Sweep(carried_out("run", grid, out, start, figures, progress))
    doubts = [
        f"{label}: {doubt}"
        for label, point in done.points.items()
        for doubt in (doubts_of_theory(point.theory) if point else [])
    ]
    doubts += [str(done.reliability)] if done.reliability.tone == "bad" else []
    warn_of(doubts, ReliabilityWarning)
    return done


def check(recipe: RecipeOrPath) -> str:
    """Validate a recipe and its data: sizes, settings in force and memory, as text.

    recipe  a `Recipe`, or the path of a TOML file, of a run or of a training

    Raises InputError for unusable input.
    """
    from sampler.jobs.check import check_recipe

    return Verbatim(check_recipe(recipe_from(recipe, AnyRecipe)))
