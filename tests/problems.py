"""Small problems shared by all tests: unequal sizes everywhere, and one with exact answers."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from sampler.mcmc.algorithm import Algorithm, ChainSettings, algorithm_named
from sampler.mcmc.collected_draws import DrawCollector
from sampler.posterior.importance_sampling import ImportanceDraws
from sampler.posterior.space import Space
from sampler.problem import Problem
from sampler.settings.sampler import Sampler
from theory import Architecture, LearningProblem, OrderParameters, attended_inputs

# No two sizes of one network agree by accident, so that a swapped axis cannot go unnoticed.
ARCHITECTURES = {
    "one head": Architecture((1,), (4, 5), (0.7, 1.3, 0.6), channels=3),
    "one layer": Architecture((3,), (7, 6), (1.4, 0.8, 1.2), channels=5),
    "one layer, two outputs": Architecture((3,), (9, 8), (1.4, 0.8, 1.2), 5, outputs=2),
    "two layers": Architecture((2, 3), (11, 8, 7), (0.9, 1.5, 0.6, 1.3), channels=5),
    "two layers, three outputs": Architecture((3, 2), (23, 9, 7), (0.9, 1.5, 0.6, 1.3), 4, 3),
    "three layers": Architecture((2, 3, 2), (17, 13, 11, 9), (1.1, 0.8, 1.2, 1.4, 0.7), 6),
    "three layers, two outputs": Architecture(
        (2, 1, 2), (13, 11, 10, 9), (1.1, 0.8, 1.2, 1.4, 0.7), 3, outputs=2
    ),
    # N_l < p_l: the overlaps of real weights are singular here.
    "narrow": Architecture((2, 3), (4, 2, 5), (0.9, 1.5, 0.6, 1.3), channels=5),
}


def all_but(
    values: Iterable, fast: Collection, mark: pytest.MarkDecorator = pytest.mark.slow
) -> list:
    """Values as parameters of a test that costs much for each: all but a few have the mark.

    A tuple has a value for each of several arguments.
    """
    values = list(values)
    missing = set(fast) - set(values)
    assert not missing, f"not among the values: {missing}"
    return [
        pytest.param(*(v if isinstance(v, tuple) else [v]), marks=[] if v in fast else mark)
        for v in values
    ]


# One path; layers of several heads with several outputs; a layer narrower than its paths; and a
# layer between two others, which the fast tests leave out.
FEW = ("one head", "two layers, three outputs", "narrow")
EVERY_ARCHITECTURE = all_but((*FEW, "three layers, two outputs"), FEW)


def space_of(
    problem: LearningProblem, name: str = "order_parameters", test=None, **settings
) -> Space:
    """The posterior of a learning problem in a space, where no test set matters or with one.

    settings  of `Problem.space`: precision, weights to keep, whether the mode is looked for
    """
    test = problem.attended[:1] if test is None else test
    return Problem(problem, test, None, (), ()).space(name, **settings)


def drawn_factors(space: Space, draws: ImportanceDraws) -> np.ndarray:
    """Factors F of U_1 = F Fᵀ of weighted draws [draw, row, rank]."""
    factor_at = jax.vmap(lambda point: space.factors(space.unflatten(point))[0])
    return np.asarray(jax.jit(factor_at)(jnp.asarray(draws.points)))


NUTS, HMC, SPLIT_HMC, TEMPERED = (
    algorithm_named(name, Sampler().values_for(name))
    for name in ("nuts", "hmc", "split_hmc", "tempered")
)


def chain_settings(*, chains=4, warmup=500, draws=1000, thinning=1, seed=0) -> ChainSettings:
    """Numbers of chains, some of them as most tests have them."""
    return ChainSettings(chains, warmup, draws, thinning, seed)


def sampled(space: Space, algorithm: Algorithm, **settings) -> DrawCollector:
    """What chains of an algorithm collect; settings of `chain_settings`."""
    collected = DrawCollector()
    algorithm.draw(space, chain_settings(**settings), collected)
    return collected


# What a readout takes of the tokens.
READOUTS = {
    "last": lambda tokens: np.eye(tokens)[-1],
    "first": lambda tokens: np.eye(tokens)[0],
    "mean": lambda tokens: np.ones(tokens) / tokens,
}


@dataclass(frozen=True)
class NetworkData:
    """Inputs [example, token, channel], attention [example, head, key, query] and readout."""

    inputs: np.ndarray
    attention: tuple[np.ndarray, ...]
    readout: str

    @property
    def attended(self) -> np.ndarray:
        """ξ^π(x) [example, path, channel] by the function under test in test_attended_inputs."""
        attention = tuple(jnp.asarray(omega) for omega in self.attention)
        return attended_inputs(jnp.asarray(self.inputs), attention, self.readout)


def random_network_data(
    architecture: Architecture,
    rng: np.random.Generator,
    *,
    examples: int = 6,
    tokens: int = 4,
    readout: str = "last",
) -> NetworkData:
    """Gaussian inputs and softmax attention with random logits, columns (keys) summing to one."""
    inputs = rng.standard_normal((examples, tokens, architecture.channels))
    logits = [rng.standard_normal((examples, h, tokens, tokens)) for h in architecture.heads]
    attention = tuple(scipy.special.softmax(2.0 * values, axis=2) for values in logits)
    return NetworkData(inputs, attention, readout)


def weight_variances(architecture: Architecture) -> dict[str, float]:
    """Prior variance of each array of weights, V_0 first and a last."""
    names = ("V_0", *(f"V_{layer}" for layer in range(1, architecture.layers + 1)), "a")
    return dict(zip(names, architecture.variances, strict=True))


def random_weights(architecture: Architecture, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights V_0, V_1 … V_L, a drawn from their prior."""
    variances = weight_variances(architecture)
    return {
        name: np.sqrt(variances[name]) * rng.standard_normal(shape)
        for name, shape in architecture.weight_shapes.items()
    }


def token_by_token(architecture, data, weights):
    """f(x) through every layer and every token, as the network is defined."""
    arch, outputs = architecture, []
    for example, tokens in enumerate(data.inputs):
        hidden = weights["V_0"] @ tokens.T / np.sqrt(arch.channels)  # [N_1, token]
        for layer, heads in enumerate(arch.heads):
            hidden = sum(
                weights[f"V_{layer + 1}"][head] @ hidden @ data.attention[layer][example, head]
                for head in range(heads)
            ) / np.sqrt(heads * arch.widths[layer])
        read = hidden @ READOUTS[data.readout](tokens.shape[0])
        outputs.append(weights["a"] @ read / np.sqrt(arch.widths[-1]))
    return np.array(outputs)


def random_problem(
    architecture: Architecture,
    rng: np.random.Generator,
    *,
    examples: int = 6,
    temperature: float = 0.1,
) -> LearningProblem:
    """Attended inputs of `random_network_data` and Gaussian labels."""
    data = random_network_data(architecture, rng, examples=examples)
    labels = jnp.asarray(rng.standard_normal((examples, architecture.outputs)))
    return LearningProblem(architecture, data.attended, labels, temperature)


def random_order_parameters(
    architecture: Architecture, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Positive definite U_1 … U_L, U_a with every entry free, condition numbers of order ten."""
    matrices = []
    for size in architecture.order_parameter_sizes:
        rows = rng.standard_normal((size, 2 * size + 3))
        matrices.append(rows @ rows.T / rows.shape[1] + 0.2 * np.eye(size))
    return tuple(matrices)


def order_parameters_of(matrices: Iterable[np.ndarray]) -> OrderParameters:
    """The value that stands for U_1 … U_L, U_a, of these positive definite matrices."""
    return OrderParameters(tuple(jnp.asarray(np.linalg.cholesky(one)) for one in matrices))


def weighted_mean_and_error(
    weights: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean of values [draw, …] with weights that sum to one, and its Monte Carlo error."""
    mean = np.tensordot(weights, values, axes=1)
    return mean, np.sqrt(np.tensordot(weights**2, (values - mean) ** 2, axes=1))


@dataclass(frozen=True)
class ScalarPosterior:
    """Exact posterior of a network with one layer, one head and one output, by quadrature.

    order_parameter, readout         (mean, standard deviation) of U_1 and u_a
    predictor_mean                   E[f(x)] [test]
    predictor_variance               Var[f(x)] = E[v] + Var[m] [test]
    log_evidence                     ln p(y)
    log_order_parameter_grid, density   p(ln U_1 | y) on an even grid, for quantiles and histograms
    """

    order_parameter: tuple[float, float]
    readout: tuple[float, float]
    predictor_mean: np.ndarray
    predictor_variance: np.ndarray
    log_evidence: float
    log_order_parameter_grid: np.ndarray
    density: np.ndarray


def scalar_problem(rng: np.random.Generator, *, examples: int = 5, width: int = 6):
    """A learning problem with L = H = O = 1, and attended test inputs [test, 1, channel]."""
    architecture = Architecture((1,), (width, width + 2), (0.8, 1.4, 1.2), channels=3)
    attended = jnp.asarray(rng.standard_normal((examples + 4, 1, 3)))
    labels = jnp.asarray(1.5 * rng.standard_normal((examples, 1)))
    problem = LearningProblem(architecture, attended[:examples], labels, 0.2)
    return problem, attended[examples:]


def exact_scalar_posterior(
    problem: LearningProblem, attended_test, *, points: int = 400, span: float = 9.0
) -> ScalarPosterior:
    """Quadrature of  u_a ~ σ_a² χ²/N_a,  U_1 | u_a ~ σ_1² u_a χ²/N_1,  y | U_1 ~ N(0, U_1 C + 𝒯 1).

    The trapezoidal rule over (ln u_a, ln U_1); the integrand is analytic and vanishes at both ends
    of the grid, so the rule converges faster than any power of the spacing. Uses NumPy only and
    the eigenvectors of C, no function of `theory`.
    """
    arch = problem.architecture
    if arch.heads != (1,) or arch.outputs != 1:
        raise ValueError(f"heads = {arch.heads}, outputs = {arch.outputs}: need (1,) and 1")
    width, readout_width = arch.widths
    input_variance, variance, readout_variance = arch.variances
    scale = np.sqrt(input_variance / arch.channels)
    train = scale * np.asarray(problem.attended)[:, 0]
    test = scale * np.asarray(attended_test)[:, 0]
    labels = np.asarray(problem.labels)[:, 0]

    grid = np.linspace(-span, span, points)
    overlap, readout = np.exp(grid), np.exp(grid)
    readout_prior = _log_gamma_density(readout, readout_width, readout_variance)
    overlap_prior = _log_gamma_density(overlap[:, None], width, variance * readout[None, :])

    eigenvalues, vectors = np.linalg.eigh(train @ train.T)
    eigenvalues = np.maximum(eigenvalues, 0.0)  # rounding, where examples are more than channels
    noisy = overlap[:, None] * eigenvalues + problem.temperature  # [overlap, component]
    projected = labels @ vectors
    likelihood = -0.5 * np.sum(np.log(2 * np.pi * noisy) + projected**2 / noisy, axis=1)

    log_joint = overlap_prior + readout_prior[None, :] + likelihood[:, None]
    peak, spacing = log_joint.max(), grid[1] - grid[0]
    joint = np.exp(log_joint - peak) * spacing**2
    total = joint.sum()
    joint /= total
    over_overlap, over_readout = joint.sum(axis=1), joint.sum(axis=0)

    cross = overlap[:, None, None] * (test @ train.T @ vectors)  # [overlap, test, component]
    mean = np.einsum("utk,uk,k->ut", cross, 1 / noisy, projected)
    prior_variance = overlap[:, None] * np.sum(test**2, axis=1)
    variance_given = prior_variance - np.einsum("utk,uk->ut", cross**2, 1 / noisy)
    predictor_mean = over_overlap @ mean
    return ScalarPosterior(
        order_parameter=_mean_and_deviation(overlap, over_overlap),
        readout=_mean_and_deviation(readout, over_readout),
        predictor_mean=predictor_mean,
        predictor_variance=over_overlap @ variance_given
        + over_overlap @ (mean - predictor_mean) ** 2,
        log_evidence=float(peak + np.log(total)),
        log_order_parameter_grid=grid,
        density=over_overlap / spacing,
    )


def _log_gamma_density(values, degrees: int, variance):
    """ln density, with respect to ln u, of u = variance · χ²_degrees / degrees."""
    shape, rate = degrees / 2, degrees / (2 * variance)
    return shape * np.log(rate * values) - rate * values - scipy.special.gammaln(shape)


def _mean_and_deviation(values: np.ndarray, probability: np.ndarray) -> tuple[float, float]:
    mean = probability @ values
    return float(mean), float(np.sqrt(probability @ (values - mean) ** 2))


def copied(problem: LearningProblem, copies: int) -> LearningProblem:
    """The same data several times, each copy in channels of its own: the energy is multiplied."""
    examples, paths, channels = problem.attended.shape
    attended = np.zeros((copies, examples, paths, copies, channels))
    for copy in range(copies):
        attended[copy, :, :, copy] = np.sqrt(copies) * problem.attended
    return replace(
        problem,
        architecture=replace(problem.architecture, channels=copies * channels),
        attended=jnp.asarray(attended.reshape(copies * examples, paths, copies * channels)),
        labels=jnp.tile(problem.labels, (copies, 1)),
    )
