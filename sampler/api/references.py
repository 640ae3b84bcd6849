"""Reference posteriors: problems with known values, which samplers and theories are judged by."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from sampler.analysis.functionals import (
    POWERS,
    PREDICTOR,
    PROBABILITIES,
    Expectations,
    FunctionalsOfData,
    Values,
    along,
    deviations,
    expectations_of_chains,
    expectations_of_predictor,
    slices,
    stored_elements,
)
from sampler.api.recipes import data_of
from sampler.errors import InputError, Verbatim
from sampler.mcmc.convergence import bulk_ess
from sampler.settings.gallery import GALLERY
from sampler.settings.recipe import Recipe
from theory.architecture import order_parameter_names

if TYPE_CHECKING:
    import xarray as xr

    from sampler.posterior.exported import FlatDensity

FOLDER = GALLERY / "references"
# Third and fourth moments have errors too uncertain for a verdict.
JUDGED = (0, 1, *range(len(POWERS), len(POWERS) + len(PROBABILITIES)))
FAR, BEYOND = 2.0, 4.5


def references() -> list[str]:
    """Names of all reference posteriors, open problems included."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def reference(name: str) -> "Reference":
    """A reference posterior: task, network, densities, values, and the scores of what is judged.

    name  one of `references()`
    """
    if name not in references():
        raise InputError("name", name, f"use one of {', '.join(references())}")
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    return Reference(name, json.loads(text))


@dataclass(frozen=True)
class Reference:
    """A problem whose posterior is known.

    name    of the problem
    record  what is stored of it: sizes, tags, `info` under the names of posteriordb, values with
            their Monte Carlo errors, the agreement of two methods, theories and samplers
    """

    name: str
    record: dict[str, Any] = field(repr=False)

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe; `recipe.numpyro_model(…)` and `recipe.log_density(…)` are two densities."""
        return Recipe.load(FOLDER / f"{self.name}.toml")

    @property
    def task(self) -> Any:
        """The section of the task."""
        return self.recipe.task

    @property
    def network(self) -> Any:
        """The section of the network."""
        return self.recipe.network

    @property
    def tags(self) -> list[str]:
        """What makes the problem hard, or known."""
        return self.record["tags"]

    @property
    def open(self) -> str | None:
        """Why this is an open problem, not a reference; None for a reference."""
        return self.record["open"]

    @property
    def values(self) -> dict[str, dict]:
        """Values by functional: mean, deviation, moments and quantiles, each with its error.

        An open problem may have none.
        """
        return self.record.get("values", {})

    @property
    def log_evidence(self) -> dict[str, Any] | None:
        """ln p(y): value, error `mcse`, method, and what other methods found."""
        return self.record.get("log_evidence")

    def log_density(self, space: str = "weights") -> "FlatDensity":
        """The posterior as a function of JAX of one vector; see `Recipe.log_density`."""
        return self.recipe.log_density(space)

    @cached_property
    def plain(self) -> dict[str, Any]:
        """Sizes and arrays, for the functions of `density.py`, which need NumPy alone."""
        return plain_density().load(self.name)

    def plain_log_density(self, point: np.ndarray) -> float:
        """The same as `log_density`, of all weights, by NumPy."""
        return float(plain_density().log_density(self.plain, np.asarray(point, float)))

    @cached_property
    def data(self) -> FunctionalsOfData:
        """The examples, as functionals of draws need them."""
        return functionals_data(self.record, self.plain["arrays"])

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what is known of one draw: vectors of all weights, their sites, U_l."""
        found = dict(plain_density().shapes(self.plain)) if self.record["checks"] else {}
        if found:
            found["point"] = (sum(map(math.prod, found.values())),)
        if self.data.attended is None:
            return found
        heads = self.record["network"]["heads"]
        for layer, name in enumerate(order_parameter_names(len(heads))):
            found[name] = (math.prod(heads[layer:]) * self.data.outputs,) * 2
        return found

    # --- judging

    def functionals(self, draws: "Mapping[str, Any] | xr.DataTree") -> Values:
        """Functionals of draws by name, [chain, draw, element].

        draws  arrays [chain, draw, …] by name: order parameters under their names in `draws.nc`, or
               all weights under the names of their sites, or `point`, vectors of all weights; what
               `sample` returns
        """
        given: Any = draws
        if hasattr(given, "children"):
            in_weights = not given["posterior"].data_vars  # `sampler.weight_draws` of them
            given = given["posterior_weights" if in_weights else "posterior"].data_vars
        arrays = {name: np.asarray(given[name], float) for name in given}
        refuse_unfit(arrays, self.shapes, ("chain", "draw"))
        if "order_parameter" in arrays and self.data.attended is not None:
            return self.data.of_order_parameters(arrays)
        return functionals_of_weights(self.plain, self.data, arrays)

    def score(
        self, judged: "Mapping[str, Any] | xr.Dataset | xr.DataTree", gradients: int | None = None
    ) -> "SamplerScore | dict[str, dict[str, float]]":
        """Judge draws, or a theory.

        judged     draws, as `functionals` takes them; or a theory: what `solve` returns, or arrays
                   under the names that they have there, without its axis of predictors
        gradients  of the log density that the draws took, warm-up included

        Draws have a `SamplerScore`. A theory has, by functional, its relative error, that of the
        reference, and how many errors of the reference the worst element is off; what `solve`
        returns has such a table for each predictor.
        """
        if not hasattr(judged, "keys"):
            known = ", ".join((*self.shapes, *sorted(NAMES_OF_THEORY - self.shapes.keys())))
            received = Verbatim(f"({type(judged).__name__})")
            raise InputError("judged", received, f"give arrays by name: {known}")
        if not self.values:
            raise InputError("name", self.name, f"an open problem: {self.open}")
        solved: Any = judged
        if hasattr(solved, "coords") and "predictor" in solved.coords:
            of_theories = {
                str(name): solved.sel(predictor=name) for name in solved.predictor.values
            }
            return {
                name: self._score_of_theory(table)
                for name, table in of_theories.items()
                if np.isfinite(table.get("predictor_mean", np.nan)).any()
            }
        if hasattr(judged, "children") or self._are_draws(judged):
            return self._score_of_draws(self.functionals(judged), gradients)
        return self._score_of_theory(judged)

    def _are_draws(self, judged: Mapping[str, Any]) -> bool:
        if "order_parameter" in judged:
            return np.ndim(judged["order_parameter"]) == 4
        return not {"predictor_mean", "predictor_variance", "log_evidence"} & set(judged)

    def expected(self, group: str) -> Expectations:
        """The means that draws are compared with, of one functional."""
        return expected_of(self.values[group])

    def _score_of_draws(self, found: Values, gradients: int | None) -> "SamplerScore":
        z, squares, sizes = {}, [], []
        for group, values in self.values.items():
            if group not in found and group != PREDICTOR:
                continue
            centre, expected = np.array(values["mean"]), self.expected(group)
            if group in found:
                quantiles = np.transpose(values["quantiles"]) if "quantiles" in values else []
                seen = expectations_of_chains(found[group], centre, quantiles)
                spread = np.array(values["sd"])
                squares.append((seen.means[0][spread > 0] / spread[spread > 0]) ** 2)
                sizes.append(bulk_ess(found[group])[spread > 0])
            else:
                moments = found["predictor_mean"], found["predictor_variance"]
                seen = expectations_of_predictor(*moments, centre)
            z[group] = deviations(seen, expected)
        root = math.sqrt(np.concatenate(squares).mean())
        return SamplerScore(z, root, float(np.concatenate(sizes).min()), gradients)

    def _score_of_theory(self, theory: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        predicted = {}
        given = {
            name: np.asarray(theory[name], float) for name in theory if name in NAMES_OF_THEORY
        }
        matrices = {name: one for name, one in given.items() if "order_parameter" in name}
        if matrices:
            refuse_unfit(matrices, self.shapes, ())
        tests = len(self.plain["arrays"]["labels_test"]), len(self.data.labels_test)
        for name in {"predictor_mean", "predictor_variance"} & given.keys():
            if given[name].size not in [count * self.data.outputs for count in tests]:
                remedy = (
                    f"must have the shape [{tests[0]}, {self.data.outputs}], of all test inputs"
                )
                remedy += ", or that of `record['test_inputs']`"
                raise InputError(name, Verbatim(str(given[name].shape)), remedy)
        chosen = stored_elements({name: len(one) for name, one in matrices.items()})
        for name, places in chosen.items():
            predicted[name] = (matrices[name][tuple(np.transpose(places))], 0)
        directions = self.data.directions
        if directions and directions.keys() <= predicted.keys():
            elements = {name: values for name, (values, _) in predicted.items()}
            predicted["slowest"] = along(directions, elements), 0
        known = np.isfinite(matrices.get("order_parameter", np.nan)).all()
        if known and self.data.attended is not None:
            kernels = self.data.kernels(matrices["order_parameter"][None])
            of_kernels = self.data.given_kernels(kernels, np.array([self.data.temperature]))
            predicted["kernel"] = of_kernels["kernel"][0], 0
        for name, moment in (("predictor_mean", 0), ("predictor_variance", 1)):
            if name in given:
                examples = given[name].reshape(-1, self.data.outputs)
                if len(examples) > len(self.data.labels_test):
                    examples = examples[self.record["test_inputs"]]
                predicted[name] = examples.ravel(), moment
        found = {}
        for name, (values, moment) in predicted.items():
            group = PREDICTOR if name.startswith(PREDICTOR) else name
            if group in self.values and np.isfinite(values).all():
                stored, expected = self.values[group], self.expected(group)
                truth = np.array(stored["mean"]) if moment == 0 else expected.means[1]
                found[name] = difference(values, truth, expected.errors[moment])
        known = self.log_evidence
        if known and np.isfinite(given.get("log_evidence", np.nan)):
            away = float(given["log_evidence"]) - known["value"]
            z = away / known["mcse"] if known["mcse"] else math.nan
            found["log_evidence"] = {"error": away, "reference_error": known["mcse"], "z": z}
        return found


# Order parameters of nine layers at most.
NAMES_OF_THEORY = {
    *order_parameter_names(9), "predictor_mean", "predictor_variance", "log_evidence"
}  # fmt: skip


def refuse_unfit(
    arrays: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    leading: tuple[str, ...],
) -> None:
    """Raise InputError unless arrays have these shapes behind leading axes, and draws are finite.

    Other names than those of the shapes are left out; one at least is needed.
    """
    if not arrays.keys() & shapes.keys():
        names = Verbatim(f"({', '.join(map(str, arrays))})")
        axes = ", ".join((*leading, "…"))
        raise InputError("names", names, f"give arrays [{axes}] of {', '.join(shapes)}")
    for name, array in arrays.items():
        if name not in shapes:
            continue
        axes = ", ".join((*leading, *map(str, shapes[name])))
        if array.ndim < len(leading) or array.shape[len(leading) :] != shapes[name]:
            raise InputError(name, Verbatim(str(array.shape)), f"must have the shape [{axes}]")
        if leading and not np.isfinite(array).all():
            count = int((~np.isfinite(array)).sum())
            remedy = "leave out the draws where the sampler failed"
            raise InputError(name, Verbatim(f"({count} numbers are not finite)"), remedy)


def difference(values: np.ndarray, truth: np.ndarray, errors: np.ndarray) -> dict[str, float]:
    """Relative error of an array, that of the reference, and the largest z of an element."""
    size = float(np.linalg.norm(truth))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(errors > 0, (values - truth) / errors, np.nan)
    return {
        "error": float(np.linalg.norm(values - truth)) / size,
        "reference_error": float(np.linalg.norm(errors)) / size,
        "z": float(np.nanmax(np.abs(z))) if np.isfinite(z).any() else math.nan,
    }


def expected_of(values: Mapping[str, Any]) -> Expectations:
    """Means and their errors, of stored values of one functional."""
    mcse = values["mcse"]
    means = [np.zeros(len(values["mean"])), *np.transpose(values["moments"])]
    errors = [np.array(mcse["mean"]), *np.transpose(mcse["moments"])]
    if "quantiles" in values:
        # Stored where a quantile is a value that many draws have.
        every = values.get("probabilities", [PROBABILITIES] * len(values["mean"]))
        means += [*np.transpose(every)]
        errors += [*np.transpose(mcse["probabilities"])]
    return Expectations(np.array(means), np.array(errors))


@dataclass(frozen=True)
class SamplerScore:
    """What draws are worth.

    z                 by functional [statistic, element]: difference from the reference in combined
                      errors, of the mean, of moments 2 to 4, and of the probability below each of
                      five quantiles; NaN where nothing varies
    root_mean_square  of the errors of all means, in posterior standard deviations
    effective_draws   of the slowest functional
    gradients         that the draws took, warm-up included; None where it is not known
    """

    z: dict[str, np.ndarray] = field(repr=False)
    root_mean_square: float
    effective_draws: float
    gradients: int | None = None

    @property
    def judged(self) -> np.ndarray:
        """z of all means, variances and quantiles; higher moments carry no verdict."""
        rows = [z[[row for row in JUDGED if row < len(z)]].ravel() for z in self.z.values()]
        joined = np.concatenate(rows)
        return joined[np.isfinite(joined)]

    @property
    def within(self) -> float:
        """Share of these within 2."""
        return float((np.abs(self.judged) <= FAR).mean())

    @property
    def largest(self) -> float:
        """The largest of these."""
        return float(np.abs(self.judged).max())

    @property
    def agrees(self) -> bool:
        """Whether none is beyond 4.5."""
        return self.largest <= BEYOND

    @property
    def draws_per_gradient(self) -> float | None:
        """Effective draws for a gradient, warm-up included."""
        return None if not self.gradients else self.effective_draws / self.gradients

    def __str__(self) -> str:
        text = (
            f"|z| ≤ 2 in {self.within:.1%} of {self.judged.size} values, largest "
            f"{self.largest:.1f}; means off by {self.root_mean_square:.3f} standard deviations; "
            f"{self.effective_draws:.0f} effective draws"
        )
        if self.gradients:
            text += f", {self.gradients / self.effective_draws:.0f} gradients for each"
        return text


# --- data and densities of a problem


@cache
def plain_density() -> ModuleType:
    """The module `density.py` of the folder of references, which needs NumPy alone."""
    spec = spec_from_file_location("reference_density", FOLDER / "density.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def functionals_data(record: Mapping[str, Any], arrays: Mapping[str, Any]) -> FunctionalsOfData:
    """Examples of a problem, with the test inputs that values are stored for."""
    network, chosen = record["network"], record["test_inputs"]
    attended, scale = None, 1.0
    if "attended_train" in arrays:
        attended = np.concatenate([arrays["attended_train"], arrays["attended_test"][chosen]])
        scale = network["variances"][0] / math.prod(attended.shape[1:])
    labels = arrays["labels_train"].reshape(len(arrays["labels_train"]), -1)
    labels_test = arrays["labels_test"].reshape(len(arrays["labels_test"]), -1)[chosen]
    directions = record.get("directions", {})
    return FunctionalsOfData(
        labels, labels_test, network["temperature"], attended, scale, directions
    )


def functionals_of_weights(
    plain: dict[str, Any], data: FunctionalsOfData, draws: dict[str, np.ndarray]
) -> Values:
    """Functionals of draws of all weights, by the names of their sites or as vectors, `point`."""
    density = plain_density()
    sites = density.shapes(plain)
    if "point" in draws:
        points = draws["point"]
        leading = points.shape[:2]
        each = [density.sites(plain, one) for one in points.reshape(-1, points.shape[2])]
    else:
        missing = [name for name in sites if name not in draws]
        if missing:
            remedy = f"give arrays [chain, draw, …] of {', '.join(sites)}"
            raise InputError("draws", missing[0], remedy)
        leading = draws[next(iter(sites))].shape[:2]
        flat = [draws[name].reshape(-1, *shape) for name, shape in sites.items()]
        each = [dict(zip(sites, one, strict=True)) for one in zip(*flat, strict=True)]
    count = len(each)
    beside = {}
    if "log_temperature_ratio" in sites:
        ratio = np.reshape([one["log_temperature_ratio"][0] for one in each], leading)
        beside["temperature"] = data.temperature * np.exp(ratio)
    if "logits_1" not in sites:
        chosen = plain["test_inputs"]
        of_test = [density.outputs(plain, one, "test")[chosen] for one in each]
        beside[PREDICTOR] = np.reshape(of_test, (*leading, -1))
    if data.attended is not None:
        rows = zip(*(density.path_weights(plain, one) for one in each), strict=True)
        overlaps = [np.stack([w @ w.T / w.shape[1] for w in of_layer]) for of_layer in rows]
        names = order_parameter_names(len(overlaps) - 1)
        matrices = {
            name: matrix.reshape(*leading, *matrix.shape[1:])
            for name, matrix in zip(names, overlaps, strict=True)
        }
        return data.of_order_parameters({**matrices, **beside})
    kernels = (
        np.stack([expanded(kernel_of(density, plain, one), data.outputs) for one in each[part]])
        for part in slices(count)
    )
    return data.of_kernels(kernels, beside, leading)


def kernel_of(density: ModuleType, plain: dict, weights: dict[str, np.ndarray]) -> np.ndarray:
    """K of all examples, training first, given hidden weights, or logits at infinite width."""
    if "logits_1" in weights:
        return density.kernel_of_logits(plain, weights["logits_1"])
    readout = math.sqrt(plain["network"]["variances"][-1]) * np.eye(weights["a"].shape[1])
    columns = np.concatenate(
        [density.outputs(plain, {**weights, "a": readout}, split) for split in ("train", "test")]
    )
    return columns @ columns.T


def expanded(kernel: np.ndarray, outputs: int) -> np.ndarray:
    """The kernel of all labels, where outputs are independent."""
    return np.kron(kernel, np.eye(outputs))


def arrays_of(recipe: Recipe) -> dict[str, np.ndarray]:
    """Arrays of the data of a recipe, as an .npz file of one's own would have them.

    Attended inputs of a network that is a sum over paths; else tokens and attention matrices.
    """
    from sampler.data.examples import held
    from sampler.problem import attend_split

    task = data_of(recipe).fitted(recipe)
    found: dict[str, np.ndarray] = {}
    for name in ("train", "test"):
        split = task.named_splits[name]
        found[f"labels_{name}"] = np.asarray(split.labels)
        if recipe.has_theory:
            attended = attend_split(split, recipe.network.readout, task.pairs)
            found[f"attended_{name}"] = np.asarray(attended)
            found["heads"] = np.array(task.heads)
        else:
            found[f"inputs_{name}"] = np.asarray(held(split).inputs)
            if task.learned is None:
                for layer, omega in enumerate(held(split).attention, start=1):
                    found[f"attention_{name}_{layer}"] = np.asarray(omega)
    return found
