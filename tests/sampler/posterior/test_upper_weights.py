"""The posterior with V_0 integrated out: density, derivative, and agreement of all spaces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from arviz_stats.base import array_stats
from numpyro.infer.util import log_density

from sampler.analysis.estimate import mean_of, variance_of
from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.chunks import sample_in_chunks
from sampler.mcmc.draws import DrawCollector
from sampler.mcmc.hamiltonian import Nuts
from sampler.network import effective_weights, network_outputs, outputs_of, overlaps, path_weights
from sampler.posterior.spaces import order_parameter_density, upper_weight_density, weight_density
from sampler.posterior.weight_draws import weight_draws
from sampler.posterior.weights import (
    lowest_factor,
    narrowed,
    upper_weight_model,
    weight_priors,
)
from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.problems import (
    ARCHITECTURES,
    EVERY_ARCHITECTURE,
    random_problem,
    random_weights,
)
from theory import Architecture
from theory.energy import LabelEnergy
from theory.path_kernels import FeatureForm, KernelForm, store_path_kernels
from theory.predictor import Predictor


def upper_weights(arch, rng):
    return {k: jnp.asarray(v) for k, v in random_weights(arch, rng).items() if k != "V_0"}


def energy_in(form, problem):
    """The energy with path kernels in the given form, whichever the size would choose."""
    kernels = FeatureForm(problem.features, None)
    if form is KernelForm:
        kernels = store_path_kernels(kernels, problem.architecture.outputs)
    return LabelEnergy(kernels, problem.labels, problem.temperature)


def label_covariance(problem, upper):
    """σ_0² A Aᵀ + 𝒯 1 with A = ∂f/∂V_0: f is linear in V_0."""
    arch = problem.architecture
    lowest = path_weights(upper, arch)[0]
    design = jax.jacobian(
        lambda v: outputs_of(effective_weights(lowest, v, arch), problem.attended, arch).reshape(-1)
    )(jnp.zeros(arch.weight_shapes["V_0"]))
    design = np.asarray(design).reshape(problem.labels.size, -1)
    noise = problem.temperature * np.eye(problem.labels.size)
    return arch.variances[0] * design @ design.T + noise


@pytest.mark.parametrize("form", [FeatureForm, KernelForm])
@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_density_is_prior_times_gaussian_likelihood_of_the_labels(name, form, rng):
    arch = ARCHITECTURES[name]
    problem = random_problem(arch, rng, temperature=0.3)
    upper = upper_weights(arch, rng)
    covariance = label_covariance(problem, upper)
    terms = [
        scipy.stats.norm(0, arch.weight_variances[k] ** 0.5).logpdf(v) for k, v in upper.items()
    ]
    labels = np.asarray(problem.labels).reshape(-1)
    terms.append(scipy.stats.multivariate_normal(cov=covariance).logpdf(labels))
    expected = sum(np.sum(term) for term in terms)
    compiled = jax.jit(
        lambda values, *data: log_density(upper_weight_model, data, {"architecture": arch}, values)[
            0
        ]
    )
    received = compiled(upper, energy_in(form, problem), jnp.asarray(arch.variances))
    size = sum(np.sum(np.abs(term)) for term in terms)
    count = sum(v.size for v in upper.values()) + covariance.size
    condition = np.linalg.cond(covariance)
    assert_equal_to_rounding(received, expected, operations=count, condition=condition, scale=size)


@pytest.mark.heavy
@pytest.mark.parametrize("form", [FeatureForm, KernelForm])
@pytest.mark.parametrize("name", ["one layer", "two layers, three outputs", "narrow"])
def test_gradient_is_that_of_the_density_written_out(name, form, rng):
    arch = ARCHITECTURES[name]
    problem = random_problem(arch, rng, temperature=0.3)
    upper = upper_weights(arch, rng)
    energy = energy_in(form, problem)
    labels = problem.labels.reshape(-1)

    def written_out(weights):
        prior = sum(-0.5 * jnp.sum(v**2) / arch.weight_variances[k] for k, v in weights.items())
        factor = lowest_factor(weights, arch)
        blocks = factor.reshape(arch.path_count, arch.outputs, -1)
        kernel = jnp.einsum(
            "xpi,pcr,qdr,yqi->xcyd", problem.features, blocks, blocks, problem.features
        ).reshape(labels.size, labels.size)
        noisy = kernel + problem.temperature * jnp.eye(labels.size)
        cholesky = jnp.linalg.cholesky(noisy)
        whitened = jax.scipy.linalg.solve_triangular(cholesky, labels, lower=True)
        return prior - 0.5 * whitened @ whitened - jnp.sum(jnp.log(jnp.diagonal(cholesky)))

    def model_density(weights):
        arguments = energy, jnp.asarray(arch.variances), arch
        return log_density(upper_weight_model, arguments, {}, weights)[0]

    expected, received = (jax.jit(jax.grad(f))(upper) for f in (written_out, model_density))
    condition = np.linalg.cond(label_covariance(problem, upper))
    size = max(np.max(np.abs(v)) for v in expected.values())
    operations = problem.features.size * arch.order_parameter_sizes[0]
    for key in upper:
        assert_equal_to_rounding(
            received[key],
            expected[key],
            operations=operations,
            condition=condition,
            scale=size,
            what=key,
        )


@pytest.mark.parametrize("width", [2, 4, 5, 40])
def test_narrowed_factor_has_the_same_overlap_and_few_columns(width, rng):
    factor = jnp.asarray(rng.standard_normal((4, width)))
    received = narrowed(factor)
    assert received.shape == (4, min(4, width))
    size = np.linalg.norm(factor) ** 2
    overlap = factor @ factor.T
    assert_equal_to_rounding(received @ received.T, overlap, operations=4 * width, scale=size)


@pytest.mark.heavy
@pytest.mark.parametrize("width", [3, 8])
def test_narrowing_changes_no_derivative_of_what_depends_on_the_overlap(width, rng):
    """Along a line of factors: value and the first four derivatives, reverse mode first."""
    start, direction, weights = jnp.asarray(rng.standard_normal((3, 4, width)))

    def along(change):
        def function(factor):
            overlap = change(factor) @ change(factor).T
            return jnp.sum(jnp.tanh(overlap) * (weights @ weights.T))

        found = [lambda t: jax.grad(function)(start + t * direction).ravel() @ direction.ravel()]
        for _ in range(3):
            found.append(jax.jacfwd(found[-1]))
        return [float(jax.jit(one)(0.1)) for one in found]

    np.testing.assert_allclose(along(narrowed), along(lambda factor: factor), rtol=1e-10)


def test_all_weights_but_those_of_the_inputs_are_sampled():
    architecture = ARCHITECTURES["three layers"]
    priors = weight_priors(architecture, jnp.asarray(architecture.variances), without="V_0")
    assert tuple(priors) == ("V_1", "V_2", "V_3", "a")


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["three layers, two outputs", "narrow"])
def test_a_draw_is_completed_by_input_weights_and_predicts_with_them(name, rng):
    arch = ARCHITECTURES[name]
    draws = 20_000
    problem = random_problem(arch, rng)
    test = jnp.asarray(rng.standard_normal((3, arch.path_count, arch.channels)))
    upper = upper_weights(arch, rng)
    keys = jax.random.split(jax.random.key(4), draws)

    def observe(space, key):
        return space.observables(key, upper)

    kept = upper_weight_density(problem, test, keep_weights=True)
    one = observe(kept, keys[0])
    weights = {k: one[k] for k in arch.weight_shapes}
    assert {k: v.shape for k, v in weights.items()} == arch.weight_shapes
    assert_equal_to_rounding(
        one["predictor"], network_outputs(weights, test, arch), operations=arch.weight_count
    )
    without = observe(upper_weight_density(problem, test, keep_weights=False), keys[0])
    assert set(one) - set(without) == set(arch.weight_shapes)
    for name, values in without.items():
        np.testing.assert_array_equal(values, one[name])

    matrices = overlaps(upper, arch)
    layers = [f"order_parameter_layer_{n}" for n in range(2, arch.layers + 1)]
    for name, matrix in zip(
        ["order_parameter", *layers, "readout_order_parameter"], matrices, strict=True
    ):
        np.testing.assert_array_equal(one[name], matrix)

    factor = lowest_factor(upper, arch)
    expected_mean, expected_variance = Predictor.for_examples(problem, test)(factor)
    condition = np.linalg.cond(label_covariance(problem, upper))
    for received, expected in (
        (one["predictor_mean"], expected_mean),
        (one["predictor_variance"], expected_variance),
    ):
        scale = float(np.max(np.abs(expected))) + float(jnp.sum(matrices[0] ** 2)) ** 0.5
        assert_equal_to_rounding(
            received, expected, operations=arch.weight_count, condition=condition, scale=scale
        )

    def outputs(key):
        return observe(kept, key)["predictor"]

    received = np.asarray(jax.jit(jax.vmap(outputs))(keys))
    mean, variance = np.asarray(expected_mean), np.asarray(expected_variance)
    assert_within_mcse(received.mean(axis=0), mean, np.sqrt(variance / draws), what="mean of f")
    squares = np.mean((received - mean) ** 2, axis=0)
    assert_within_mcse(squares, variance, variance * (2 / draws) ** 0.5, what="variance of f")


@pytest.mark.heavy
def test_single_precision_problem_gives_single_precision_draws(rng):
    arch = ARCHITECTURES["two layers"]
    problem = random_problem(arch, rng).astype("float32")
    space = upper_weight_density(problem, problem.attended, keep_weights=True)
    upper = {k: v.astype("float32") for k, v in upper_weights(arch, rng).items()}
    received = space.observables(jax.random.key(0), upper)
    assert {v.dtype for v in received.values()} == {jnp.dtype("float32")}


# Unequal widths, heads and variances; "two outputs" and "narrow" (N_1 < p_1, N_2 < p_2) besides.
COMPARED = {
    "one layer": Architecture((3,), (5, 4), (1.4, 0.8, 1.2), channels=3),
    "two layers, two outputs": Architecture((2, 1), (6, 5, 4), (0.9, 1.5, 0.6, 1.3), 3, outputs=2),
    "two layers, narrow": Architecture((2, 3), (4, 2, 3), (0.9, 1.2, 0.8, 1.3), channels=3),
    "three layers": Architecture((2, 1, 2), (6, 4, 5, 3), (1.1, 0.8, 1.2, 1.4, 0.7), 3),
    # More than the units of the lower layer: U_1 is singular.
    "ten outputs": Architecture((1,), (7, 12), (1.4, 0.8, 1.2), channels=3, outputs=10),
}
EXAMPLES = 5
TEMPERATURE = 0.5


def run(space, *, warmup, draws):
    """Steps small enough (acceptance 0.9) that the curved density of weights diverges rarely.

    The overlaps have long tails: it takes thousands of draws until their means are Gaussian.
    """
    collected = DrawCollector()
    settings = ChainSettings(chains=4, warmup=warmup, draws=draws, seed=8)
    sample_in_chunks(space, Nuts(target_acceptance=0.9), settings, collected)
    assert np.mean(collected.statistics["diverging"]) < 0.01
    return collected.draws


def order_parameter_estimates(draws):
    """Mean and variance of every element of every U_l, one of each symmetric pair."""
    found = {}
    for name, values in draws.items():
        if name.startswith(("order_parameter", "readout_order")):
            rows, columns = np.triu_indices(values.shape[-1])
            elements = values[..., rows, columns]
            found[f"mean of {name}"] = (mean_of(elements), elements)
            found[f"variance of {name}"] = (variance_of(elements), elements)
    return found


def sampled_outputs(outputs):
    """Mean and variance of f on the test examples, from draws of f."""
    test = outputs[:, :, EXAMPLES:]
    return {
        "mean of f": (mean_of(test), test),
        "variance of f": (variance_of(test), test),
    }


def averaged_outputs(mean, variance):
    """The same from the mean and variance of f given each draw."""
    mean, variance = mean[:, :, EXAMPLES:], variance[:, :, EXAMPLES:]
    total = variance + (mean - mean.mean(axis=(0, 1))) ** 2
    return {"mean of f": (mean_of(mean), mean), "variance of f": (mean_of(total), total)}


def log_likelihood_estimates(outputs, labels):
    """Mean and variance of −|f − y|²/(2𝒯) over weight draws."""
    errors = outputs[:, :, :EXAMPLES] - labels
    values = -0.5 * np.sum(errors**2, axis=(2, 3)) / TEMPERATURE
    return {
        "mean of the log likelihood": (mean_of(values), values),
        "variance of the log likelihood": (variance_of(values), values),
    }


def assert_agree(received, expected, spaces):
    assert received.keys() == expected.keys()
    for what, (one, draws) in received.items():
        other, other_draws = expected[what]
        ess = [
            array_stats.ess(d.reshape(*d.shape[:2], -1), chain_axis=0, draw_axis=1)
            for d in (draws, other_draws)
        ]
        mcse = np.hypot(one.mcse, other.mcse)
        assert_within_mcse(
            one.value, other.value, mcse, ess=ess, minimum_ess=400, what=f"{spaces}: {what}"
        )


@pytest.mark.long
@pytest.mark.parametrize("name", COMPARED)
def test_all_three_spaces_sample_the_same_posterior(name, rng):
    """U_l, predictor and log likelihood of all weights, upper weights, and drawn-back weights."""
    arch = COMPARED[name]
    problem = random_problem(arch, rng, examples=EXAMPLES, temperature=TEMPERATURE)
    unseen = jnp.asarray(rng.standard_normal((3, arch.path_count, arch.channels)))
    attended = jnp.concatenate([problem.attended, unseen])
    labels = np.asarray(problem.labels)

    draws = run(weight_density(problem, attended, keep_weights=False), warmup=600, draws=4000)
    weights = order_parameter_estimates(draws)
    weights |= sampled_outputs(draws["predictor"])
    weights |= log_likelihood_estimates(draws["predictor"], labels)

    draws = run(upper_weight_density(problem, attended, keep_weights=False), warmup=500, draws=3000)
    upper = order_parameter_estimates(draws)
    upper |= averaged_outputs(draws["predictor_mean"], draws["predictor_variance"])
    upper |= log_likelihood_estimates(draws["predictor"], labels)

    draws = run(order_parameter_density(problem, attended), warmup=200, draws=4000)
    collapsed = order_parameter_estimates(draws)
    collapsed |= averaged_outputs(draws["predictor_mean"], draws["predictor_variance"])
    positions = {
        key.removeprefix("bartlett_"): values
        for key, values in draws.items()
        if key.startswith("bartlett_")
    }
    drawn_back = weight_draws(problem, positions, 4000, seed=1).weights
    predict_all = jax.jit(jax.vmap(jax.vmap(lambda w: network_outputs(w, attended, arch))))
    outputs = np.asarray(predict_all(drawn_back))
    collapsed |= log_likelihood_estimates(outputs, labels)

    assert_agree(upper, weights, "upper weights against weights")
    assert_agree(collapsed, weights, "order parameters against weights")
    assert_agree(collapsed, upper, "order parameters against upper weights")
