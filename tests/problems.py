"""Problems that tests share: unequal sizes everywhere, named ones, and the published one."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from sampler.mcmc.algorithm import Algorithm, ChainSettings, Chunk, algorithm_named
from sampler.mcmc.collected_draws import LIMITS, PREDICTORS, DrawCollector, Limit
from sampler.posterior.importance_sampling import ImportanceDraws, importance_draws
from sampler.posterior.space import Space
from sampler.problem import Problem
from sampler.settings.sampler import Sampler
from tests import ROOT
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


def scalar_problem(rng: np.random.Generator, *, examples: int = 5, width: int = 6):
    """A learning problem with L = H = O = 1, and attended test inputs [test, 1, channel]."""
    architecture = Architecture((1,), (width, width + 2), (0.8, 1.4, 1.2), channels=3)
    attended = jnp.asarray(rng.standard_normal((examples + 4, 1, 3)))
    labels = jnp.asarray(1.5 * rng.standard_normal((examples, 1)))
    problem = LearningProblem(architecture, attended[:examples], labels, 0.2)
    return problem, attended[examples:]


# --- a named problem, and the draws of a pretended sampler

HEAD_NAMES = (("good", "random"), ("uniform", "random"))
PATH_NAMES = ("good", "adversarial 1", "denoising", "adversarial 2")
TRAIN, TEST = 6, 5
CHAINS, DRAWS = 2, 40
LONG = (4, 1000)


def small_problem(rng, *, outputs: int = 1, labels_test: np.ndarray | None = None) -> Problem:
    """Two layers of two named heads, unequal widths."""
    architecture = Architecture((2, 2), (3, 4, 5), (0.9, 1.5, 0.6, 1.3), 6, outputs)
    attended = random_network_data(architecture, rng, examples=TRAIN + TEST).attended
    labels = jnp.asarray(rng.choice([-1.0, 1.0], (TRAIN, outputs)))
    learning = LearningProblem(architecture, attended[:TRAIN], labels, 0.2)
    return Problem(learning, attended[TRAIN:], labels_test, PATH_NAMES, HEAD_NAMES)


def signs(rng, outputs: int = 1) -> np.ndarray:
    """Test labels that are classes: ±1, or one of several outputs."""
    if outputs == 1:
        return rng.choice([-1.0, 1.0], (TEST, 1))
    return np.eye(outputs)[rng.integers(outputs, size=TEST)]


def random_observables(problem: Problem, rng, draws: int = DRAWS) -> dict[str, np.ndarray]:
    """Independent draws [chain, draw, …] of every quantity that a sampler of weights reports."""
    arch = problem.architecture
    names = ["order_parameter"]
    names += [f"order_parameter_layer_{layer}" for layer in range(2, arch.layers + 1)]
    shape = (CHAINS, draws)
    observables = {}
    for name, size in zip(
        [*names, "readout_order_parameter"], arch.order_parameter_sizes, strict=True
    ):
        rows = rng.standard_normal((*shape, size, size + 2))
        observables[name] = rows @ np.swapaxes(rows, -1, -2)
    observables["predictor"] = 0.1 + rng.standard_normal((*shape, TEST, arch.outputs))
    for name, weight_shape in arch.weight_shapes.items():
        observables[name] = rng.standard_normal((*shape, *weight_shape))
    return observables


def random_pointwise(problem: Problem, rng, draws: int = DRAWS) -> dict[str, np.ndarray]:
    """What such a sampler says of every training example, and the log prior."""
    shape = (CHAINS, draws)
    return {
        "log_likelihood": -1.0 - 0.3 * rng.standard_exponential((*shape, TRAIN)),
        "posterior_predictive": rng.standard_normal((*shape, TRAIN, problem.architecture.outputs)),
        "leave_one_out_predictive": rng.standard_normal(
            (*shape, TRAIN, problem.architecture.outputs)
        ),
        "log_prior": rng.standard_normal(shape),
    }


def healthy_statistics(rng, shape: tuple[int, int] = (CHAINS, DRAWS)) -> dict[str, np.ndarray]:
    """Sampler statistics of chains that move freely."""
    return {
        "lp": rng.standard_normal(shape),
        "energy": rng.standard_normal(shape),
        "acceptance_rate": rng.uniform(0.7, 1.0, shape),
        "diverging": np.zeros(shape, bool),
        "n_steps": np.full(shape, 7),
        "trajectory_steps": np.full(shape, 7),
        "step_size": np.full(shape, 0.3),
        "lost": np.zeros(shape, bool),
    }


def within(size: int, names: Sequence[str] = PREDICTORS) -> dict[str, Limit]:
    """Limits of what is kept, with so many bytes for each of these, by default of predictors."""
    return {**LIMITS, **dict.fromkeys(names, Limit(size))}


def collect(observables: dict, statistics: dict, *, pieces: int = 4, **settings) -> DrawCollector:
    """Hand draws to a collector in chunks, after a warm-up of one chunk."""
    draws = statistics["lp"].shape[1]
    collector = DrawCollector(**settings)
    collector(Chunk("warmup", draws, draws, statistics, seconds=1.0))
    ends = np.linspace(0, draws, pieces + 1).astype(int)
    for start, end in pairwise(ends):
        cut = [{k: v[:, start:end] for k, v in part.items()} for part in (statistics, observables)]
        collector(Chunk("draws", int(end), draws, *cut, seconds=0.5))
    return collector


def autoregressive(rng, coefficient, shape=LONG):
    """Stationary AR(1) chains of unit variance."""
    noise = rng.standard_normal(shape)
    values = np.empty(shape)
    values[:, 0] = noise[:, 0]
    for step in range(1, shape[1]):
        innovation = np.sqrt(1 - coefficient**2) * noise[:, step]
        values[:, step] = coefficient * values[:, step - 1] + innovation
    return values


# --- the published problem of four paths

REFERENCE = Path(__file__).parent / "reference" / "markov_four_paths.npz"
PUBLISHED_DATA = ROOT / "runs" / "markov_published.npz"

# What the published weight-space sampler found at N = 10 in a long run of NUTS: means of U_1 and
# their Monte Carlo standard errors; paths are good, adversarial 1, denoising, adversarial 2.
PUBLISHED_OVERLAP = {
    (0, 0): (14.961, 0.129),
    (0, 1): (0.052, 0.026),
    (0, 2): (-5.991, 0.068),
    (0, 3): (-0.460, 0.019),
    (1, 1): (0.511, 0.011),
    (1, 2): (-0.141, 0.018),
    (1, 3): (0.040, 0.005),
    (2, 2): (7.240, 0.070),
    (2, 3): (0.077, 0.016),
    (3, 3): (0.336, 0.007),
}
# The same elements sampled over the order parameters by an independent program.
TRIAL_OVERLAP = {
    (0, 0): (14.845, 0.052),
    (0, 2): (-5.927, 0.030),
    (1, 1): (0.5291, 0.0038),
    (2, 2): (7.213, 0.026),
    (3, 3): (0.3423, 0.0024),
}


def load_reference(every: int = 10) -> dict[str, np.ndarray]:
    """The published four-path problem and its values, on every tenth test example or on all.

    Arrays of tests/reference, described in its README.md, with the data of `runs`.
    """
    with np.load(REFERENCE) as stored, np.load(PUBLISHED_DATA) as data:
        of_test_examples = {
            "attended_inputs_test": data["attended_test"],
            "y_test": data["labels_test"],
            **{name: stored[name] for name in stored if name.endswith(("_mean", "_variance"))},
        }
        return {
            **stored,
            "attended_inputs_train": data["attended_train"],
            "y_train": data["labels_train"],
            **{name: values[::every] for name, values in of_test_examples.items()},
        }


def reference_problem(arrays: dict[str, np.ndarray], width: int) -> LearningProblem:
    """The four-path problem at one width: two layers of two heads, D = 231, all variances 1."""
    attended = jnp.asarray(arrays["attended_inputs_train"], float)
    architecture = Architecture.uniform((2, 2), width, attended.shape[2])
    labels = jnp.asarray(arrays["y_train"], float)[:, None]
    return LearningProblem(architecture, attended, labels, float(arrays["temperature"]))


@cache
def published_draws() -> tuple[LearningProblem, ImportanceDraws, np.ndarray]:
    """The problem of ten units, independent draws of its posterior, and factors F of their U_1."""
    problem = reference_problem(load_reference(), 10)
    space = space_of(problem)
    draws = importance_draws(space, 20_000, seed=10)
    assert draws.trusted, draws.explain()
    assert draws.effective_sample_size > 3_000
    return problem, draws, drawn_factors(space, draws)
