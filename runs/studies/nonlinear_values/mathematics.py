"""Order parameters of all heads in a network with nonlinear values: paths and what they leave.

φ(u) = μ u + rest with μ = E φ'(u), for each token by its variance at infinite width, where u and
the rest are uncorrelated. Linear parts alone make paths, whose kernels C^μ weigh the keys of every
layer with μ. What layer l adds beside its linear part,

    R^l = Q^{l+1} − (σ_l²/H_l) Σ_h Ω_hᵀ (μ Q^l μ') Ω'_h

with means of different heads in Q^{l+1}, is taken to be Gaussian and to go on along the linear
tails ρ = (h_{l+1} … h_L) above it. The kernel then is

    K = Σ_ππ' U_1^{ππ'} C^μ_ππ' + Σ_{l=1}^L Σ_ρρ' U_{l+1}^{ρρ'} R^l_ρρ'

and all U_l minimise the action of the linear theory (`theory.action_functional`) with this K.
Linear values leave nothing, R^l = 0, which gives that theory; at infinite width
U_l = σ_l² ··· σ_a² 1 gives the kernel of `theory.nonlinear_kernels`.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import sampler
from sampler.analysis.difference import UNDECIDED, difference_of
from sampler.analysis.estimates import OF_CHAINS
from sampler.network import path_weights
from sampler.token_problem import TokenProblem
from theory import (
    ActionByProducts,
    Architecture,
    Features,
    OrderParameters,
    SaddlePoint,
    StoredKernels,
    energy_of_kernel,
)
from theory.architecture import Values
from theory.nonlinear_kernels import (
    ERF,
    GELU,
    Kernels,
    NonlinearProblem,
    TokenExamples,
    input_covariance,
    next_covariance,
    of_pairs,
    unit_variances,
)
from theory.path_kernels import PathKernels, path_pairs
from theory.saddle_point import minimise_action

# Up to this many coordinates the Hessian is formed, from products; above, these alone are used.
DENSE_COORDINATES = 100


@partial(jax.tree_util.register_dataclass, data_fields=["paths", "rests"], meta_fields=[])
@dataclass(frozen=True)
class KernelParts:
    """Path kernels C^μ and what every layer leaves beside them, between two sets of examples.

    paths  multiplied by U_1
    rests  R^1 … R^L, multiplied by U_2 … U_{L+1}
    """

    paths: PathKernels
    rests: tuple[StoredKernels, ...]

    def kernel(self, factors: tuple[Float[Array, "_row _rank"], ...]) -> Float[Array, "_row _row"]:
        """K at U_l = F_l F_lᵀ, rows (example, output), output fastest."""
        parts = (self.paths, *self.rests)
        return sum(part.kernel(factor) for part, factor in zip(parts, factors, strict=True))


@partial(
    jax.tree_util.register_dataclass, data_fields=["parts", "labels", "temperature"], meta_fields=[]
)
@dataclass(frozen=True)
class HeadsEnergy:
    """E(U_1 … U_{L+1}) = ln det(K + 𝒯 1) + yᵀ (K + 𝒯 1)⁻¹ y with the kernel of all layers."""

    parts: KernelParts
    labels: Float[Array, "example output"]
    temperature: Float[Array, ""] | float
    residual: ClassVar[None] = None

    def of_layers(self, factors: tuple[Float[Array, "_row _rank"], ...]) -> Float[Array, ""]:
        """E at factors of all order parameters."""
        labels = self.labels.reshape(-1, 1)
        return energy_of_kernel(self.parts.kernel(factors), labels, self.temperature)


def solve_by_heads(
    problem: NonlinearProblem,
    parts: KernelParts | None = None,
    *,
    tolerance: float | None = None,
    max_steps: int = 100,
    starts: int = 1,
    seed: int = 0,
) -> SaddlePoint:
    """Minimise the action over all order parameters, as `solve_saddle_point` does.

    parts  `kernel_parts` of the training examples, where they are known
    """
    arch = problem.architecture
    if parts is None:
        parts = kernel_parts(problem, problem.train)
    energy = HeadsEnergy(parts, problem.labels, problem.temperature)
    return minimise_action(
        ActionByProducts(arch, energy),
        arch,
        dense=arch.coordinate_count <= DENSE_COORDINATES,
        tolerance=tolerance,
        max_steps=max_steps,
        starts=starts,
        seed=seed,
    )


def by_heads(problem: TokenProblem) -> tuple[dict[str, np.ndarray], np.ndarray] | None:
    """Mean and variance of the predictor on test examples, and U_1; None without a minimum.

    problem  as `sampler.make_problem` gives it, of a network with nonlinear values
    """
    network, labels = problem.network, problem.labels

    train, test = (
        TokenExamples.read(inputs, attention, network.readout)
        for inputs, attention, *_ in (problem.data.tokens, problem.data.tokens_test)
    )
    learning = NonlinearProblem(
        network.architecture, network.values, train, labels, problem.temperature
    )
    parts = kernel_parts(learning, learning.train)
    found = solve_by_heads(learning, parts)
    if not found.converged:
        return None
    kernels = kernels_by_heads(learning, found.order_parameters, test, parts)
    *moments, _ = kernels.regression(labels.reshape(-1, 1), learning.temperature)
    shape = (len(test), *labels.shape[1:]) if labels.shape[1] > 1 else (len(test),)
    mean, variance = (np.asarray(moment).reshape(shape) for moment in moments)
    predictions = {"predictor_mean": mean, "predictor_variance": variance}
    return predictions, np.asarray(found.order_parameters.matrices[0])


def kernels_by_heads(
    problem: NonlinearProblem,
    order_parameters: OrderParameters,
    test: TokenExamples,
    parts: KernelParts | None = None,
) -> Kernels:
    """K at given order parameters, rows (example, output); `parts` as for `solve_by_heads`."""
    factors = order_parameters.factors
    if parts is None:
        parts = kernel_parts(problem, problem.train)
    train = _assembled(parts, factors)
    cross = _assembled(kernel_parts(problem, test, problem.train), factors)
    prior = _prior(test, factors, **problem.network)
    return Kernels(train, cross, prior)


_assembled = jax.jit(lambda parts, factors: parts.kernel(factors))


def kernel_parts(
    problem: NonlinearProblem, left: TokenExamples, right: TokenExamples | None = None
) -> KernelParts:
    """Kernels between two sets of examples; right = None: of one with itself."""
    return _kernel_parts(left, right, **problem.network)


@partial(jax.jit, static_argnames=("architecture", "values"))
def _kernel_parts(left, right, *, architecture, values):
    outputs = architecture.outputs
    described = partial(described_by_token, architecture=architecture, values=values)
    (features, *of_left), of_right = described(left), None
    others = None
    if right is not None:
        others, *of_right = described(right)
    one = partial(rests_of_pair, architecture=architecture, values=values)
    sizes = [tails.shape[1] ** 2 for tails in of_left[0]]
    numbers = left.inputs.shape[1] ** 2 + sum(sizes)
    pairs = (left, *of_left), None if right is None else (right, *of_right)
    found = of_pairs(lambda x, other: one(*x, *other), *pairs, numbers)
    rests = tuple(store(jnp.moveaxis(rest, (2, 3), (0, 1)), outputs) for rest in found)
    return KernelParts(Features(features, others), rests)


@partial(jax.jit, static_argnames=("architecture", "values"))
def _prior(test, factors, *, architecture, values):
    """K(x, x) [test · output] of every example."""
    features, *described = described_by_token(test, architecture, values)

    def one(example):
        rests = rests_of_pair(*example, *example, architecture=architecture, values=values)
        return tuple(rest[:, :, None, None] for rest in rests)

    rests = jax.lax.map(one, (test, *described))
    outputs = architecture.outputs

    def of_example(feature, rest):
        form = Features(feature[None], None)
        parts = KernelParts(form, tuple(store(one, outputs) for one in rest))
        return jnp.diagonal(parts.kernel(factors))

    return jax.vmap(of_example)(features, rests).reshape(-1)


def store(kernels: Float[Array, "path path left right"], outputs: int) -> StoredKernels:
    """Kernels of all pairs of paths, packed as `StoredKernels` has them."""
    paths, _, examples, others = kernels.shape
    first, second = path_pairs(paths, outputs)
    pairs = kernels[first, second]
    if outputs == 1:
        halves = np.where(first == second, 0.5, 1.0)[:, None, None]
        pairs = halves * (pairs + kernels[second, first])
    return StoredKernels((pairs.reshape(len(first), -1),), paths, examples, others)


def mean_slope(variance: Float[Array, "..."], values: Values) -> Float[Array, "..."]:
    """Mean slope μ_φ = E φ'(u), which makes μ u the linear part of φ(u).

    2^{-½} for the ReLU and c/2 for GELU, at any variance; 2c/√(π(1 + 2q)) for erf.
    """
    if values == "erf":
        return 2.0 * ERF / jnp.sqrt(jnp.pi * (1.0 + 2.0 * variance))
    constant = {"linear": 1.0, "relu": 0.5**0.5, "gelu": 0.5 * GELU}[values]
    return jnp.full_like(variance, constant)


def described_by_token(
    examples: TokenExamples, architecture: Architecture, values: Values
) -> tuple[Float[Array, "example path channel"], tuple, tuple, tuple]:
    """Features of all paths, and for every layer linear tails, variances and slopes μ.

    Features are φ^π = (σ_0/√D) Σ_s τ^0_πs x_s; tails τ^l [example, path above, token] begin with
    τ^L = 1 and go down by τ^{l-1}_{(h,ρ),s} = μ^l_s Σ_t Ω^{l,h}_st τ^l_ρt/√H_l.
    """
    variances = unit_variances(examples, architecture, values)[:-1]
    slopes = tuple(mean_slope(q, values) for q in variances)
    tails = [jnp.ones((len(examples), 1, 1))]
    for omega, slope in zip(reversed(examples.attention), reversed(slopes), strict=True):
        down = jnp.einsum("xs,xhst,xrt->xhrs", slope, omega, tails[0]) / omega.shape[1] ** 0.5
        tails.insert(0, down.reshape(len(examples), -1, down.shape[-1]))
    scale = (architecture.variances[0] / architecture.channels) ** 0.5
    return scale * tails[0] @ examples.inputs, tuple(tails[1:]), variances, slopes


def rests_of_pair(
    left: TokenExamples,
    tails: tuple,
    variances: tuple,
    slopes: tuple,
    right: TokenExamples,
    other_tails: tuple,
    other_variances: tuple,
    other_slopes: tuple,
    *,
    architecture: Architecture,
    values: Values,
) -> tuple[Float[Array, "_path _path"], ...]:
    """R^1_ρρ' … R^L_ρρ' of a pair of examples."""
    found = []
    above = input_covariance(left, right, architecture)
    layers = zip(
        architecture.order_parameter_variances,
        zip(left.attention, tails, variances, slopes, strict=True),
        zip(right.attention, other_tails, other_variances, other_slopes, strict=True),
        strict=False,
    )
    for variance, (omega, tail, q, slope), (other_omega, other_tail, p, other_slope) in layers:
        units = variance * above
        linear = slope[:, None] * units * other_slope[None, :]
        above = next_covariance(units, q, p, omega, other_omega, values)
        rest = above - jnp.einsum("hst,su,huv->tv", omega, linear, other_omega) / len(omega)
        found.append(tail @ rest @ other_tail.T)
    return tuple(found)


def relative(predicted: np.ndarray, sampled) -> float | None:
    """|predicted − mean|/|mean| without the Monte Carlo noise; None where nothing can be said."""
    found = difference_of(predicted, sampled, symmetric=True)
    return None if not found or found["state"] in UNDECIDED else found["difference"]


def overlaps_of(draws, depth: int, width: int) -> np.ndarray:
    """U_1 [chain, draw, path, path] of kept weights of two heads a layer."""
    stored = draws["posterior_weights"]
    weights = {name: np.asarray(stored[name]) for name in stored if name in ("a", "V_1", "V_2")}
    arch = Architecture((2,) * depth, (width,) * (depth + 1), (1.0,) * (depth + 2), 1,
                        weights["a"].shape[-2])  # fmt: skip
    chains, count = weights["a"].shape[:2]
    found = np.empty((chains, count), dtype=object)
    for place in np.ndindex(chains, count):
        rows = np.asarray(path_weights({n: w[place] for n, w in weights.items()}, arch)[0])
        found[place] = rows @ rows.T / width
    return np.array(found.tolist())


def heads_beside(recipe, draws) -> tuple[dict[str, dict], float | None]:
    """The approximation by heads, for a comparison, and how far its U_1 is off, where known.

    draws  with weights of some of them, for U_1
    """
    found = by_heads(sampler.make_problem(recipe))
    if found is None:
        return {}, None
    apart = None
    if "posterior_weights" in draws:
        depth, width = len(recipe.attention.heads), recipe.network.widths
        apart = relative(found[1], OF_CHAINS.mean(overlaps_of(draws, depth, width)))
    return {"by heads": found[0]}, apart
