"""One scale a layer: the kernel of infinite width, with a number for each layer to be found.

A scalar q_l multiplies the covariance of the units of layer l inside the recursion of
`theory.nonlinear_kernels`, g_l = q_l σ_l², and minimises

    A(q) = O Σ_{l=1}^{L+1} N_l (q_l − ln q_l) + Σ_c [ ln det(K_q + 𝒯) + y_cᵀ (K_q + 𝒯)⁻¹ y_c ]

with N_{L+1} = N_a. For O outputs it is the action of the linear theory with all order parameters
multiples of the identity, of one head in each layer. All q_l are 1 at infinite width. Values that
are linear or ReLU have K_q = (Π q_l) K. Source of the action: Li and Sompolinsky, arXiv 2012.04030.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from theory.energy import energy_of_kernel
from theory.nonlinear_kernels import (
    NonlinearProblem,
    kernel_of_pairs,
)
from theory.saddle_point import (
    REMEDY,
    Descent,
    SaddlePointStatus,
    dense_direction,
    descend,
)

# Values with φ(c u) = c φ(u) for c > 0, whose kernel is that of infinite width times a number.
HOMOGENEOUS = ("linear", "relu")
TOLERANCE = 1e-10
# Of ln q, for second derivatives.
STEP = 1e-5


@dataclass(frozen=True)
class OneScale:
    """The minimum of A(q).

    scales   q_1 … q_{L+1}, NaN where it was not found
    descent  in ln q, of A / max(N_1 … N_a), and how it ended
    smallest_hessian_eigenvalue
             of that function there
    """

    scales: Float[np.ndarray, " layer"]
    descent: Descent
    smallest_hessian_eigenvalue: float

    @property
    def converged(self) -> bool:
        """Whether the scales are a minimum to within the tolerance."""
        return self.descent.converged and self.smallest_hessian_eigenvalue > 0.0

    def explain(self) -> str:
        """One line: what happened, and what to do where it failed."""
        found = self.descent
        scales = ", ".join(f"{scale:.4g}" for scale in self.scales)
        text = (
            f"one scale a layer {found.status.value}: {scales}, |gradient| = "
            f"{found.gradient_norm:.1e} (limit {TOLERANCE:.0e}) after {found.steps} Newton steps"
        )
        if self.converged:
            return text
        not_least = SaddlePointStatus.NOT_A_MINIMUM
        return f"{text}; {REMEDY[not_least if found.converged else found.status]}"


def solve_one_scale(problem: NonlinearProblem, *, max_steps: int = 100) -> OneScale:
    """Minimise A in ln q by Newton's steps from infinite width.

    Its gradient is exact; second derivatives are differences of it.
    """
    arch = problem.architecture
    widths, largest = np.array(arch.widths, float), max(arch.widths)
    kernel_at = kernel_and_slopes(problem)

    def value_and_gradient(point):
        scales, (kernel, slopes) = np.exp(point), kernel_at(jnp.asarray(point))
        value, along = _energy(kernel, slopes, problem.labels, problem.temperature)
        entropy = arch.outputs * widths * (scales - point)
        gradient = arch.outputs * widths * (scales - 1.0) + np.asarray(along)
        return (float(value) + entropy.sum()) / largest, gradient / largest

    def hessian(point):
        steps = STEP * np.eye(len(point))
        rows = [value_and_gradient(point + s)[1] - value_and_gradient(point - s)[1] for s in steps]
        found = np.stack(rows) / (2.0 * STEP)
        return (found + found.T) / 2.0

    found = descend(
        value_and_gradient,
        dense_direction(hessian),
        np.ones_like,
        np.zeros(arch.layers + 1),
        TOLERANCE,
        max_steps,
    )
    finite = np.isfinite(found.value)
    smallest = float(np.linalg.eigvalsh(hessian(found.point))[0]) if finite else float("nan")
    return OneScale(np.exp(found.point), found, smallest)


def kernel_and_slopes(problem: NonlinearProblem) -> Callable[[Array], tuple[Array, Array]]:
    """The function from ln q to K_q and ∂K_q/∂ ln q_l [layer, example, example]."""
    network = problem.network
    if problem.values not in HOMOGENEOUS:
        return lambda point: _kernel_and_slopes(point, problem.train, **network)
    variances = jnp.asarray(problem.architecture.order_parameter_variances)
    kernel, _ = kernel_of_pairs(problem.train, None, variances, **network)

    def multiple(point):
        scaled = jnp.exp(jnp.sum(point)) * kernel
        return scaled, jnp.broadcast_to(scaled, (len(point), *scaled.shape))

    return multiple


@partial(jax.jit, static_argnames=("architecture", "values"))
def _kernel_and_slopes(point, train, *, architecture, values):
    def kernel(at):
        scales = jnp.exp(at) * jnp.asarray(architecture.order_parameter_variances)
        return kernel_of_pairs(train, None, scales, architecture=architecture, values=values)[0]

    # Forward, one layer after the other: of the pairs of examples nothing is kept.
    kernels, slopes = jax.lax.map(
        lambda one: jax.jvp(kernel, (point,), (one,)), jnp.eye(len(point))
    )
    return kernels[0], slopes


@jax.jit
def _energy(kernel, slopes, labels, temperature):
    value, slope = jax.value_and_grad(energy_of_kernel)(kernel, labels, temperature)
    return value, jnp.einsum("xy,lxy->l", slope, slopes)
