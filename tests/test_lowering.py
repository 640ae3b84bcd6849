"""The gradient of the exact posterior can be handed to the compiler of a GPU."""

import re

import jax
import numpy as np
import pytest
from jax import export

from tests.problems import small_problem


@pytest.mark.usefixtures("without_annotation_checks")
def test_the_gradient_of_the_log_posterior_is_lowered_for_cuda(rng):
    """Exporting raises where an operation has no rule for the platform."""
    problem = small_problem(rng)
    space = problem.space("order_parameters", whitened=False)
    point = np.zeros(space.size)
    gradient = jax.jit(jax.value_and_grad(space.potential))
    text = export.export(gradient, platforms=["cuda"])(point).mlir_module()
    called = set(re.findall(r"stablehlo\.custom_call @([\w.]+)", text))
    # Factorisations are NVIDIA's own: none of a processor, and none that asks the host.
    assert any(name.startswith("cusolver") for name in called)
    assert not any("lapack" in name or "callback" in name for name in called)
