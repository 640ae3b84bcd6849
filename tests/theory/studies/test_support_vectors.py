"""Softmax attention as support-vector regression, and the solver of the regression."""

import itertools
import math

import numpy as np
import pytest
from sklearn.svm import SVR, LinearSVR

from tests.assertions import assert_equal_to_rounding
from theory.studies.softmax_forms import (
    Mask,
    Similarity,
    attention_kernel,
    attention_matrix,
    linear_features,
    mask_matrix,
    normalisers,
)
from theory.studies.support_vectors import (
    is_one_regression,
    masked_regressions,
    regression_of_attention,
    support_vector_attention,
)
from theory.studies.tube_regression import (
    rounding_of_fit,
    solve_tube_regression,
    violation,
)

TOKENS, CHANNELS, TUBE = 20, 4, 0.4


def solved(rng, similarity=Similarity.SOFTMAX, outputs=3, reach=3.0):
    keys = rng.standard_normal((TOKENS, CHANNELS))
    labels = rng.standard_normal((TOKENS, outputs))
    bound = reach * float(np.median(normalisers(keys, similarity)))
    return support_vector_attention(keys, labels, TUBE, bound, similarity), bound


def conditions(kernel):
    """Condition number of the kernel with its diagonal scaled to 1."""
    scales = np.sqrt(np.diag(kernel))
    return np.linalg.cond(kernel / scales / scales[:, None])


def test_softmax_attention_is_the_regressor_at_any_query(rng):
    found, _ = solved(rng)
    for query in (*rng.standard_normal((5, CHANNELS)), *(3.0 * rng.standard_normal((5, CHANNELS)))):
        # The regressor from the definition, sum by sum; attention from the library.
        similar = [math.exp(query @ key / math.sqrt(CHANNELS)) for key in found.keys]
        h_keys = [
            sum(math.exp(k @ j / math.sqrt(CHANNELS)) for j in found.keys) for k in found.keys
        ]
        expected = sum(
            beta * s / (sum(similar) * h)
            for beta, s, h in zip(found.coefficients, similar, h_keys, strict=True)
        )
        received = attention_matrix(query[None], found.keys) @ found.values
        assert np.abs(received[0] - expected).max() <= 1e-12 * np.abs(found.values).max()
        np.testing.assert_array_equal(found.attend(query[None]), received)
        assert_equal_to_rounding(
            found.regressor(query[None]),
            received,
            operations=4 * TOKENS,
            scale=np.abs(found.values).max(),
        )


def test_linear_attention_is_the_regressor_of_its_primal_weights(rng):
    """f(x) = w·φ(x)/h(x) with w = Σ_j β_j φ(k_j)/h(k_j)."""
    found, _ = solved(rng, Similarity.LINEAR)
    queries = 3.0 * rng.standard_normal((10, CHANNELS))
    features = linear_features(found.keys)
    h_keys = (features @ features.T).sum(axis=1)
    weights = (features / h_keys[:, None]).T @ found.coefficients
    points = linear_features(queries)
    expected = points @ weights / (points @ features.T).sum(axis=1, keepdims=True)
    received = found.attend(queries)
    assert np.abs(received - expected).max() <= 1e-12 * np.abs(found.values).max()


@pytest.mark.parametrize("similarity", Similarity)
def test_values_inside_the_tube_are_zero(similarity, rng):
    found, bound = solved(rng, similarity, reach=30.0)
    # Closer to the labels than the tube by more than residual and rounding can explain.
    errors = found.labels - found.regressor(found.keys)
    inside = np.abs(errors) < found.tube - found.residual - found.rounding
    assert 0 < inside.sum() < inside.size
    np.testing.assert_array_equal(found.values[inside], 0.0)
    # Errors beyond the tube take all the weight there is.
    edge = TUBE + found.residual + found.rounding
    outside = np.abs(found.labels - found.regressor(found.keys)) > edge
    np.testing.assert_array_equal(np.abs(found.coefficients[outside]), bound)
    silent = sorted(set(range(TOKENS)) - set(found.support_vectors))
    expected = [key for key in range(TOKENS) if not np.any(found.values[key])]
    assert silent == expected


def test_a_token_is_silent_only_if_it_is_in_every_channel(rng):
    found, _ = solved(rng, outputs=1)
    silent = next(key for key in range(TOKENS) if key not in found.support_vectors)
    other = np.where(np.arange(TOKENS) == silent, 5.0, 0.0)
    labels = np.column_stack([found.labels, other])
    both = support_vector_attention(found.keys, labels, TUBE, 1.0)
    assert silent in both.support_vectors
    assert both.coefficients[silent, 1] != 0.0


def test_channels_are_independent(rng):
    found, bound = solved(rng)
    for channel in range(3):
        alone = support_vector_attention(
            found.keys, found.labels[:, channel : channel + 1], TUBE, bound
        )
        np.testing.assert_array_equal(alone.coefficients[:, 0], found.coefficients[:, channel])


def test_the_bias_of_scikit_learn_is_added_to_every_value(rng):
    keys, labels = rng.standard_normal((TOKENS, CHANNELS)), rng.standard_normal(TOKENS) + 2.0
    kernel = attention_kernel(keys, keys)
    model = SVR(kernel="precomputed", C=float(np.median(normalisers(keys))), epsilon=TUBE)
    model.fit(kernel, labels)
    coefficients = np.zeros(TOKENS)
    coefficients[model.support_] = model.dual_coef_[0]
    assert np.any(coefficients == 0.0)
    assert abs(model.intercept_[0]) > 0.5
    values = coefficients / normalisers(keys) + model.intercept_[0]
    queries = rng.standard_normal((9, CHANNELS))
    received = attention_matrix(queries, keys) @ values
    expected = model.predict(attention_kernel(queries, keys))
    assert np.abs(received - expected).max() <= 1e-12 * np.abs(values).max()


@pytest.mark.parametrize("similarity", Similarity)
def test_any_values_solve_a_regression(similarity, rng):
    keys = rng.standard_normal((TOKENS, CHANNELS))
    values = rng.standard_normal((TOKENS, 2)) * (rng.random((TOKENS, 2)) < 0.7)
    coefficients, labels = regression_of_attention(keys, values, TUBE, similarity)
    bound = 1.5 * float(np.abs(coefficients).max())
    found = support_vector_attention(keys, labels, TUBE, bound, similarity)
    kernel = attention_kernel(keys, keys, similarity)
    queries = 2.0 * rng.standard_normal((7, CHANNELS))
    expected = attention_matrix(queries, keys, similarity) @ values
    if similarity is Similarity.SOFTMAX:
        assert_equal_to_rounding(
            found.values, values, operations=TOKENS**2, condition=conditions(kernel)
        )
        assert_equal_to_rounding(
            found.attend(queries), expected, operations=TOKENS**2, condition=conditions(kernel)
        )
        return
    # G has rank D: other coefficients solve the regression as well, but f is the same. What
    # matters is how well the features are determined: the smallest eigenvalue that is not 0.
    for beta, label in zip(coefficients.T, labels.T, strict=True):
        allowed = rounding_of_fit(kernel, label, TUBE, beta)
        assert violation(kernel, label, TUBE, bound, beta) <= allowed
    eigenvalues = np.linalg.eigvalsh(kernel)
    condition = eigenvalues[-1] / eigenvalues[-CHANNELS]
    scale = max(np.abs(found.values).max(), np.abs(values).max())
    assert_equal_to_rounding(
        found.attend(queries), expected, operations=TOKENS**2, condition=condition, scale=scale
    )


def test_masked_attention_is_a_regression_for_every_set_of_visible_keys(rng):
    tokens = 6
    keys, queries = rng.standard_normal((2, tokens, CHANNELS))
    values = rng.standard_normal((tokens, 2)) * (np.arange(tokens) != 2)[:, None]
    mask = mask_matrix(Mask.ONE_SIDED_WINDOW, tokens, 2)
    mask[5] = mask[4]
    expected = attention_matrix(queries, keys, mask=mask) @ values
    regressions = masked_regressions(keys, values, mask, TUBE)
    assert [one.visible for one in regressions] == [(0,), (0, 1), (0, 1, 2), (1, 2, 3), (2, 3, 4)]
    assert [one.queries for one in regressions] == [(0,), (1,), (2,), (3,), (4, 5)]
    for one in regressions:
        visible, seeing = list(one.visible), list(one.queries)
        np.testing.assert_array_equal(np.sign(one.coefficients), np.sign(values[visible]))
        bound = 2.0 * float(np.abs(one.coefficients).max())
        found = support_vector_attention(keys[visible], one.labels, TUBE, bound)
        condition = conditions(attention_kernel(keys[visible], keys[visible]))
        assert_equal_to_rounding(
            found.attend(queries[seeing]),
            expected[seeing],
            operations=tokens**2,
            condition=condition,
            scale=np.abs(values).max(),
        )
        assert 2 not in [visible[place] for place in found.support_vectors]
    # Labels of the same key differ between sets, so that no one regression has these values.
    first, second = (one.labels[one.visible.index(1)] for one in regressions[1:3])
    assert np.all(np.abs(first - second) > 1e-3)


def test_only_groups_are_one_regression():
    """Over all symmetric masks of 4 tokens: groups exactly where the mask is no negative kernel."""
    pairs = list(itertools.combinations(range(4), 2))
    groups = 0
    for bits in itertools.product((False, True), repeat=len(pairs)):
        mask = np.eye(4, dtype=bool)
        for (i, j), bit in zip(pairs, bits, strict=True):
            mask[i, j] = mask[j, i] = bit
        smallest = np.linalg.eigvalsh(mask.astype(float))[0]
        # The eigenvalues of these matrices are 0 or further than 0.1 from it.
        assert is_one_regression(mask) == (smallest > -0.1), mask
        groups += is_one_regression(mask)
    assert groups == 15  # the partitions of four tokens
    for mask, window, expected in (
        (Mask.COMPLETE, None, True),
        (Mask.CAUSAL, None, False),
        (Mask.WINDOW, 1, False),
        (Mask.WINDOW, 0, True),
    ):
        assert is_one_regression(mask_matrix(mask, 4, window)) is expected


def test_groups_are_solved_by_one_regression(rng):
    keys, labels = rng.standard_normal((9, CHANNELS)), rng.standard_normal((9, 1))
    group = np.arange(9) % 2
    mask = group[:, None] == group[None, :]
    similar = np.where(mask, np.exp(keys @ keys.T / math.sqrt(CHANNELS)), 0.0)
    sums = similar.sum(axis=1)
    kernel = similar / sums[:, None] / sums
    bound = float(sums.max())
    coefficients = solve_tube_regression(kernel, labels[:, 0], TUBE, bound).coefficients
    received = attention_matrix(keys, keys, mask=mask) @ (coefficients / sums)
    assert np.any(coefficients)
    for one in range(2):
        inside = group == one
        alone = support_vector_attention(keys[inside], labels[inside], TUBE, bound)
        assert_equal_to_rounding(
            received[inside],
            alone.attend(keys[inside])[:, 0],
            operations=9**2,
            condition=conditions(kernel),
            scale=np.abs(alone.values).max(),
        )


def test_a_query_that_sees_nothing_is_refused(rng):
    keys = rng.standard_normal((3, 2))
    mask = np.eye(3, dtype=bool)
    mask[1] = False
    with pytest.raises(ValueError, match=r"query 1 sees 0 of 3 keys"):
        masked_regressions(keys, keys, mask, TUBE)
    with pytest.raises(ValueError, match=r"query 1 sees 0 of 3 keys"):
        attention_matrix(keys, keys, mask=mask)


EPSILON = 0.2


def assert_no_duality_gap(kernel, labels, tube, bound, coefficients):
    """Primal cost and dual gain of the same β agree only at the solution of both."""
    fit = kernel @ coefficients
    square = coefficients @ fit
    loss = np.maximum(np.abs(labels - fit) - tube, 0.0)
    loss = bound * loss.sum() if loss.any() else 0.0  # an infinite bound allows no loss at all
    gain = labels @ coefficients - tube * np.abs(coefficients).sum() - square / 2.0
    # A label error within rounding costs bound × rounding; the same error meets β in the dual.
    count, sizes = len(labels), np.abs(kernel) @ np.abs(coefficients) + np.abs(labels) + tube
    weight = np.abs(coefficients).max() if np.isinf(bound) else bound
    assert_equal_to_rounding(
        square / 2.0 + loss, gain, operations=4 * count, scale=weight * sizes.sum()
    )


@pytest.mark.parametrize("similarity", Similarity)
@pytest.mark.parametrize("reach", [1.0, 30.0, 1e6])
@pytest.mark.parametrize(("tokens", "channels"), [(8, 1), (16, 2), (30, 1), (48, 8)])
def test_solved_to_rounding_however_singular(tokens, channels, reach, similarity):
    """Kernels of condition 1e2 to beyond 1e20, of rank 1, and with two equal keys."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        keys = rng.standard_normal((tokens, channels))
        keys[1] = keys[0] if seed == 2 else keys[1]
        kernel = attention_kernel(keys, keys, similarity)
        labels = rng.standard_normal(tokens)
        bound = reach * float(np.median(normalisers(keys, similarity)))
        found = solve_tube_regression(kernel, labels, EPSILON, bound)
        assert found.residual <= rounding_of_fit(kernel, labels, EPSILON, found.coefficients)
        assert_no_duality_gap(kernel, labels, EPSILON, bound, found.coefficients)


@pytest.mark.parametrize("bound", [0.3, 2.0, float("inf")])
def test_one_key_in_closed_form(bound):
    """β = sign y · min(max(|y| − ε, 0)/G, C)."""
    for label in (-3.0, -0.1, 0.0, 0.15, 1.0):
        found = solve_tube_regression(np.array([[1.7]]), np.array([label]), EPSILON, bound)
        expected = np.sign(label) * min(max(abs(label) - EPSILON, 0.0) / 1.7, bound)
        assert_equal_to_rounding(found.coefficients, expected, operations=8, scale=3.0)


@pytest.mark.parametrize("reach", [2.0, 5.0])
def test_agrees_with_liblinear(reach, rng):
    """LinearSVR without intercept on features F with F Fᵀ = G solves the same problem.

    It stops once a pass over the keys meets projected gradients that sum to `tol` times the sum g
    of the first pass, g ≤ Σ|y| + εn + C ΣG. Steps of the last pass change the gradients it met
    before by at most that sum times κ = max G_ij/G_jj each. For the w that belongs to such β,
    |w − w*|² ≤ Σ |gradient| |β − β*| ≤ 2C (1 + nκ) tol g.
    """
    keys = rng.standard_normal((24, 4))
    kernel = attention_kernel(keys, keys)
    labels = rng.standard_normal(24)
    bound = reach * float(np.median(normalisers(keys)))
    found = solve_tube_regression(kernel, labels, EPSILON, bound)
    assert 0 < np.sum(np.abs(found.coefficients) == bound) < np.sum(found.coefficients != 0) < 24
    tolerance = 1e-12
    features = np.linalg.cholesky(kernel)
    model = LinearSVR(
        epsilon=EPSILON,
        C=bound,
        fit_intercept=False,
        tol=tolerance,
        max_iter=10**6,
        random_state=0,
    ).fit(features, labels)
    first = np.abs(labels).sum() + 24 * EPSILON + bound * kernel.sum()
    moved = 1.0 + 24 * np.max(kernel / np.diag(kernel))
    distance = np.sqrt(2.0 * bound * moved * tolerance * first)
    limits = distance * np.sqrt(np.diag(kernel))
    assert limits.max() < EPSILON / 1000.0, "else the comparison says nothing"
    assert np.all(np.abs(kernel @ found.coefficients - features @ model.coef_) <= limits)


def test_violation_sees_every_condition():
    kernel, labels = np.eye(4), np.array([0.1, 1.0, 5.0, -5.0])
    right = np.array([0.0, 0.8, 2.0, -2.0])
    assert violation(kernel, labels, EPSILON, 2.0, right) <= 4 * np.finfo(float).eps
    for place, wrong, expected in ((0, 0.3, 0.4), (1, 0.0, 0.8), (1, 1.0, 0.2), (2, 1.0, 3.8)):
        received = violation(
            kernel, labels, EPSILON, 2.0, np.where(np.arange(4) == place, wrong, right)
        )
        assert_equal_to_rounding(received, expected, operations=8, scale=5.0)
    assert violation(kernel, labels, EPSILON, 1.5, right) == float("inf")
    # At the bound the error must not be smaller than the tube.
    received = violation(kernel, np.array([0.0, 0.0, 2.0, 0.0]), EPSILON, 2.0, right * (right == 2))
    assert_equal_to_rounding(received, EPSILON, operations=4)


def test_refused_and_unsolvable(rng):
    kernel, labels = np.eye(2), np.ones(2)
    with pytest.raises(ValueError, match=r"tube = -0\.1: must be 0 or more"):
        solve_tube_regression(kernel, labels, -0.1, 1.0)
    with pytest.raises(ValueError, match=r"bound = 0\.0: must be positive"):
        solve_tube_regression(kernel, labels, 0.1, 0.0)
    with pytest.raises(ValueError, match=r"kernel: diagonal from 0 to 1; must be positive"):
        solve_tube_regression(np.diag([1.0, 0.0]), labels, 0.1, 1.0)
    # Equal keys cannot have labels further apart than the tube is wide, unless errors are allowed.
    with pytest.raises(RuntimeError, match=r"residual = .* must be at most .*; lower the bound"):
        solve_tube_regression(np.ones((2, 2)), np.array([1.0, -1.0]), 0.1, float("inf"))
