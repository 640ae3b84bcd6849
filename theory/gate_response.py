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
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from theory.action import DenseAction
from theory.architecture import AttentionPaths, all_heads, is_dense, order_parameter_sizes
from theory.energy import LearningProblem
from theory.infinite_width import InfiniteWidth
from theory.order_parameters import OrderParameters, from_log_cholesky, to_log_cholesky
from theory.path_kernels import path_features
from theory.predictor import Predictor, path_contributions
from theory.programs import program


@dataclass(frozen=True)
class GateResponse:
    """Derivatives by the gate of every head, lowest layer first, where all gates are 1.

    action         dA/dg_h of the minimum
    with_learning  dm/dg_h with order parameters that follow
    """

    action: Float[np.ndarray, " head"]
    with_learning: Float[np.ndarray, "test output head"]


@dataclass(frozen=True)
class SlopesAtOverlaps:
    """Derivatives by the gate of every head at some U_1, where all gates are 1.

    contributions  m_π(x)
    mean_slopes    ∂m/∂g_h, the readout learning again
    energy         ∂E/∂g_h, so that ∂ ln p(y | U_1)/∂g_h = −½ ∂E/∂g_h
    """

    contributions: Float[np.ndarray, "overlap test path output"]
    mean_slopes: Float[np.ndarray, "overlap test output head"]
    energy: Float[np.ndarray, "overlap head"]


def contributions_by_head(
    contributions: Float[np.ndarray, "test path output"], paths: AttentionPaths
) -> Float[np.ndarray, "test output head"]:
    """∂m/∂g_h = Σ_{π∋h} m_π, weights being as they were learned; heads lowest layer first."""
    return np.einsum("xpo,hp->xoh", contributions, paths_of_heads(paths))


def paths_of_heads(paths: AttentionPaths) -> Float[np.ndarray, "head path"]:
    """1 for the paths through each head, 0 for all others."""
    return np.stack([paths.uses(*head) for head in all_heads(paths.heads)]).astype(float)


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
    predictor = Predictor.for_examples(problem, attended)
    shape = {"heads": architecture.heads, "outputs": architecture.outputs}
    mixed = _mixed_slopes(point, problem.energy, **shape)
    hessian = scale * DenseAction(problem).hessian(point)
    response = -np.linalg.solve(hessian, np.asarray(mixed))
    moved = np.moveaxis(np.asarray(_mean_along(point, response.T, predictor, **shape)), 0, -1)
    factors = order_parameters.factors[0][None]
    fixed = slopes_at_overlaps(problem, predictor, factors, attended)
    return GateResponse(fixed.energy[0], fixed.mean_slopes[0] + moved)


def slopes_at_overlaps(
    problem: LearningProblem,
    predictor: Predictor,
    factors: Float[Array, "overlap row rank"],
    attended: Float[Array, "test path channel"],
) -> SlopesAtOverlaps:
    """Derivatives by all gates at each U_1 = F Fᵀ, one after the other.

    predictor  of these test examples
    """
    arch = problem.architecture
    tests = path_features(attended, arch.variances[0])
    found = _at_overlaps(factors, predictor, problem.features, tests, heads=arch.heads)
    return SlopesAtOverlaps(*map(np.asarray, found))


def slopes_at_infinite_width(
    problem: LearningProblem, attended: Float[Array, "test path channel"]
) -> tuple[Float[np.ndarray, "test path output"], Float[np.ndarray, "test output head"]]:
    """Contributions m_π and ∂m/∂g_h at infinite width, of any number of paths.

    ∂m/∂g_h = 2 (c_h(x) − k(x)ᵀ (K + 𝒯)⁻¹ c_h),   c_h = Σ_{π∋h} m_π

    as (∂K/∂g_h) (K + 𝒯)⁻¹ y is 2 c_h on the training examples: the readout learns again.
    """
    limit, paths = InfiniteWidth.of(problem), AttentionPaths(problem.architecture.heads)
    factor = OrderParameters.gp_limit(problem.architecture).factors[0]
    terms = [
        np.asarray(path_contributions(problem, factor, inputs))
        for inputs in (problem.attended, attended)
    ]
    on_train, on_test = (contributions_by_head(one, paths) for one in terms)
    labels = limit.eigenvectors.T @ on_train.reshape(len(on_train), -1)
    again, _ = replace(limit, labels=labels).predictor(attended).moments(problem.temperature)
    return terms[1], 2.0 * (on_test - again.reshape(on_test.shape))


def path_gates(
    gates: Float[Array, " all_heads"], heads: tuple[int, ...], outputs: int
) -> Float[Array, " row"]:
    """The product of the gates of each path, for every row of U_1."""
    starts = np.cumsum([0, *heads[:-1]])
    places = np.array(list(itertools.product(*map(range, heads)))) + starts
    return jnp.repeat(jnp.prod(gates[places], axis=1), outputs)


@program.of(static_argnames="heads")
def _at_overlaps(factors, predictor, features, tests, *, heads):
    """m_π, ∂m/∂g and ∂E/∂g at each factor of U_1."""
    outputs, energy = predictor.energy.labels.shape[1], predictor.energy
    # dU_1/dg_h = D_h U_1 + U_1 D_h with the rows of each head in D_h.
    rows = jnp.asarray(np.repeat(paths_of_heads(AttentionPaths(heads)), outputs, axis=1))

    def of_one(factor):
        whitening = predictor.whitening(factor)
        alpha = (whitening @ energy.flat_labels) @ whitening
        learned = jnp.einsum("xpi,xc->pci", features, alpha.reshape(energy.labels.shape))
        learned = learned.reshape(len(factor), -1)
        overlap = factor @ factor.T
        carried = overlap @ learned
        moved = jnp.einsum("ha,ai->hai", rows, carried)
        moved += jnp.einsum("ab,hb,bi->hai", overlap, rows, learned)
        moved = moved.reshape(len(rows), -1, outputs, features.shape[2])
        on_train, on_test = (jnp.einsum("xpi,hpci->xch", of, moved) for of in (features, tests))
        again = whitening.T @ (whitening @ on_train.reshape(-1, len(rows)))
        again = (predictor.cross.kernel(factor) @ again).reshape(on_test.shape)
        slope = jax.grad(lambda gates: energy(path_gates(gates, heads, outputs)[:, None] * factor))
        by_path = carried.reshape(-1, outputs, features.shape[2])
        terms = jnp.einsum("xpi,pci->xpc", tests, by_path)
        return terms, on_test - again, slope(jnp.ones(sum(heads)))

    return jax.lax.map(of_one, factors)


@program.of(static_argnames=("heads", "outputs"))
def _mixed_slopes(point, energy, *, heads, outputs):
    """∂²A/∂x∂g [coordinate, head], to which the entropy adds nothing."""

    def at(point, gates):
        found = from_log_cholesky(point, order_parameter_sizes(heads, outputs))
        return energy(path_gates(gates, heads, outputs)[:, None] * found.factors[0])

    return jax.jacfwd(jax.grad(at), argnums=1)(point, jnp.ones(sum(heads)))


@program.of(static_argnames=("heads", "outputs"))
def _mean_along(point, along, predictor, *, heads, outputs):
    """Derivatives of m along directions in coordinates [direction, test, output]."""

    def mean(point):
        return predictor(
            from_log_cholesky(point, order_parameter_sizes(heads, outputs)).factors[0]
        )[0]

    return jax.lax.map(lambda one: jax.jvp(mean, (point,), (one,))[1], along)
