"""The results of one run, from its directory or from memory, as every later stage takes them."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sampler.analysis.comparison import ComparisonTree
from sampler.analysis.draws import group_of
from sampler.analysis.estimates import Averages, Estimate
from sampler.analysis.learned_heads import GROUP as ATTENTION_GROUP
from sampler.analysis.learned_heads import SampledHeads
from sampler.analysis.predictors import (
    LEADING,
    SAMPLED,
    TUNED_BY,
    is_users,
    number,
    predicted,
    predictor_name,
    predictors_of,
)
from sampler.analysis.verdict import Verdict, saddle_point_converged, theory_verdict, trust_verdict
from sampler.errors import InputError
from sampler.mcmc.diagnostics import Diagnostics
from sampler.settings.recipe import Recipe
from sampler.storage.directory import (
    COMPARISON_FILE,
    DRAWS_FILE,
    RECIPE_FILE,
    THEORY_FILE,
)
from sampler.storage.files import read_json
from sampler.storage.fingerprint import read_attributes
from sampler.storage.manifest import Manifest, read_manifest
from sampler.storage.result_files import (
    has_results,
    read_comparison,
    read_drawn,
    read_draws,
    read_table,
)

PRUNING_FILE = "pruning.json"


@dataclass(frozen=True)
class RunResults:
    """Results of a run: those given in memory, and those in its directory.

    A file is read when it is first asked for; one that was never written is None. Every property
    raises InputError for a file that is damaged or of another schema.

    directory  None for results that are in memory alone
    """

    directory: Path | None

    @classmethod
    def held(cls, directory: Path | None, **given: Any) -> "RunResults":
        """Results, some of them in memory: theory, draws, comparison, recipe, ….

        Missing arguments, or None, are read from the directory at first use.
        """
        run = cls(directory)
        # Where a cached property stores what it has read.
        vars(run).update({name: value for name, value in given.items() if value is not None})
        return run

    def having(self, **given: Any) -> "RunResults":
        """Return these results and some more that are in memory."""
        run = type(self)(self.directory)
        vars(run).update(vars(self) | given)
        return run

    def _stored(self, name: str) -> bool:
        return self.directory is not None and (self.directory / name).is_file()

    def _table(self, name: str) -> xr.Dataset | None:
        return read_table(self.directory, name) if self._stored(name) else None

    @property
    def stored(self) -> bool:
        """Whether the directory holds a theory or draws."""
        return self.directory is not None and has_results(self.directory)

    # --- files

    @cached_property
    def recipe(self) -> Recipe | None:
        return Recipe.load(self.directory / RECIPE_FILE) if self._stored(RECIPE_FILE) else None

    @cached_property
    def manifest(self) -> Manifest:
        """Settings, and the stages finished; empty if there is none."""
        return Manifest() if self.directory is None else read_manifest(self.directory)

    @cached_property
    def theory(self) -> xr.Dataset | None:
        """The content of `theory.nc`."""
        return self._table(THEORY_FILE)

    @cached_property
    def draws(self) -> xr.DataTree | None:
        """The content of `draws.nc`."""
        return read_draws(self.directory) if self._stored(DRAWS_FILE) else None

    @cached_property
    def comparison(self) -> ComparisonTree | None:
        """The content of `comparison.nc`."""
        stored = self._stored(COMPARISON_FILE)
        return ComparisonTree(read_comparison(self.directory)) if stored else None

    @cached_property
    def attention(self) -> SampledHeads | None:
        """Attention of learned heads, with errors; None where no attention was sampled."""
        there = self.drawn_attribute("learned_layers", ATTENTION_GROUP) is not None
        return SampledHeads(self.draws) if there else None

    @cached_property
    def pruning(self) -> dict[str, Any] | None:
        """The content of `pruning.json`; None where no heads were removed."""
        stored = self._stored(PRUNING_FILE)
        return read_json(self.directory / PRUNING_FILE, "prune") if stored else None

    # --- verdicts

    @property
    def diagnostics(self) -> Diagnostics | None:
        """The verdict on the draws; None where nothing was sampled or judged."""
        return None if self.comparison is None else self.comparison.diagnostics

    @property
    def trusted(self) -> bool | None:
        """Whether the samples passed their diagnostics; None where nothing was sampled."""
        return None if self.diagnostics is None else self.diagnostics.passed

    @property
    def reliability(self) -> Verdict:
        """On the samples: whether they can be trusted, each number with its limit."""
        return trust_verdict(self.diagnostics)

    @property
    def verdict(self) -> Verdict:
        """Verdict on the theory: that of the comparison, or that nothing was sampled or
        compared."""
        if self.comparison is not None:
            return self.comparison.verdict
        return theory_verdict(None, saddle_point_converged(self.theory), {})

    # --- parts of them

    def predicted(self, name: str, predictor: str = LEADING) -> np.ndarray | None:
        """An array of a predictor in `theory.nc`; None if it is absent or has no finite entry."""
        return predicted(self.theory, name, predictor)

    def theory_values(self, name: str) -> np.ndarray | None:
        """A variable of `theory.nc` without predictors, None if it has no finite entry."""
        if self.theory is None or name not in self.theory:
            return None
        values = np.asarray(self.theory[name].values, dtype=np.float64)
        return values if np.isfinite(values).any() else None

    def predictions(self, quantity: str) -> dict[str, np.ndarray]:
        """Predictor → an array, of the theories in `theory.nc` and the user's own."""
        arrays = {name: self.predicted(quantity, name) for name in predictors_of(self.theory)}
        elements = self._elements(quantity)
        for name in predictors_of(elements):
            if is_users(name):
                arrays[name] = predicted(elements, "predicted", name)
        return {name: values for name, values in arrays.items() if values is not None}

    def label_moments(self, predictor: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Mean and variance of the test labels [example, output] by a predictor; None if unknown.

        Those of the samples are of one Gaussian with the posterior's mean and variance.
        """
        labels = self.labels_test
        if labels is None or (predictor == SAMPLED and self.comparison is None):
            return None
        names = ("predictor_mean", "predictor_variance")
        if predictor == SAMPLED:
            estimates = [self.sampled(name) for name in names]
            moments = [estimate and estimate.value for estimate in estimates]
        else:
            moments = [self.predictions(name).get(predictor) for name in names]
        if any(moment is None for moment in moments):
            return None
        mean, variance = (np.asarray(moment).reshape(labels.shape) for moment in moments)
        if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
            return None
        return mean, variance + self.label_noise(predictor)

    def label_noise(self, predictor: str) -> float:
        """The temperature of a predictor; where it was sampled, its mean over the draws.

        Over the draws whose predictors were kept, since these are averaged.
        """
        given = float(self.drawn("temperature", "constant_data"))
        if predictor != SAMPLED:
            return given if is_users(predictor) else number(self.theory, "temperature", predictor)
        drawn = self.drawn("temperature")
        if drawn is None:
            return given
        predictors = (self.drawn(name) for name in ("predictor_mean", "predictor"))
        kept = next((values for values in predictors if values is not None), None)
        if kept is not None and "draw" in kept.coords:
            drawn = drawn.sel(draw=kept["draw"])
        return float(self.averages.centre(drawn.values))

    def sampled(self, quantity: str) -> Estimate | None:
        """The posterior mean of an array with its Monte Carlo error; None if unknown."""
        elements = self._elements(quantity)
        if elements is None:
            return None
        return Estimate(elements["sampled"].values, elements["error"].values)

    def _elements(self, quantity: str) -> xr.Dataset | None:
        return None if self.comparison is None else self.comparison.elements(quantity)

    def drawn(self, name: str, group: str | None = None) -> xr.DataArray | None:
        """A variable of `draws.nc`, None where there is none: large runs keep only moments.

        Draws are in the group they belong to, everything else in the one that is named.

        Unless all draws are in memory it is read whenever it is asked for, alone: the draws of all
        points of a sweep together can be more than the memory holds.
        """
        group = group or group_of(name)
        if "draws" not in vars(self):
            stored = self._stored(DRAWS_FILE)
            return read_drawn(self.directory, name, group) if stored else None
        there = self.draws is not None and group in self.draws and name in self.draws[group]
        return self.draws[group][name] if there else None

    def drawn_attribute(self, name: str, group: str) -> Any:
        """An attribute of a group of `draws.nc`; None where there is none."""
        if "draws" in vars(self):
            there = self.draws is not None and group in self.draws
            return self.draws[group].attrs.get(name) if there else None
        stored = self._stored(DRAWS_FILE)
        return read_attributes(self.directory / DRAWS_FILE, group).get(name) if stored else None

    @property
    def order_parameter_draws(self) -> xr.DataArray | None:
        """The draws of U_1, [chain, draw, path, path_]."""
        draws = self.drawn("order_parameter")
        return None if draws is None else draws.transpose("chain", "draw", "path", "path_")

    @cached_property
    def averages(self) -> Averages:
        """How draws are averaged: chains alike, or repetitions by their weights."""
        names = ("ancestor", "log_evidence")
        statistics = {name: self.drawn(name, "sample_stats") for name in names}
        return Averages.of({n: v.values for n, v in statistics.items() if v is not None})

    @property
    def labels_test(self) -> np.ndarray | None:
        """The labels of the test set, [test_example, output]."""
        labels = self.drawn("labels_test", "predictions_constant_data")
        return None if labels is None else labels.values

    @property
    def path_names(self) -> list[str]:
        """The names along the `path` axis of U_1; none where U_1 is neither solved nor sampled."""
        solved = self.theory is not None and "path" in self.theory.coords
        source = self.theory if solved else self.order_parameter_draws
        return [] if source is None else [str(name) for name in source["path"].values]

    # --- names and settings

    def name_of(self, predictor: str) -> str:
        """The name of a predictor here, the samples with a warning if they are unsound."""
        tuned_by = None if self.theory is None else self.theory.attrs.get(TUNED_BY)
        failed = predictor == SAMPLED and self.trusted is False
        name = predictor_name(predictor, tuned_by)
        return f"{name} (diagnostics failed)" if failed else name

    @property
    def widths(self) -> tuple[int, ...] | None:
        """The widths as the recipe has them, one for all layers or one for each."""
        if self.recipe is None:
            widths = None if self.theory is None else self.theory.attrs.get("widths")
            return None if widths is None else tuple(map(int, np.atleast_1d(widths)))
        widths = self.recipe.network.widths
        if self.recipe.network.is_infinite:
            return None
        return (widths,) if isinstance(widths, int) else tuple(widths)

    @property
    def temperature(self) -> float | None:
        """The temperature; None where it was sampled."""
        if self.recipe is None:
            given = self.theory is not None and self.drawn("temperature") is None
            return self.theory.attrs.get("temperature") if given else None
        return self.recipe.posterior.given_temperature

    @property
    def space(self) -> str | None:
        """The space that was sampled, or that the recipe names."""
        if self.manifest.choice is not None:
            return self.manifest.choice["space"]
        if self.recipe is None and self.draws is not None:
            return self.draws["posterior"].attrs.get("space")
        return None if self.recipe is None else self.recipe.sampler.space

    @property
    def setting(self) -> str:
        """Width and temperature for a title, such as `N = 10, T = 0.01`; empty if not stored."""
        same = self.widths and len(set(self.widths)) == 1
        widths = f"$N$ = {self.widths[0] if same else self.widths}" if self.widths else ""
        return ", ".join(filter(None, [widths, temperature_text(self.temperature)]))


def open_run(directory: Path) -> RunResults:
    """Open the results in a directory; InputError if it holds neither theory nor draws."""
    if not has_results(directory):
        remedy = f"holds neither {THEORY_FILE} nor {DRAWS_FILE}; name the directory of a "
        raise InputError("directory", directory, f"{remedy}finished run")
    return RunResults(Path(directory))


def temperature_text(temperature: float | None) -> str:
    """A temperature for a title; empty where there is none."""
    return "" if temperature is None else rf"$\mathcal{{T}}$ = {temperature:g}"
