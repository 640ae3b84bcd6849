"""Fewer channels of attended inputs: scale of path kernels, share left out, its effect on U_1."""

import jax.numpy as jnp
import numpy as np
import pytest

import sampler
from sampler.errors import InputError
from sampler.tasks.reduction import principal_directions, second_moment
from tests.assertions import assert_equal_to_rounding
from theory.path_kernels import path_features

HEADS = (2, 2)
EXAMPLES, TEST, CHANNELS, WEAK = 12, 4, 9, 4


def attended(rng, weak: float = 0.1, examples: int = EXAMPLES) -> np.ndarray:
    """Attended inputs of four paths; a turn hides that the last four channels are weak."""
    inputs = rng.standard_normal((examples, 4, CHANNELS))
    inputs[..., -WEAK:] *= weak
    turn, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((CHANNELS, CHANNELS)))
    return inputs @ turn


def path_kernels(inputs: np.ndarray) -> np.ndarray:
    """C_{ππ'}(x, x') by features, [example, path, other, path]."""
    features = np.asarray(path_features(jnp.asarray(inputs), 1.3))
    return np.einsum("xpi,yqi->xpyq", features, features)


def test_path_kernels_are_equal_with_all_directions(rng):
    inputs = attended(rng)
    directions = principal_directions(second_moment([inputs]), share=1.0)
    assert directions.matrix.shape == (CHANNELS, CHANNELS)
    assert directions.share == 1.0
    kernels = path_kernels(inputs)
    assert np.abs(path_kernels(directions.reduce(inputs)) - kernels).max() < 1e-10
    # also where there are fewer directions than channels: nothing else has changed
    few = principal_directions(second_moment([inputs[:1]]), share=1.0)
    assert few.matrix.shape == (CHANNELS, 4)
    assert np.abs(path_kernels(few.reduce(inputs[:1])) - path_kernels(inputs[:1])).max() < 1e-10


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_trace_of_the_kernel_keeps_the_share(rng, share):
    inputs = attended(rng)
    directions = principal_directions(second_moment([inputs]), share)
    traces = [np.einsum("xpxp->", path_kernels(one)) for one in (directions.reduce(inputs), inputs)]
    assert_equal_to_rounding(traces[0] / traces[1], directions.share, operations=1e3)
    # as few as it takes: one direction less has a smaller share
    kept = directions.matrix.shape[1]
    less = principal_directions(second_moment([inputs]), 1.0, most=kept - 1)
    assert less.share < share <= directions.share


def test_blocks_are_the_whole_and_a_limit_is_kept(rng):
    inputs = attended(rng).astype(np.float32)
    whole = second_moment([inputs])
    assert_equal_to_rounding(second_moment([inputs[:5], inputs[5:]]), whole, operations=1e3)
    assert whole.dtype == np.float64
    directions = principal_directions(whole, share=0.999, most=3)
    assert directions.matrix.shape == (CHANNELS, 3)
    assert directions.reduce(inputs).dtype == np.float32
    # of float32 numbers, too, the largest share: that of a singular value decomposition
    values = np.linalg.svd(inputs.reshape(-1, CHANNELS).astype(float), compute_uv=False) ** 2
    assert_equal_to_rounding(directions.share, values[:3].sum() / values.sum(), operations=1e3)


def test_what_means_nothing_is_refused(rng):
    moment = second_moment([attended(rng)])
    with pytest.raises(InputError, match="share"):
        principal_directions(moment, 1.5)
    with pytest.raises(InputError, match="most"):
        principal_directions(moment, most=0)
    with pytest.raises(InputError, match="second_moment"):
        principal_directions(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="at least one example"):
        second_moment([])


@pytest.mark.heavy
def test_order_parameter_differs_in_proportion_to_what_is_left_out():
    """U_1 of four paths, weak channels left out: their share times a constant, to first order."""
    labels = np.random.default_rng(4).choice([-1.0, 1.0], EXAMPLES)
    shares, differences = [], []
    for weak in (0.04, 0.02, 0.01):
        # the strong channels are the same
        inputs = attended(np.random.default_rng(5), weak, EXAMPLES + TEST)
        moment = second_moment([inputs[:EXAMPLES]])
        directions = principal_directions(moment, 1.0, most=CHANNELS - WEAK)
        full, reduced = (
            order_parameter(one, labels) for one in (inputs, directions.reduce(inputs))
        )
        shares.append(1.0 - directions.share)
        differences.append(np.abs(reduced - full).max() / np.abs(full).max())
    # four times less is left out, four times smaller is the difference; what is not of first order
    # falls by four once more
    ratios = np.array(differences) / shares
    first, second = np.abs(np.diff(ratios))
    assert 3.5 < first / second < 4.5


def order_parameter(inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """U_1 of a network with these attended inputs."""
    task = sampler.make_task(
        "arrays",
        attended_train=inputs[:EXAMPLES],
        labels_train=labels,
        attended_test=inputs[EXAMPLES:],
        heads=np.array(HEADS),
    )
    theory = sampler.solve(task, sampler.make_network(widths=6, temperature=0.3), starts=1)
    return np.asarray(theory["order_parameter"].sel(predictor="leading"))
