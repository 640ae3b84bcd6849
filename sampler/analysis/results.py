"""The results of one run, from its directory or from memory, as every later stage takes them.

A stage that has just computed something hands it on in `RunResults.held`; a stage that starts from
files opens their directory. Either way what else is needed is read when it is asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sampler.analysis.attention_found import GROUP as ATTENTION_GROUP
from sampler.analysis.attention_found import AttentionFound
from sampler.analysis.compared import SampledAccuracy
from sampler.analysis.comparison import ComparedRun
from sampler.analysis.difference import Difference
from sampler.analysis.draws_table import PREDICTIONS, group_of
from sampler.analysis.labels import EXACT, LEADING, NEXT
from sampler.analysis.user_theories import is_stacked
from sampler.analysis.verdict import Verdict, saddle_point_converged, theory_verdict, trust_verdict
from sampler.errors import InputError
from sampler.mcmc.convergence import bulk_ess
from sampler.mcmc.diagnostics import Diagnostics
from sampler.mcmc.kept import evenly_spaced
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.storage.manifest import Manifest, read_manifest
from sampler.storage.results import (
    has_results,
    read_attribute,
    read_comparison,
    read_drawn,
    read_draws,
    read_table,
)
from sampler.storage.run_directory import (
    COMPARISON_FILE,
    DRAWS_FILE,
    RECIPE_FILE,
    TASK_FILE,
    THEORY_FILE,
    read_json,
)
from theory.observables import binomial_error

PRUNING_FILE = "pruning.json"
# So many test values and elements of U_1, evenly spread, are searched for the slowest.
MOST_SEARCHED = 20
# Of less than this, neither an autocorrelation nor an effective sample size means anything.
FEWEST_DRAWS = 20


@dataclass(frozen=True)
class RunResults:
    """Results of a run: those held in memory, and those in its directory.

    A file is read when it is first asked for, and kept; one that was never written is None. Every
    property raises InputError for a file that is damaged or of another schema.

    directory  None for results that are in memory alone
    """

    directory: Path | None

    @classmethod
    def held(cls, directory: Path | None, **known: Any) -> "RunResults":
        """Results of which some are in memory: theory, draws, comparison, recipe, task, ….

        What is not given, or None, is read from the directory when it is asked for.
        """
        run = cls(directory)
        # Where a cached property keeps what it has read.
        vars(run).update({name: value for name, value in known.items() if value is not None})
        return run

    def having(self, **known: Any) -> "RunResults":
        """Return these results and some more that are in memory."""
        run = type(self)(self.directory)
        vars(run).update(vars(self) | known)
        return run

    def _stored(self, name: str) -> bool:
        return self.directory is not None and (self.directory / name).is_file()

    def _table(self, name: str) -> xr.Dataset | None:
        return read_table(self.directory, name) if self._stored(name) else None

    @property
    def stored(self) -> bool:
        """Whether the directory holds a theory or draws."""
        return self.directory is not None and has_results(self.directory)

    @cached_property
    def recipe(self) -> Recipe | None:
        return load_recipe(self.directory / RECIPE_FILE) if self._stored(RECIPE_FILE) else None

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest: settings, and the stages finished; empty if there is none."""
        return Manifest() if self.directory is None else read_manifest(self.directory)

    @cached_property
    def theories(self) -> xr.Dataset | None:
        """The content of `theory.nc`: the theory, or columns of nonlinear values."""
        return self._table(THEORY_FILE)

    @cached_property
    def theory(self) -> xr.Dataset | None:
        """The theory of the network; None where there is none, or columns of nonlinear values."""
        return None if is_stacked(self.theories) else self.theories

    @cached_property
    def task(self) -> xr.Dataset | None:
        """The content of `task.nc`."""
        return self._table(TASK_FILE)

    @cached_property
    def draws(self) -> xr.DataTree | None:
        """The content of `draws.nc`."""
        return read_draws(self.directory) if self._stored(DRAWS_FILE) else None

    @cached_property
    def attention(self) -> AttentionFound | None:
        """Attention of learned heads, with errors; None where no attention was sampled."""
        there = self.drawn_attribute("learned_layers", ATTENTION_GROUP) is not None
        return AttentionFound(self.draws) if there else None

    @cached_property
    def comparison(self) -> ComparedRun | None:
        """The content of `comparison.json`."""
        if not self._stored(COMPARISON_FILE):
            return None
        return ComparedRun.from_json(read_comparison(self.directory))

    @cached_property
    def pruning(self) -> dict[str, Any] | None:
        """The content of `pruning.json`; None where no heads were removed."""
        if not self._stored(PRUNING_FILE):
            return None
        return read_json(self.directory / PRUNING_FILE, "prune")

    @property
    def reliability(self) -> Verdict:
        """On the samples: whether they can be trusted, every number beside its limit."""
        return trust_verdict(self.diagnostics)

    @property
    def trusted(self) -> bool | None:
        """Whether the samples passed their diagnostics; None where nothing was sampled."""
        return None if self.diagnostics is None else self.diagnostics.passed

    # --- parts of them

    def theory_values(self, name: str) -> np.ndarray | None:
        """A variable of `theory.nc`, or None if it is absent or has no finite entry."""
        if self.theory is None or name not in self.theory:
            return None
        values = np.asarray(self.theory[name].values, dtype=np.float64)
        return values if np.isfinite(values).any() else None

    def drawn(self, name: str, group: str | None = None) -> xr.DataArray | None:
        """A variable of `draws.nc`, None where there is none: large runs keep only moments.

        Draws are found in the group they belong to, everything else in the one that is named.

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
        return read_attribute(self.directory, name, group) if self._stored(DRAWS_FILE) else None

    @property
    def order_parameter_draws(self) -> xr.DataArray | None:
        """The draws of U_1, [chain, draw, path, path_]."""
        found = self.drawn("order_parameter")
        return None if found is None else found.transpose("chain", "draw", "path", "path_")

    @property
    def predictor_draws(self) -> xr.DataArray | None:
        """The draws of f, [chain, draw, test_example, …]."""
        return self.drawn("predictor")

    @property
    def labels_test(self) -> np.ndarray | None:
        """The labels of the test set, [test_example, output]."""
        found = self.drawn("labels_test", "predictions_constant_data")
        return None if found is None else found.values

    @property
    def path_names(self) -> list[str]:
        """The names along the `path` axis of U_1; none where U_1 is neither solved nor sampled."""
        source = self.theory["order_parameter"] if self.theory is not None else None
        source = self.order_parameter_draws if source is None else source
        return [] if source is None else [str(name) for name in source["path"].values]

    def compared(self, key: str) -> Any:
        """The comparison under a key of `comparison.json`; None where there is nothing."""
        return None if self.comparison is None else self.comparison.get(key)

    @property
    def sampled_accuracy(self) -> SampledAccuracy | None:
        """The sampled accuracy with its errors; None where there is none."""
        found = self.compared("accuracy")
        return None if found is None else found.sampled

    def theory_accuracy(self, name: str) -> float:
        """An accuracy of `theory.nc`; NaN where it is undefined."""
        column = f"accuracy_{name}"
        known = self.theory is not None and column in self.theory
        return float(self.theory[column]) if known else float("nan")

    @property
    def differences(self) -> Mapping[str, Difference]:
        """Key of `comparison.json` → theory against samples as a whole."""
        return {} if self.comparison is None else self.comparison.differences

    @property
    def diagnostics(self) -> Diagnostics | None:
        """The verdict on the draws; None where nothing was sampled or judged."""
        return None if self.comparison is None else self.comparison.diagnostics

    @property
    def diagnostics_passed(self) -> bool:
        """False only if sampling failed its diagnostics."""
        return self.trusted is not False

    @property
    def verdict(self) -> Verdict:
        """On the theory: that of the comparison, or that nothing was sampled or compared."""
        if self.comparison is not None:
            return self.comparison.verdict
        return theory_verdict(None, saddle_point_converged(self.theories), {})

    @property
    def order_parameters_of_theories(self) -> dict[str, np.ndarray]:
        """Name → U_1 of both orders and of the user's own theories, as far as it is known."""
        found = {
            LEADING: self.theory_values("order_parameter"),
            NEXT: self.theory_values("order_parameter_next_order"),
        }
        compared = self.compared("order_parameter")
        found |= (compared and compared.own) or {}
        return {name: matrix for name, matrix in found.items() if matrix is not None}

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
            for group in ("selected", PREDICTIONS)
            for name in ("predictor_mean", "predictor")
        )
        of_predictor = next((draws for draws in kept if draws is not None), None)
        for label, draws in (("predictor", of_predictor), ("$U_1$", self.order_parameter_draws)):
            if draws is not None:
                found |= slowest_element(label, draws)
        return {label: values for label, values in found.items() if usable(values)}

    # --- the settings they were found at

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
            known = self.theory is not None and self.drawn("temperature") is None
            return self.theory.attrs.get("temperature") if known else None
        if self.recipe.posterior.temperature_spread:
            return None
        return self.recipe.posterior.temperature

    def sampled_attention(self, layer: int) -> np.ndarray | None:
        """Mean attention [head, key, query] to the first example, heads in matched order.

        None where it was not sampled, or where not all queries are known.
        """
        if self.attention is None or layer not in self.attention.layers:
            return None
        found = self.attention.matrices(layer).values[0]
        return np.abs(found) if found.shape[-1] == found.shape[-2] else None

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
        parts = []
        if self.widths:
            same = len(set(self.widths)) == 1
            parts.append(f"$N$ = {self.widths[0] if same else self.widths}")
        if self.temperature is not None:
            parts.append(temperature_text(self.temperature))
        return ", ".join(parts)

    @property
    def sampled_label(self) -> str:
        """Name of the samples in a figure, with a warning if they are unsound."""
        return EXACT if self.diagnostics_passed else f"{EXACT} (diagnostics failed)"

    def test_set_error(self, accuracy: float) -> float | None:
        """√(a(1 − a)/tests), None where the number of test examples is not stored."""
        if self.theory is None or "test_example" not in self.theory.sizes:
            return None
        return binomial_error(accuracy, self.theory.sizes["test_example"])


def open_run(directory: Path) -> RunResults:
    """Open the results in a directory; InputError if it holds neither theory nor draws."""
    if not has_results(directory):
        remedy = f"holds neither {THEORY_FILE} nor {DRAWS_FILE}; name the directory of a "
        raise InputError("directory", directory, f"{remedy}finished run")
    return RunResults(Path(directory))


def temperature_text(temperature: float | None) -> str:
    """A temperature for a title; empty where there is none."""
    return "" if temperature is None else rf"$\mathcal{{T}}$ = {temperature:g}"


def usable(values: np.ndarray) -> bool:
    """Whether every chain is long enough, finite and moving."""
    moves = np.isfinite(values).all() and (values.std(axis=1) > 0).all()
    return bool(values.shape[1] >= FEWEST_DRAWS and moves)


def slowest_element(name: str, draws: xr.DataArray) -> dict[str, np.ndarray]:
    """Label → [chain, draw] of the element with the smallest bulk ESS; empty if none can be judged.

    draws: [chain, draw, …], of which an even selection of elements is searched.
    """
    shape = draws.shape[2:]
    flat = draws.values.reshape(*draws.shape[:2], -1)
    searched = evenly_spaced(flat.shape[2], MOST_SEARCHED)
    values = np.asarray(flat[..., searched], np.float64)
    sizes = np.where([usable(one) for one in np.moveaxis(values, -1, 0)], bulk_ess(values), np.nan)
    if np.isnan(sizes).all():
        return {}
    slowest = int(np.nanargmin(sizes))
    at = np.unravel_index(searched[slowest], shape)
    if str(draws.dims[-1]).endswith("_element"):  # some elements alone were kept
        at = (draws[draws.dims[-1]].values[searched[slowest]],)
    return {f"{name} [{', '.join(str(int(i)) for i in at)}]": values[..., slowest]}
