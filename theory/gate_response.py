"""Predictor and saddle point as functions of gates of heads, to first order.

Gate g_h multiplies what head h sends, g = 1 as it stands: features of every path through it become
φ^π Π_{h∈π} g_h, and K = Σ (D U_1 D) C with D their diagonal matrix. What the predictor mean m(x)
does when a gate moves depends on what has learned with it:

after learning   weights stay as they were learned: ∂m/∂g_h = Σ_{π∋h} m_π
at fixed U_1     the readout of paths learns again: ∂m/∂g_h of m at the overlap D U_1 D
with learning    order parameters move, too: dU/dg_h = −(∂²A/∂U²)⁻¹ ∂²A/∂U∂g_h

The action at its minimum moves by dA/dg_h = ∂A/∂g_h alone, as its slope in U vanishes there.
"""

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from theory.action import DenseAction, entropy_terms
from theory.architecture import AttentionPaths, all_heads, is_dense, order_parameter_sizes
from theory.energy import LearningProblem
from theory.order_parameters import OrderParameters, from_log_cholesky, to_log_cholesky
from theory.predictor import Predictor
from theory.programs import program


@dataclass(frozen=True)
class GateResponse:
    """Derivatives by the gate of every head, lowest layer first, where all gates are 1.

    action           dA/dg_h of the minimum
    at_fixed_overlap ∂m/∂g_h at U_1 as it is
    with_learning    dm/dg_h with order parameters that follow
    """

    action: Float[np.ndarray, " head"]
    at_fixed_overlap: Float[np.ndarray, "test output head"]
    with_learning: Float[np.ndarray, "test output head"]


def contributions_by_head(
    contributions: Float[np.ndarray, "test path output"], paths: AttentionPaths
) -> Float[np.ndarray, "test output head"]:
    """∂m/∂g_h = Σ_{π∋h} m_π, weights being as they were learned; heads lowest layer first."""
    through = np.stack([paths.uses(*head) for head in all_heads(paths.heads)])
    return np.einsum("xpo,hp->xoh", contributions, through.astype(float))


def gate_response(
    problem: LearningProblem,
    order_parameters: OrderParameters,
    attended: Float[Array, "test path channel"],
) -> GateResponse:
    """Derivatives of action and predictor mean by all gates, at a saddle point.

    Raises ValueError for more coordinates than have a Hessian that is held: there paths outnumber
    what one solve a head can do.
    """
    architecture = problem.architecture
    if not is_dense(architecture):
        raise ValueError(
            f"{architecture.coordinate_count:,} coordinates of order parameters are too many for "
            "one Hessian: keep fewer heads"
        )
    point = to_log_cholesky(order_parameters)
    scale = float(max(architecture.widths))
    energy, predictor = problem.energy, Predictor.for_examples(problem, attended)
    shape = {"heads": architecture.heads, "outputs": architecture.outputs}
    sizes = (
        jnp.asarray(architecture.widths, float),
        jnp.asarray(architecture.order_parameter_variances, float),
    )
    gates = jnp.ones(sum(architecture.heads))
    action, mixed = _action_slopes(point, gates, *sizes, energy, **shape)
    hessian = scale * DenseAction(problem).hessian(point)
    response = -np.linalg.solve(hessian, np.asarray(mixed))
    still = np.zeros_like(response)
    at_fixed, moving = (
        np.asarray(_mean_slopes(point, gates, along.T, predictor, **shape))
        for along in (still, response)
    )
    return GateResponse(
        np.asarray(action), *(np.moveaxis(one, 0, -1) for one in (at_fixed, moving))
    )


def path_gates(
    gates: Float[Array, " all_heads"], heads: tuple[int, ...], outputs: int
) -> Float[Array, " row"]:
    """The product of the gates of each path, for every row of U_1."""
    starts = np.cumsum([0, *heads[:-1]])
    places = np.array(list(itertools.product(*map(range, heads)))) + starts
    return jnp.repeat(jnp.prod(gates[places], axis=1), outputs)


@program.of(static_argnames=("heads", "outputs"))
def _action_slopes(point, gates, widths, variances, energy, *, heads, outputs):
    """∂A/∂g [head], and ∂²A/∂x∂g [coordinate, head]."""

    def action(point, gates):
        found = from_log_cholesky(point, order_parameter_sizes(heads, outputs))
        scaled = path_gates(gates, heads, outputs)[:, None] * found.factors[0]
        return entropy_terms(found, heads, widths, variances) + energy(scaled)

    slope = jax.grad(action, argnums=1)(point, gates)
    return slope, jax.jacfwd(jax.grad(action), argnums=1)(point, gates)


@program.of(static_argnames=("heads", "outputs"))
def _mean_slopes(point, gates, along, predictor, *, heads, outputs):
    """dm/dg of every head [head, test, output], coordinates moving `along` [head, coordinate]."""

    def mean(point, gates):
        found = from_log_cholesky(point, order_parameter_sizes(heads, outputs))
        return predictor(path_gates(gates, heads, outputs)[:, None] * found.factors[0])[0]

    def of_head(moved, gate):
        return jax.jvp(mean, (point, gates), (moved, gate))[1]

    return jax.lax.map(lambda pair: of_head(*pair), (along, jnp.eye(len(gates))))
