"""The theory at next order in 1/N: quadrature, brute-force expansions, and when it fails."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from tests.dense import SMALL, chain, exact_scalar_posterior, plain_predictor
from tests.problems import ARCHITECTURES, random_problem
from theory import (
    Architecture,
    LearningProblem,
    LogPosterior,
    NextOrderStatus,
    OrderParameters,
    Predictor,
    log_evidence_at_saddle,
    predict,
    solve_next_order,
    solve_saddle_point,
)
from theory import next_order as next_order_module
from theory.next_order import LARGEST_SHIFT, LARGEST_SPREAD
from theory.size_limits import next_order_fits


def orthogonal_examples(width, examples, label, temperature):
    """L = H = 1 and orthogonal examples of equal norm: K = U_1 · 1."""
    architecture = Architecture((1,), (width, width), (1.0, 1.0, 1.0), examples)
    attended = np.sqrt(examples) * np.eye(examples)[:, None]
    labels = jnp.full((examples, 1), float(label))
    return LearningProblem(architecture, jnp.asarray(attended), labels, temperature)


def errors_of_both_orders(problem, span):
    """Next order, and errors [order, (U_1, U_a, mean, variance, evidence)], relative but the last.

    The first training example is predicted; `span` is the range of ln U that quadrature covers.
    """
    saddle = solve_saddle_point(problem)
    expansion = solve_next_order(problem, saddle)
    example = problem.attended[:1]
    exact = exact_scalar_posterior(problem, example, points=1200, span=span)
    mean, variance = predict(
        Predictor.for_examples(problem, example), saddle.order_parameters.factors[0]
    )
    leading = [u[0, 0] for u in saddle.order_parameters.matrices]
    leading += [mean[0, 0], variance[0, 0], log_evidence_at_saddle(problem, saddle)]
    mean, variance = expansion.predict(np.asarray(example))
    following = [u[0, 0] for u in expansion.order_parameters]
    following += [mean[0, 0], variance[0, 0], expansion.log_evidence]
    expected = np.array(
        [
            exact.order_parameter[0],
            exact.readout[0],
            exact.predictor_mean[0],
            exact.predictor_variance[0],
            exact.log_evidence,
        ]
    )
    errors = np.array([leading, following], float) - expected
    errors[:, :4] /= np.where(expected[:4] == 0.0, 1.0, np.abs(expected[:4]))
    return expansion, errors


@pytest.mark.slow
def test_orders_of_the_errors_in_the_width():
    """With P = N the leading order is off by 1/N, the next order by 1/N², in every quantity."""
    widths = np.array([8, 32, 128])
    errors = []
    for width in widths:
        problem = orthogonal_examples(int(width), int(width), 1.5, 0.1)
        expansion, both = errors_of_both_orders(problem, span=6.0)
        assert expansion.status is NextOrderStatus.FINE
        errors.append(both)
    logs = np.log(np.abs(errors)).reshape(len(widths), -1)
    slopes = np.polyfit(np.log(widths), logs, 1)[0].reshape(2, 5)
    np.testing.assert_allclose(slopes[0], -1.0, atol=0.1, err_msg="leading order")
    np.testing.assert_allclose(slopes[1], -2.0, atol=0.2, err_msg="next order")


def solved_without_data(architecture, rng):
    """A problem with inputs of zero and labels of noise, its next order, and test inputs."""
    problem = random_problem(architecture, rng)
    test = np.asarray(problem.attended[:2])
    problem = replace(problem, attended=jnp.zeros_like(problem.attended))
    expansion = solve_next_order(problem, solve_saddle_point(problem))
    assert expansion.defined
    return problem, expansion, test


def errors_of_means(expansion):
    """E[U_l] − σ_a² σ_L² ··· σ_l² 1, l = 1 … L + 1, where there are no data."""
    architecture = expansion.around.posterior.problem.architecture
    variances = np.cumprod(architecture.order_parameter_variances[::-1])[::-1]
    return [
        mean - variance * np.eye(len(mean))
        for mean, variance in zip(expansion.order_parameters, variances, strict=True)
    ]


@pytest.mark.parametrize("name", ["one layer, two outputs", "narrow, two outputs"])
def test_without_data(name, rng):
    """The readout's U_a is exact; labels are pure noise and predictions have their prior variance.

    The evidence misses what Stirling's series of every Γ(ν/2) has from its second term on, which
    begins with 1/(360 (ν/2)³).
    """
    problem, expansion, test = solved_without_data(SMALL[name], rng)
    architecture = problem.architecture
    *_, readout = errors_of_means(expansion)
    np.testing.assert_allclose(readout, 0.0, atol=1e-12)
    expected = scipy.stats.norm.logpdf(problem.labels, scale=problem.temperature**0.5).sum()
    degrees = expansion.around.posterior.coordinates.degrees
    half = 0.5 * degrees[degrees > 0]
    series = (half - 0.5) * np.log(half) - half + 0.5 * np.log(2.0 * np.pi) + 1.0 / (12.0 * half)
    missing = np.sum(series - scipy.special.gammaln(half))
    assert 0.0 < missing < np.sum(1.0 / (360.0 * half**3))
    # The mode is found to 1e-8.
    assert expansion.log_evidence - expected == pytest.approx(missing, abs=1e-8)
    mean, prior = expansion.predict(test)
    np.testing.assert_array_equal(mean, 0.0)
    paths, outputs = architecture.path_count, architecture.outputs
    blocks = expansion.order_parameters[0].reshape(paths, outputs, paths, outputs)
    kernel = np.einsum("xpi,pcqc,xqi->xc", test, blocks, test)
    kernel *= architecture.variances[0] / (architecture.channels * paths)
    np.testing.assert_allclose(prior, kernel, rtol=1e-12)


def test_without_data_the_spread_is_that_of_a_wishart_matrix(rng):
    """Σ Var[U_1,ab]/|⟨U_1⟩|² = (H + 1)/N_1 + 2/N_a to first order in both, of H heads."""
    architecture = Architecture((3,), (2000, 1000), (0.7, 1.3, 0.8), 4)
    _, expansion, _ = solved_without_data(architecture, rng)
    assert expansion.spread**2 == pytest.approx(4 / 2000 + 2 / 1000, rel=5 / 1000)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_predictors_by_brute_force(name, rng):
    """E[m] and E[v] + Var[m] with derivatives of a plain predictor along every direction."""
    problem = random_problem(SMALL[name], rng, temperature=0.3)
    expansion = solve_next_order(problem, solve_saddle_point(problem), evidence=False)
    assert np.isnan(expansion.log_evidence)
    test = rng.standard_normal((3, *problem.attended.shape[1:]))
    around, plain = expansion.around, plain_predictor(problem, test)
    coordinates, point = around.posterior.coordinates, jnp.asarray(around.point)

    def moments(x):
        factor = chain(coordinates, x)[0]
        return jnp.stack(plain(factor @ factor.T))

    def along(direction):
        def first(x):
            return jax.jvp(moments, (x,), (direction,))[1]

        return jax.jvp(first, (point,), (direction,))

    first, second = jax.jit(jax.vmap(along))(jnp.asarray(around.directions))
    expected = np.array(moments(point) + 0.5 * second.sum(axis=0))
    expected -= 0.5 * np.tensordot(around.drift, first, 1)
    expected[1] += np.sum(first[:, 0] ** 2, axis=0)
    for received, values in zip(expansion.predict(test), expected, strict=True):
        assert received.shape == (3, problem.architecture.outputs)
        np.testing.assert_allclose(received, values, rtol=0, atol=1e-8 * np.abs(values).max())


@pytest.mark.slow
@pytest.mark.parametrize("examples", [1, 16])
def test_limits_of_what_is_fine(examples):
    """Below both limits the errors are those that the module promises; above they can be larger."""
    promised = np.array([0.047, np.inf, 0.045, 0.11])
    beyond = []
    for label, temperature, width in itertools.product((1.0, 10.0), (0.01, 3.0, 10.0), (2, 3, 8)):
        problem = orthogonal_examples(width, examples, label, temperature)
        expansion, (_, following) = errors_of_both_orders(problem, span=14.0)
        assert expansion.defined
        large = expansion.correction > LARGEST_SHIFT or expansion.spread > LARGEST_SPREAD
        assert large is (expansion.status is NextOrderStatus.LARGE)
        if large:
            beyond.append(np.any(np.abs(following[:4]) > promised))
        else:
            errors = np.abs(following[:4])
            assert np.all(errors < promised), (label, temperature, width, errors)
    assert any(beyond)


# --- when there is no theory at next order: a named status, and never a number


def refuses_to_predict(expansion):
    """No number stands in a result that is not defined, and asking for one says why."""
    assert not expansion.defined
    assert expansion.order_parameters == ()
    assert np.isnan(expansion.log_evidence)
    assert np.isnan(expansion.spread)
    assert expansion.status.value in expansion.explain()
    with pytest.raises(ValueError, match="not defined"):
        expansion.predict(np.zeros((1, 1, 1)))


def test_a_saddle_point_that_is_not_converged(rng):
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    expansion = solve_next_order(problem, solve_saddle_point(problem, max_steps=1))
    assert expansion.status is NextOrderStatus.NO_SADDLE_POINT
    refuses_to_predict(expansion)


def test_two_minima_with_a_ridge_between_them():
    """A narrow layer with paths that never overlap: off-diagonal ±U_12 are equally likely.

    The descent starts on the ridge between the two, where no gradient leads away.
    """
    rng = np.random.default_rng(0)
    attended = np.zeros((6, 2, 4))
    attended[:, 0, :2], attended[:, 1, 2:] = rng.standard_normal((2, 6, 2))
    labels = 5.0 * attended[:, 1, 2:].sum(axis=1)[:, None]
    architecture = Architecture((2,), (1, 3), (1.0, 1.0, 1.0), channels=4)
    problem = LearningProblem(architecture, jnp.asarray(attended), jnp.asarray(labels), 0.1)
    saddle = solve_saddle_point(problem)
    assert saddle.converged
    expansion = solve_next_order(problem, saddle)
    assert expansion.status is NextOrderStatus.NOT_A_MINIMUM
    refuses_to_predict(expansion)


def test_numbers_that_overflow(rng):
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    saddle = solve_saddle_point(problem)
    factors = saddle.order_parameters.factors
    far = replace(saddle, order_parameters=OrderParameters(tuple(1e200 * f for f in factors)))
    expansion = solve_next_order(problem, far)
    assert expansion.status is NextOrderStatus.NOT_FINITE
    refuses_to_predict(expansion)


def test_an_order_parameter_that_is_not_positive():
    """Three heads over one readout unit, 𝒯 far below the labels: corrections exceed U_1 itself."""
    architecture = Architecture((3,), (3, 1), (1.0, 1.0, 1.0), channels=3)
    problem = random_problem(architecture, np.random.default_rng(81), examples=10, temperature=1e-3)
    problem = replace(problem, labels=0.1 * problem.labels)
    expansion = solve_next_order(problem, solve_saddle_point(problem))
    assert expansion.status is NextOrderStatus.NOT_POSITIVE
    assert expansion.correction > LARGEST_SHIFT
    refuses_to_predict(expansion)


@pytest.mark.slow
def test_rounding_of_the_gradient_is_no_reason_to_refuse(monkeypatch):
    """Labels of 200 standard deviations: |∇Φ| stays above its tolerance, the mode is found."""
    architecture = Architecture((2,), (4, 2), (1.0, 1.0, 1.0), channels=3, outputs=2)
    rng = np.random.default_rng(541)
    problem = random_problem(architecture, rng, examples=40, temperature=1e-3)
    problem = replace(problem, labels=20.0 * problem.labels, attended=0.3 * problem.attended)
    # Rounding leaves |∂A| near 1e-10, on some processors above the default tolerance.
    saddle = solve_saddle_point(problem, tolerance=1e-7)
    assert not LogPosterior(problem).mode(saddle).converged
    expansion = solve_next_order(problem, saddle, evidence=False)
    assert expansion.defined
    assert 0.0 < expansion.around.distance < 1e-6
    monkeypatch.setattr(next_order_module, "LARGEST_DISTANCE", 0.1 * expansion.around.distance)
    expansion = solve_next_order(problem, saddle, evidence=False)
    assert expansion.status is NextOrderStatus.NOT_A_MINIMUM
    refuses_to_predict(expansion)


def test_problems_too_large_are_not_begun(rng, monkeypatch):
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    saddle = solve_saddle_point(problem)
    coordinates = LogPosterior(problem).coordinates.size
    assert coordinates == 7
    expected = solve_next_order(problem, saddle)
    # p_1 = 3, D = 5: (p_1 D)² = 225 numbers are the most; for the evidence p_1⁶ = 729.
    monkeypatch.setattr(next_order_module, "LARGEST_THIRD_DERIVATIVES", 728)
    without = solve_next_order(problem, saddle)
    assert without.status is expected.status
    assert np.isnan(without.log_evidence)
    assert np.isfinite(expected.log_evidence)
    np.testing.assert_array_equal(without.order_parameters[0], expected.order_parameters[0])
    monkeypatch.setattr(LogPosterior, "mode", None)
    for name, number in (("LARGEST_BLOCKS", 224), ("HESSIAN_COORDINATES", 6)):
        with monkeypatch.context() as patched:
            patched.setattr(f"theory.size_limits.{name}", number)
            expansion = solve_next_order(problem, saddle)
            assert expansion.status is NextOrderStatus.TOO_LARGE
            refuses_to_predict(expansion)
        assert next_order_fits(problem.architecture)
