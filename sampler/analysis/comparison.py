"""Theory against draws: every quantity that is compared, in one table, and all of them together.

An entry of `QUANTITIES` computes one key of `comparison.json`, its error, and its lines in tables.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from sampler.analysis.compared import (
    NAN,
    AbsoluteValues,
    Accuracy,
    Compared,
    Cosine,
    Evidence,
    OwnTemperature,
    Row,
    SampledAccuracy,
    SampledEvidence,
    SampledSetting,
    SampledSettings,
    other_theories,
)
from sampler.analysis.difference import NOT_TRUSTED, Difference
from sampler.analysis.draws_table import (
    stored_draws,
    stored_labels,
    stored_predictors,
    stored_weights,
)
from sampler.analysis.estimate import (
    Estimate,
    PredictorEstimates,
    RepetitionWeights,
    batch_means,
    bootstrap,
    mean_of,
    predictor_estimates,
)
from sampler.analysis.labels import NEXT_ORDER, is_own
from sampler.analysis.leave_one_out import LeaveOneOut, compare_leave_one_out
from sampler.analysis.predictive_quality import PredictiveQuality, predictive_quality
from sampler.analysis.validation import validation_comparison
from sampler.analysis.verdict import (
    EACH_BY_ITSELF,
    Verdict,
    doubt_of_next_order,
    own_verdict,
    saddle_point_converged,
    theory_verdict,
)
from sampler.mcmc.diagnostics import R_HAT_LIMIT, Diagnostics
from sampler.registry import Registry
from sampler.storage.results import from_json, to_json
from theory import AttentionPaths, head_scores
from theory.observables import accuracy, binomial_error, correct, labels_are_classes


@dataclass(frozen=True)
class TheoryAndDraws:
    """Theory and draws as they are compared.

    theory  the table of `theory.nc`; None without a theory
    tree    all of `draws.nc`
    own     name of a theory of the user's own → what it predicts
    """

    theory: xr.Dataset | None
    tree: xr.DataTree
    own: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)

    @cached_property
    def draws(self) -> dict[str, np.ndarray]:
        """Name → [chain, draw, …] of everything sampled but weights and statistics."""
        return stored_draws(self.tree)

    @cached_property
    def weights(self) -> RepetitionWeights:
        """Weights of repetitions; None where the chains are Markov chains."""
        return stored_weights(self.tree)

    @cached_property
    def labels_test(self) -> Float[np.ndarray, "test_example output"] | None:
        """The test labels; None where there are none."""
        return stored_labels(self.tree)

    @cached_property
    def predictor(self) -> PredictorEstimates:
        """Posterior mean and variance of f on the test set."""
        return predictor_estimates(stored_predictors(self.tree), self.weights)

    def predicted(self, name: str) -> np.ndarray | None:
        """A variable of the theory; None without a theory."""
        return None if self.theory is None else self.theory[name].values

    def to_next_order(self, name: str) -> np.ndarray | None:
        """A variable of the theory to next order; None where it is not known."""
        known = self.theory is not None and f"{name}{NEXT_ORDER}" in self.theory
        return self.predicted(f"{name}{NEXT_ORDER}") if known else None

    def owned(self, name: str) -> dict[str, np.ndarray] | None:
        """A variable by every theory of the user's own that predicts it; None if none."""
        return {n: one[name] for n, one in self.own.items() if name in one} or None

    def number(self, name: str) -> float:
        """A number of the theory; NaN where there is none."""
        return float(self.theory[name]) if self.theory is not None and name in self.theory else NAN


def compare_order_parameters(given: TheoryAndDraws) -> dict[str, Compared]:
    """U_1 … U_L and U_a, each under its own name."""
    return {
        name: Compared(
            given.predicted(name),
            mean_of(values, given.weights),
            next_order=given.to_next_order(name),
            own=given.owned(name),
        )
        for name, values in given.draws.items()
        if "order_parameter" in name and (given.theory is None or name in given.theory)
    }


def compare_predictors(given: TheoryAndDraws) -> dict[str, Compared]:
    """Posterior mean and variance of f, and the parts of the variance where they are known."""
    found = given.predictor
    sampled = {
        "predictor_mean": (found.mean, None),
        "predictor_variance": (found.variance, found.parts or None),
    }
    return {
        name: Compared(
            given.predicted(name), *estimates, given.to_next_order(name), given.owned(name)
        )
        for name, estimates in sampled.items()
    }


def compare_accuracies(given: TheoryAndDraws) -> Accuracy:
    """Accuracies on the test set of theory, GP limit and samples."""
    sampled = sampled_accuracy(given.predictor.batches, given.labels_test, given.weights)
    names = ("theory", "gp", "gp_own", NEXT_ORDER.removeprefix("_"))
    theory, gp, gp_own, next_order = (given.number(f"accuracy_{name}") for name in names)
    own = None
    if labels_are_classes(given.labels_test):
        means = given.owned("predictor_mean") or {}
        shape = given.labels_test.shape
        own = {n: accuracy(mean.reshape(shape), given.labels_test) for n, mean in means.items()}
    return Accuracy(theory, gp, sampled, next_order, own or None, gp_own)


def sampled_accuracy(
    batches: np.ndarray, labels_test: np.ndarray | None, weights: RepetitionWeights = None
) -> SampledAccuracy | None:
    """Accuracy of the posterior mean predictor, its MCSE, and the error of a finite test set.

    The MCSE is a bootstrap over batches of draws; the binomial error is √(a(1 − a)/tests).
    """
    if not labels_are_classes(labels_test):
        return None
    if labels_test.shape[1] == 1 and batches.ndim == 2:
        batches = batches[..., None]
    estimate = bootstrap(
        lambda mean: correct(mean, labels_test).mean(axis=-1), batches, weights=weights
    )
    value = float(estimate.value)
    tests, mcse = len(labels_test), float(estimate.mcse)
    return SampledAccuracy(value, mcse, binomial_error(value, tests), tests, estimate.degrees)


def compare_head_scores(given: TheoryAndDraws) -> dict[str, Compared]:
    """Head scores of the theory and of the posterior mean of U_1, errors by bootstrap.

    Nothing without a theory, or where its saddle point did not converge.
    """
    theory = given.theory
    if theory is None or "order_parameter" not in given.draws or "head_score" not in theory:
        return {}
    predicted = theory["head_score"].values
    heads = tuple(int(np.isfinite(row).sum()) for row in predicted)
    if not all(heads):
        return {}

    def scores(means: np.ndarray) -> np.ndarray:
        return np.stack([head_scores(mean, AttentionPaths(heads)) for mean in means])

    batches = batch_means(given.draws["order_parameter"], weights=given.weights)
    sampled = bootstrap(scores, batches, weights=given.weights)
    overlaps = given.owned("order_parameter") or {}
    own = {name: scores(overlap[None])[0] for name, overlap in overlaps.items()}
    next_order = given.to_next_order("head_score")
    return {"head_score": Compared(predicted, sampled, None, next_order, own or None)}


def compare_alignments(given: TheoryAndDraws) -> dict[str, AbsoluteValues]:
    """Kernel–task alignment by component; NaN for those whose sampled one is not known.

    Nothing without a theory, and where chains are too short for an error.
    """
    table = given.theory
    if table is None or "kernel_alignment" not in table or "kernel" not in given.tree.children:
        return {}
    theory = table["kernel_alignment"].values
    sampled, mcse = np.full((2, len(theory)), np.nan)
    drawn = given.tree["kernel"].to_dataset()
    known = drawn.sizes["component"]
    sampled[:known] = drawn["kernel_alignment"].values
    mcse[:known] = drawn["kernel_alignment_mcse"].values
    next_order = given.to_next_order("kernel_alignment")
    return {"kernel_alignment": AbsoluteValues(theory, Estimate(sampled, mcse), None, next_order)}


def compare_cosines(given: TheoryAndDraws) -> dict[str, dict[str, Cosine]]:
    """Cosines between posterior mean of U_1, theory and the network trained by gradient descent.

    Errors by bootstrap over batches of draws; empty where there is only one path.
    """
    theory = given.theory
    if theory is None or "order_parameter" not in given.draws or "head_score" not in theory:
        return {}
    draws, cosines = given.draws["order_parameter"], {}
    others = {"theory": "order_parameter", "trained": "order_parameter_trained"}
    if draws.shape[-1] > 1:
        batches = batch_means(draws, weights=given.weights)
        for name, variable in others.items():
            if variable in theory:
                other = theory[variable].values
                cosine = bootstrap(
                    lambda means, u=other: off_diagonal_cosine(means, u),
                    batches,
                    weights=given.weights,
                )
                cosines[f"sampled_{name}"] = Cosine(cosine.value, cosine.mcse)
        if "order_parameter_trained" in theory:
            pair = (theory[variable].values for variable in others.values())
            cosines["theory_trained"] = Cosine(off_diagonal_cosine(*pair))
    return {"off_diagonal_cosine": cosines}


def off_diagonal_cosine(
    one: Float[np.ndarray, "*batch path path"], other: Float[np.ndarray, "path path"]
) -> Float[np.ndarray | np.floating, "*batch"]:
    """Σ_{π≠π'} A B / √(Σ A² Σ B²) over the elements off the diagonal; leading axes are kept."""
    off = ~np.eye(one.shape[-1], dtype=bool)
    a, b = one[..., off], other[..., off]
    with np.errstate(divide="ignore", invalid="ignore"):
        return (a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1))


def compare_evidence(given: TheoryAndDraws) -> Evidence:
    """ln p(y): the sampled one is exact at this width up to its Monte Carlo error."""
    attributes, sampled = given.tree["sample_stats"].attrs, None
    if "log_evidence" in attributes:
        sampled = SampledEvidence(
            value=float(attributes["log_evidence"]),
            mcse=float(attributes["log_evidence_error"]),
            method=str(attributes.get("log_evidence_method", "importance")),
            trusted=bool(attributes.get("log_evidence_trusted", 1)),
        )
    if "temperature" in given.draws:
        # The evidence of the samples is averaged over temperatures, the theory has it at one.
        return Evidence(NAN, NAN, sampled)
    names = ("", "_gp", "_gp_own", NEXT_ORDER)
    theory, gp, gp_own, next_order = (given.number(f"log_evidence{name}") for name in names)
    own = {name: float(one) for name, one in (given.owned("log_evidence") or {}).items()}
    return Evidence(theory, gp, sampled, next_order, own or None, gp_own)


def own_temperature(given: TheoryAndDraws) -> dict[str, OwnTemperature]:
    """The temperature that infinite width has in the numbers `gp_own`; nothing without a theory."""
    temperature = given.number("gp_own_temperature")
    if not np.isfinite(temperature):
        return {}
    known = given.theory.attrs
    chosen = OwnTemperature(temperature, known["gp_own_chosen_by"], known["gp_own_bound"])
    return {"gp_own": chosen}


def compare_settings(given: TheoryAndDraws) -> SampledSettings | None:
    """The temperature that was sampled; None where it was known."""
    if "temperature" not in given.draws:
        return None
    draws = given.draws["temperature"]
    median = float(given.tree["constant_data"]["temperature"])
    estimate = mean_of(draws, given.weights)
    deviation = float(draws.std(ddof=1))
    return SampledSettings(
        SampledSetting(median, float(estimate.value), float(estimate.mcse), deviation)
    )


def compare_run(
    given: TheoryAndDraws, diagnostics: Diagnostics, cost: Mapping[str, float]
) -> "ComparedRun":
    """Everything that is compared, how far it is apart, and what that says about the theory."""
    quantities = compare_quantities(given)
    found = {}
    for key, value in quantities.items():
        if hasattr(value, "difference"):
            found[key] = value.difference(key)
            for ending, (theory, other) in other_theories(value).items():
                one = other.difference(key)
                found[f"{key}{ending}"] = one and replace(one, name=f"{one.name}, {theory}")
    differences = {key: one for key, one in found.items() if one is not None}
    if not diagnostics.passed:
        differences = {k: replace(one, state=NOT_TRUSTED) for k, one in differences.items()}
    verdict = theory_verdict(
        diagnostics.passed,
        saddle_point_converged(given.theory),
        {key: one for key, one in differences.items() if not is_own(key)},
        quantities.get("hyper_parameters") is not None,
        doubt_of_next_order(given.theory),
    )
    if given.theory is None and given.own:
        verdict = Verdict("neutral", EACH_BY_ITSELF)
    if diagnostics.warning:
        verdict = replace(verdict, reasons=(diagnostics.warning, *verdict.reasons))
    own = {who: own_verdict(who, diagnostics.passed, differences) for who in given.own}
    return ComparedRun(diagnostics, cost, quantities, differences, verdict, own)


@dataclass(frozen=True)
class Quantity:
    """Definition of one key of `comparison.json`: its computation, and its type.

    compare  from theory and draws: a value of that type, None where nothing is known, or a mapping
             of several keys to values, empty where the quantity does not apply
    kind     what the stored key is read back as
    """

    compare: Callable[[TheoryAndDraws], Any]
    kind: Any = Compared


QUANTITIES: Registry[Quantity] = Registry(
    "compared quantity",
    {
        "validation": Quantity(
            lambda given: validation_comparison(given.theory, given.tree), Mapping
        ),
        "order_parameter": Quantity(compare_order_parameters),
        "predictor": Quantity(compare_predictors),
        "accuracy": Quantity(compare_accuracies, Accuracy),
        "head_score": Quantity(compare_head_scores),
        "kernel_alignment": Quantity(compare_alignments, AbsoluteValues),
        "off_diagonal_cosine": Quantity(compare_cosines, Mapping[str, Cosine]),
        "predictive_quality": Quantity(
            lambda given: predictive_quality(given.theory, given.tree, given.own),
            PredictiveQuality,
        ),
        "leave_one_out": Quantity(
            lambda given: compare_leave_one_out(given.theory, given.tree), LeaveOneOut
        ),
        "log_evidence": Quantity(compare_evidence, Evidence),
        "gp_own": Quantity(own_temperature, OwnTemperature),
        "hyper_parameters": Quantity(compare_settings, SampledSettings),
    },
)


def register_quantity(
    name: str, compare: Callable[[TheoryAndDraws], Any], kind: Any = Compared
) -> None:
    """Add a compared quantity to `comparison.json`, the terminal, the report and notebooks.

    Raises ValueError if the name is taken.
    """
    QUANTITIES.register(name, Quantity(compare, kind))


def compare_quantities(given: TheoryAndDraws) -> dict[str, Any]:
    """Key of `comparison.json` → what is compared there, of every quantity that applies.

    Theory and draws differ by O(1/N) at finite width, whatever the number of draws.
    """
    found: dict[str, Any] = {}
    for name, quantity in QUANTITIES.items():
        value = quantity.compare(given)
        found |= value if isinstance(value, Mapping) else {name: value}
    return found


# Keys of `comparison.json` that are about the run as a whole.
NO_QUANTITY = (
    "diagnostics", "cost", "verdict", "own_verdicts", "differences", "schema_version",
)  # fmt: skip


@dataclass(frozen=True)
class ComparedRun:
    """All that `comparison.json` holds.

    diagnostics  verdict on the draws, and its numbers; None where they were not judged
    cost         seconds, gradients, effective draws
    quantities   key → what is compared there
    differences  key → difference of theory and samples as a whole, wherever there is one
    verdict      on the theory
    own          name of a theory of the user's own → verdict on it
    """

    diagnostics: Diagnostics | None
    cost: Mapping[str, float]
    quantities: Mapping[str, Any]
    differences: Mapping[str, Difference]
    verdict: Verdict | None
    own: Mapping[str, Verdict] = field(default_factory=dict)

    def get(self, key: str) -> Any:
        """The comparison under a key; None where there is nothing."""
        return self.quantities.get(key)

    @property
    def compared(self) -> Iterator[tuple[str, Compared]]:
        """Keys and values of everything that the theory predicts and the samples estimate."""
        return ((k, v) for k, v in self.quantities.items() if isinstance(v, Compared))

    def rows(self, path_names: list[str]) -> dict[str, list[Row]]:
        """Key → its lines in the comparison table."""
        return {
            key: value.rows(key, path_names)
            for key, value in self.quantities.items()
            if hasattr(value, "rows")
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "diagnostics": to_json(self.diagnostics),
            "cost": dict(self.cost),
            "verdict": to_json(self.verdict),
            **({"own_verdicts": to_json(self.own)} if self.own else {}),
            "differences": {
                key: to_json(one) | {"relative": one.relative, "statement": one.statement}
                for key, one in self.differences.items()
            },
        } | to_json(self.quantities)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "ComparedRun":
        """Read back; a key that no quantity is registered for is one that somebody added."""
        judged = content.get("diagnostics")
        quantities = {
            key: from_json(QUANTITIES[key].kind if key in QUANTITIES else Compared, value)
            for key, value in content.items()
            if key not in NO_QUANTITY
        }
        return cls(
            None if judged is None else read_diagnostics(judged),
            content.get("cost") or {},
            quantities,
            from_json(Mapping[str, Difference], content.get("differences") or {}),
            from_json(Verdict | None, content.get("verdict")),
            from_json(Mapping[str, Verdict], content.get("own_verdicts") or {}),
        )


def read_diagnostics(content: Mapping[str, Any]) -> Diagnostics:
    """Read back the verdict on the draws, with the numbers of whichever algorithm."""
    of_all = Diagnostics.__dataclass_fields__
    numbers = {key: value for key, value in content.items() if key not in of_all}
    limit = {"r_hat_limit": R_HAT_LIMIT}  # of what was stored before it was
    return from_json(Diagnostics, {**limit, **content, "numbers": numbers})
