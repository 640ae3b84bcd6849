"""Stored results of a run and of a sweep, as figures and pages show them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from arviz_stats.base import array_stats

from sampler.analysis.as_json import from_json
from sampler.analysis.comparison import ComparedRun
from sampler.analysis.difference import Difference
from sampler.analysis.pruning_table import PruningTable
from sampler.analysis.verdict import Verdict, saddle_point_converged, theory_verdict
from sampler.mcmc.diagnostics import AXES, Diagnostics
from sampler.presentation.style import EXACT, LEADING, NEXT, NEXT_ORDER, THEORY, own_colour
from sampler.recipes.recipe import load_recipe
from sampler.storage.manifest import Manifest
from sampler.storage.results import RunResults, has_results, open_run
from sampler.storage.run_directory import RECIPE_FILE, plain, read_json
from sampler.storage.sweeps import SweepResults, swept_points
from theory.observables import binomial_error

PRUNING_FILE = "pruning.json"
COMPARED_BEFORE = Verdict(
    "neutral",
    "Theory and samples were compared by an earlier version, which drew no such conclusion: "
    "`compare` gives the verdict.",
)
# So many test values and elements of U_1, evenly spread, are searched for the slowest.
MOST_SEARCHED = 20
# Of less than this, neither an autocorrelation nor an effective sample size means anything.
FEWEST_DRAWS = 20


@dataclass(frozen=True)
class ShownRun(RunResults):
    """What a run directory holds, the comparison as values and not as text."""

    @classmethod
    def held(
        cls, theory: xr.Dataset | None, draws: xr.DataTree | None, results: ComparedRun | None
    ) -> "ShownRun":
        """Results in memory, which no directory holds."""
        run = cls(Path())
        # Where a cached property keeps what it has read.
        vars(run).update(
            theory=theory, draws=draws, results=results, task=None,
            comparison=None if results is None else plain(results.to_json()),
            recipe=None, manifest=Manifest(), pruning=None,
        )  # fmt: skip
        return run

    @cached_property
    def results(self) -> ComparedRun | None:
        """The content of `comparison.json`."""
        return None if self.comparison is None else ComparedRun.from_json(self.comparison)

    def compared_as(self, key: str) -> Any:
        """What is compared under a key of `comparison.json`; None where there is nothing."""
        return None if self.results is None else self.results.get(key)

    @property
    def diagnostics(self) -> Diagnostics | None:
        """The verdict on the draws; None where nothing was sampled or judged."""
        return None if self.results is None else self.results.diagnostics

    @property
    def differences(self) -> Mapping[str, Difference]:
        """Key of `comparison.json` → theory against samples as a whole."""
        return {} if self.results is None else self.results.differences

    @property
    def verdict(self) -> Verdict:
        """On the theory: the stored one, or that nothing was sampled or compared."""
        if self.results is not None and self.results.verdict is not None:
            return self.results.verdict
        converged = saddle_point_converged(self.theory)
        trusted = None if self.diagnostics is None else self.diagnostics.passed
        return COMPARED_BEFORE if trusted and converged else theory_verdict(trusted, converged, {})

    @property
    def setting(self) -> str:
        """Width and temperature for a title, such as `N = 10, T = 0.01`; empty if not stored."""
        parts = []
        if self.widths:
            same = len(set(self.widths)) == 1
            parts.append(f"$N$ = {self.widths[0] if same else self.widths}")
        if self.temperature is not None:
            parts.append(temperature_text(self.temperature))
        return ", ".join(parts)

    @property
    def sampled_label(self) -> str:
        """How the samples are named in a figure, with a warning if they are unsound."""
        return EXACT if self.diagnostics_passed else f"{EXACT} (diagnostics failed)"

    def test_set_error(self, accuracy: float) -> float | None:
        """√(a(1 − a)/tests), None where the number of test examples is not stored."""
        if self.theory is None or "test_example" not in self.theory.sizes:
            return None
        return binomial_error(accuracy, self.theory.sizes["test_example"])

    @property
    def order_parameters_of_theories(self) -> list[tuple[str, np.ndarray, str]]:
        """Name, U_1 and colour of both orders and of the user's own theories, where known."""
        found = [
            (LEADING, self.theory_values("order_parameter"), THEORY),
            (NEXT, self.theory_values("order_parameter_next_order"), NEXT_ORDER),
        ]
        compared = self.compared_as("order_parameter")
        own = (compared and compared.own) or {}
        found += [(name, one, own_colour(i)) for i, (name, one) in enumerate(own.items())]
        return [one for one in found if one[1] is not None]

    @cached_property
    def pruning(self) -> PruningTable | None:
        """The content of `pruning.json`."""
        file = self.directory / PRUNING_FILE
        return from_json(PruningTable, read_json(file, "prune")) if file.is_file() else None

    @cached_property
    def slowest_series(self) -> dict[str, np.ndarray]:
        """Label → [chain, draw] of numbers that mean the same in every space that is sampled.

        The log posterior, and of predictor and U_1 the element with the smallest bulk effective
        sample size, as far as they were kept and can be judged.
        """
        found = {}
        density = self.drawn("lp", "sample_stats")
        if density is not None:
            found["log posterior"] = np.asarray(density.values, np.float64)
        kept = (
            self.drawn(name, group)
            for group in ("posterior", "selected")
            for name in ("predictor_mean", "predictor")
        )
        of_predictor = next((draws for draws in kept if draws is not None), None)
        for label, draws in (("predictor", of_predictor), ("$U_1$", self.order_parameter_draws)):
            if draws is not None:
                found |= slowest_element(label, draws)
        return {label: values for label, values in found.items() if usable(values)}


def open_shown(directory: Path) -> ShownRun:
    """The results in a directory; InputError if it holds neither theory nor draws."""
    return ShownRun(open_run(directory).directory)


def usable(values: np.ndarray) -> bool:
    """Whether every chain is long enough, finite and moving."""
    moves = np.isfinite(values).all() and (values.std(axis=1) > 0).all()
    return bool(values.shape[1] >= FEWEST_DRAWS and moves)


def slowest_element(name: str, draws: xr.DataArray) -> dict[str, np.ndarray]:
    """Label → [chain, draw] of the element with the smallest bulk ESS; empty if none can be judged.

    draws: [chain, draw, …], of which an even selection of elements is searched.
    """
    shape = draws.shape[2:]
    elements = int(np.prod(shape))
    searched = np.unique(np.linspace(0, elements - 1, min(elements, MOST_SEARCHED)).astype(int))
    found: dict[str, np.ndarray] = {}
    smallest = np.inf
    for place in searched:
        at = np.unravel_index(place, shape)
        values = np.asarray(draws.values[(..., *at)], np.float64)
        if not usable(values):
            continue
        ess = float(array_stats.ess(values, method="bulk", **AXES))
        if ess < smallest:
            smallest = ess
            if str(draws.dims[-1]).endswith("_element"):  # some elements alone were kept
                at = (draws[draws.dims[-1]].values[place],)
            found = {f"{name} [{', '.join(str(int(i)) for i in at)}]": values}
    return found


@dataclass(frozen=True)
class ShownSweep(SweepResults):
    """What the directory of a sweep holds, and its runs."""

    @cached_property
    def runs(self) -> list[ShownRun | None]:
        """The results of every row of the table; None where nothing is stored."""
        return [ShownRun(p) if has_results(p) else None for p in self.table.directories]

    @cached_property
    def settings(self) -> Mapping[str, Mapping[str, Any]]:
        """Label of a point → the swept keys and their values there; empty without a recipe."""
        path = self.directory / RECIPE_FILE
        points = swept_points(self.directory, load_recipe(path)) if path.is_file() else []
        return {point.label: point.settings for point in points}

    @property
    def solved(self) -> ShownRun | None:
        """The first run that has a theory."""
        return next((run for run in self.runs if run is not None and run.theory is not None), None)


def temperature_text(temperature: float | None) -> str:
    """A temperature for a title; empty where there is none."""
    return "" if temperature is None else rf"$\mathcal{{T}}$ = {temperature:g}"
