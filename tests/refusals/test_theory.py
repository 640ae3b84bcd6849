"""What theory and spaces refuse: maker, error, and the size, field or value that is named."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.posterior.importance_sampling import importance_draws
from tests.problems import ARCHITECTURES, random_problem, scalar_problem, space_of
from tests.theory.nonlinear import nonlinear_problem
from theory import (
    Architecture,
    TemperatureTooSmall,
    log_evidence_at_saddle,
    solve_saddle_point,
)
from theory.attention_regression import normalisers
from theory.nonlinear_kernels import kernels_at

GOOD = {"heads": (2, 3), "widths": (5, 6, 7), "variances": (1.0, 2.0, 3.0, 4.0), "channels": 4}


def architecture(**change):
    return lambda _: Architecture(**{**GOOD, "outputs": 2, **change})


def learning(**change):
    """A problem with other values; a number multiplies an array."""

    def make(rng):
        problem = random_problem(ARCHITECTURES["one layer, two outputs"], rng)
        values = {
            name: value * getattr(problem, name)
            if name != "temperature" and isinstance(value, float)
            else value
            for name, value in change.items()
        }
        return replace(problem, **values)

    return make


def nonlinear(rng):
    two = Architecture((2, 3), (7, 5, 6), (0.9, 1.5, 0.6, 1.3), 4)
    problem, test, _ = nonlinear_problem(two, "relu", rng, readout="last")
    return kernels_at(replace(problem, temperature=1e-30), test)


def drawn(**settings):
    return lambda rng: importance_draws(space_of(scalar_problem(rng)[0], **settings), 100, seed=1)


def saddle_point(rng):
    return solve_saddle_point(random_problem(ARCHITECTURES["one layer"], rng).astype(jnp.float32))


def evidence(name, **settings):
    def make(rng):
        problem = random_problem(ARCHITECTURES[name], rng)
        return log_evidence_at_saddle(problem, solve_saddle_point(problem, **settings))

    return make


REFUSED = [
    (architecture(heads=()), ValueError, "at least one attention layer"),
    (architecture(heads=[2, 3]), ValueError, "heads"),
    (architecture(heads=(2, 0)), ValueError, r"heads\[1\] = 0"),
    (architecture(widths=(5, 6)), ValueError, "2 attention layers need 3 widths"),
    (architecture(variances=(1.0, 1.0, 1.0)), ValueError, "2 attention layers need 4 variances"),
    (architecture(variances=(1.0, 1.0, np.inf, 1.0)), ValueError, r"variances\[2\] = inf"),
    (learning(attended=jnp.ones((6, 2, 5))), ValueError, "attended"),
    (learning(attended=jnp.full((6, 3, 5), jnp.inf)), ValueError, "attended"),
    (learning(labels=jnp.ones((6, 1))), ValueError, "labels"),
    (learning(labels=jnp.full((6, 2), jnp.nan)), ValueError, "labels"),
    (learning(temperature=0.0), ValueError, "temperature"),
    (learning(temperature=1e-16), TemperatureTooSmall, "rounding decides"),
    (learning(attended=1e80), TemperatureTooSmall, "rounding decides"),
    (learning(labels=1e160), TemperatureTooSmall, "overflow"),
    (nonlinear, TemperatureTooSmall, "rounding decides"),
    (lambda _: normalisers(np.array([[30.0], [1.0]])), ValueError, r"= 900; must be at most 709"),
    (lambda _: normalisers(np.full((9, 1), 708.0**0.5)), ValueError, r"= 708; must be at most 707"),
    (saddle_point, ValueError, "float32"),
    (evidence("narrow"), ValueError, "width 1 = 4"),
    (evidence("one layer", max_steps=1), ValueError, "max_steps"),
    (drawn(precision="float32"), ValueError, "float32"),
    (drawn(whitened=False), ValueError, "need the mode of the posterior"),
]


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(("make", "error", "message"), REFUSED)
def test_what_is_refused_is_named(make, error, message, rng):
    with pytest.raises(error, match=message):
        make(rng)
