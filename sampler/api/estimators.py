"""The posterior over arrays of one's own as estimators in the manner of scikit-learn.

They are exact where they sample: predictions are averages over draws of U_1, given which the
predictor is a Gaussian process.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import xarray as xr
from jaxtyping import Float, Shaped
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from sampler.api.model import drawn, solved
from sampler.api.recipes import data_of, judged
from sampler.data.arrays import Arrays
from sampler.errors import InputError, ReliabilityWarning
from sampler.runtime import jax_settings, refuse_masked
from sampler.settings.recipe import Recipe

if TYPE_CHECKING:
    from sampler.analysis.estimates import Averages
    from sampler.problem import Problem

# Number of training examples, evenly spaced, whose predictions judge the chains.
MOST_JUDGED = 100
# Number of draws, evenly spaced, in predictions; number of examples in memory at a time.
MOST_DRAWS, EXAMPLES_AT_ONCE = 1000, 1000
SEEDS = 2**32
AXES = ("example", "output")
# [example, path, channel], or [example, channel].
Inputs = Any
Fitted = TypeVar("Fitted", bound="AttentionEstimator")
Attended = Float[np.ndarray, "example path channel"]
Labels = Shaped[np.ndarray, " example"] | Shaped[np.ndarray, "example output"]
Targets = Float[np.ndarray, " example"] | Float[np.ndarray, "example output"]
OfDraws = Float[np.ndarray, "chain draw example output"]

# Parameters that are settings of the section `sampler`.
OF_CHAINS = ("draws", "chains", "warmup", "max_minutes", "space", "algorithm")


class FitWarning(ReliabilityWarning, ConvergenceWarning):
    """A fit whose draws fail their diagnostics; also a warning of scikit-learn's."""


class AttentionEstimator(BaseEstimator):
    """Common part of classifier and regressor.

    Inputs X are attended inputs [example, path, channel], paths in flat order, the head of layer 1
    slowest; or [example, channel], a single path.

    widths        N of all layers, or [N_1, …, N_L, N_a]
    variances     prior variance of all weights, or [σ0², σ1², …, σL², σa²]
    temperature   𝒯, the variance of the likelihood
    heads         of each layer, whose product is the number of paths; None: one layer of them all
    method        "posterior": exact, by sampling; "theory": leading order in 1/N, in an instant
    random_state  seed of the chains, or of the starting points of the theory; a RandomState or a
                  Generator, from which one is drawn; None: 0
    draws, chains, warmup, max_minutes, space, algorithm
                  of the chains, as in `Sampler`; without draws they continue until they are trusted
    progress      show how far the chains are
    """

    def __init__(
        self,
        *,
        widths: int | Sequence[int] = 100,
        variances: float | Sequence[float] = 1.0,
        temperature: float = 0.01,
        heads: Sequence[int] | None = None,
        method: Literal["posterior", "theory"] = "posterior",
        random_state: int | np.random.RandomState | np.random.Generator | None = 0,
        draws: int | None = None,
        chains: int = 4,
        warmup: int | None = None,
        max_minutes: float = 60.0,
        space: str = "auto",
        algorithm: str = "auto",
        progress: bool = False,
    ) -> None:
        self.widths = widths
        self.variances = variances
        self.temperature = temperature
        self.heads = heads
        self.method = method
        self.random_state = random_state
        self.draws = draws
        self.chains = chains
        self.warmup = warmup
        self.max_minutes = max_minutes
        self.space = space
        self.algorithm = algorithm
        self.progress = progress

    def fit(self: Fitted, X: Inputs, y: Any) -> Fitted:
        """Sample the posterior, or solve the theory, of these examples.

        X  inputs, as documented in the class
        y  labels [example]

        Afterwards `draws_` or `theory_` is what `sample` or `solve` returns, and `reliability_` the
        verdict on the draws: with a warning where they cannot be trusted. A fit that fails leaves
        the estimator as it was. Raises ValueError for unusable input.
        """
        fitted = type(self)(**self.get_params(deep=False))
        fitted._fit(X, y)
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        self.__dict__.clear()
        self.__dict__.update(vars(fitted) | kept)
        return self

    def _fit(self, X: Inputs, y: Any) -> None:
        attended, y = self._read(X, y)
        self.shape_in_ = attended.shape[1:]
        heads = self.shape_in_[:1] if self.heads is None else tuple(map(int, self.heads))
        spaced = np.linspace(0, len(attended) - 1, min(MOST_JUDGED, len(attended))).astype(int)
        settings = {name: getattr(self, name) for name in OF_CHAINS}
        settings = {name: value for name, value in settings.items() if value is not None}
        seed = seed_from(self.random_state)
        self.recipe_ = Recipe(
            task=Arrays(
                attended=attended,
                labels=self._labels(y),
                heads=heads,
                attended_test=attended[spaced],
            ),
            network={"widths": self.widths, "variances": self.variances},
            posterior={"temperature": self.temperature},
            theory={"seed": seed},
            sampler={"seed": seed, **settings},
        )
        try:
            data_of(self.recipe_)
        except InputError as problem:
            raise (problem.about("X") if problem.field == "attended" else problem) from None
        if self.method == "theory":
            self.theory_ = solved(self.recipe_)
            if not self.theory_.attrs["converged"]:
                raise InputError("method", "theory", self.theory_.attrs["explanation"])
        elif self.method == "posterior":
            self.draws_ = drawn(self.recipe_, self.progress)
            self.reliability_ = judged(self.draws_, FitWarning)
        else:
            raise InputError("method", self.method, 'use "posterior" or "theory"')

    def predictive(self, X: Inputs) -> xr.Dataset:
        """Mean and variance of f(x) with their Monte Carlo standard errors `…_mcse`; probabilities.

        X  inputs, as documented in the class

        A new label varies by variance + temperature. Of classes also the probability of the second
        one, without its error. The theory has no error estimate.
        """
        check_is_fitted(self, "recipe_")
        attended, _ = self._read(X)
        if attended.shape[1:] != self.shape_in_:
            raise ValueError(f"X has {attended.shape[1:]} paths and channels, not {self.shape_in_}")
        starts = range(0, len(attended), EXAMPLES_AT_ONCE)
        with jax_settings():
            problem = data_of(self.recipe_).problem(self.recipe_)
            parts = [attended[start : start + EXAMPLES_AT_ONCE] for start in starts]
            return xr.concat([self._predict(problem, part) for part in parts], "example")

    def _predict(self, problem: "Problem", attended: Attended) -> xr.Dataset:
        """Averages over the draws, or the predictions at the saddle point."""
        from sampler.analysis.draws import Draws
        from sampler.analysis.estimates import OF_CHAINS
        from sampler.analysis.predictors import predicted
        from sampler.analysis.validation import predictor_draws

        is_sampled = hasattr(self, "draws_")
        if is_sampled:
            draws = Draws(self.draws_)
            drawn, averages = draws.judged, draws.averages
        else:
            overlap = predicted(self.theory_, "order_parameter")
            drawn, averages = {"order_parameter": overlap[None, None]}, OF_CHAINS
        _, mean, variance = predictor_draws(problem, attended, drawn, MOST_DRAWS)
        columns = {"mean": mean[0, 0], "variance": variance[0, 0]}
        if is_sampled:
            named = {"predictor_mean": mean, "predictor_variance": variance}
            moments = averages.predictor(named)
            columns = {name: estimate.value for name, estimate in moments._asdict().items()}
            columns |= {f"{name}_mcse": found.mcse for name, found in moments._asdict().items()}
        if is_classifier(self):
            of_label = mean, variance + problem.temperature
            columns["probability"] = probability_of_second(*of_label, averages)
        return xr.Dataset({name: (AXES, values) for name, values in columns.items()})

    def _labels(self, y: Labels) -> Targets:
        raise NotImplementedError

    def _read(self, X: Inputs, y: Any = None) -> tuple[Attended, Labels | None]:
        """Attended inputs, and the labels to be fitted."""
        refuse_masked("X", X)
        refuse_masked("y", y)
        checks = {"dtype": np.float64, "allow_nd": True}
        if not hasattr(self, "shape_in_"):
            checks |= {"multi_output": True, "y_numeric": isinstance(self, RegressorMixin)}
            X, y = validate_data(self, X, y, **checks)
        else:
            X = validate_data(self, X, reset=False, **checks)
        if X.ndim > 3:
            raise ValueError(f"X has shape {X.shape}: give [example, path, channel]")
        return X if X.ndim == 3 else X[:, None], y

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


class AttentionRegressor(RegressorMixin, AttentionEstimator):
    """Regression by the posterior of a deep multi-head attention network; labels are as they are.

    `predict` is the posterior mean of f(x), which `predictive` has with its error and the variance.
    Labels may have several outputs, [example, output]. Parameters and inputs: `AttentionEstimator`.
    """

    def predict(self, X: Inputs) -> Targets:
        """The posterior mean of f(x).

        X  inputs, as for `AttentionEstimator`
        """
        mean = self.predictive(X)["mean"].values
        return mean[:, 0] if self.one_output_ else mean

    def _labels(self, y: Labels) -> Targets:
        self.one_output_ = y.ndim == 1
        return np.asarray(y, dtype=np.float64)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class AttentionClassifier(ClassifierMixin, AttentionEstimator):
    """Two classes, as labels −1 and +1 of the posterior of a deep multi-head attention network.

    The probability of the second class is p₊ = p(+1)/(p(+1) + p(−1)) of the predictive density of
    the label. Parameters and inputs: `AttentionEstimator`.
    """

    def predict(self, X: Inputs) -> Shaped[np.ndarray, " example"]:
        """The class with the larger probability.

        X  inputs, as for `AttentionEstimator`
        """
        larger = self.predict_proba(X).argmax(axis=1)
        return self.classes_[larger]

    def predict_proba(self, X: Inputs) -> Float[np.ndarray, "example class"]:
        """Probabilities of both classes, in the order of `classes_`.

        X  inputs, as for `AttentionEstimator`
        """
        positive = self.predictive(X)["probability"].values[:, 0]
        return np.stack([1.0 - positive, positive], axis=1)

    def _labels(self, y: Labels) -> Targets:
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        self.classes_, of_class = np.unique(y, return_inverse=True)
        kind = type_of_target(y)
        if kind != "binary":
            text = f"Only binary classification is supported. The type of the target is {kind}."
            raise ValueError(text)
        if len(self.classes_) != 2:
            raise ValueError("y needs two classes; it has one class")
        return 2.0 * of_class - 1.0

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def probability_of_second(
    mean: OfDraws, variance: OfDraws, averages: "Averages"
) -> Float[np.ndarray, "example output"]:
    """p₊ = ⟨p(+1)⟩/⟨p(+1) + p(−1)⟩ from the mean and variance of a label in each draw."""
    from sampler.analysis.scores import log_normal_density

    labels = np.array([1.0, -1.0])
    logarithms = log_normal_density((labels - mean[..., None]) ** 2, variance[..., None])
    densities = np.exp(logarithms - logarithms.max(axis=(0, 1, -1), keepdims=True))
    averaged = averages.centre(densities)
    return averaged[..., 0] / averaged.sum(axis=-1)


def seed_from(random_state: Any) -> int:
    """Return a seed, or draw it from a generator of NumPy; InputError for anything else."""
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(SEEDS, dtype=np.uint32))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(SEEDS))
    if isinstance(random_state, Integral) and 0 <= int(random_state) < SEEDS:
        return int(random_state)
    remedy = "use a whole number from 0 to 2^32 − 1, a RandomState or a Generator of NumPy"
    raise InputError("random_state", random_state, remedy)
