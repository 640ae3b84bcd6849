"""Spaces with laws that are known in closed form, and rules on draws that are given."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import numpyro
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float
from numpyro import distributions as dist

from sampler.mcmc.algorithm import Algorithm, Chunk
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.repetitions import statistics_of
from sampler.mcmc.stopping import StoppingRule
from sampler.mcmc.tempered import log_mean
from sampler.mcmc.tempered_smc import Course, Particles, begin, next_temperature
from sampler.posterior.data import Data
from sampler.posterior.given import Given
from sampler.posterior.initial_distribution import InitialDistribution
from sampler.posterior.space import Gaussian, Mode, Space


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Known(Space):
    """One site x with a Gaussian prior N(m, diag σ²); it is what is observed."""

    prior_mean: Float[Array, " coordinate"]
    prior_deviations: Float[Array, " coordinate"]

    name = "known"

    def sample_prior(self):
        prior = dist.Normal(self.prior_mean, self.prior_deviations).to_event(1)
        return numpyro.sample("x", prior)

    def observe(self, key, position):
        return {"x": position["x"]}

    def given(self, position, key):
        return Given(None)


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Linear(Known):
    """y ~ N(A x, s²): the posterior is normal."""

    features: Float[Array, "example coordinate"]
    noise: Float[Array, ""]

    def model(self, labels, inputs=None):
        x = self.sample_prior()
        numpyro.sample("y", dist.Normal(self.features @ x, self.noise).to_event(1), obs=labels)

    @classmethod
    def of(cls, features, labels, noise, prior_mean, prior_deviations) -> "Linear":
        """The space of these NumPy arrays."""
        arrays = {
            "features": features,
            "noise": noise,
            "prior_mean": prior_mean,
            "prior_deviations": prior_deviations,
        }
        data = Data(labels=jnp.asarray(labels)[:, None])
        return cls(
            data=data,
            temperature=jnp.asarray(float(noise) ** 2),
            **{name: jnp.asarray(np.asarray(values, float)) for name, values in arrays.items()},
        )


class Normal:
    """Normal distributions as posteriors: their labels say what the prior does not."""

    @staticmethod
    def standard(size: int) -> Linear:
        """Independent coordinates of variance 1, of which the one label says nothing."""
        return Normal.diagonal(np.zeros(size), np.ones(size))

    @staticmethod
    def diagonal(mean: np.ndarray, variances: np.ndarray) -> Linear:
        """Independent coordinates, of which the one label says nothing."""
        size = len(mean)
        return Linear.of(np.zeros((1, size)), np.zeros(1), 1.0, mean, np.sqrt(variances))

    @staticmethod
    def correlated(covariance: np.ndarray) -> Linear:
        """Mean 0, with priors of variance 1: Σ⁻¹ = 1 + AᵀA, for variances below 1."""
        size = len(covariance)
        features = np.linalg.cholesky(np.linalg.inv(covariance) - np.eye(size)).T
        return Linear.of(features, np.zeros(size), 1.0, np.zeros(size), np.ones(size))


def with_mode(space: Space, centre: np.ndarray, scale: np.ndarray) -> Space:
    """The space with a mode that is known, whitened by a scale."""
    gaussian = Gaussian(jnp.asarray(centre), jnp.asarray(scale))
    return replace(space, mode=Mode(gaussian, jnp.asarray(0.0), jnp.asarray(1.0)))


def led(
    start: InitialDistribution, count: int, seed: tuple[int, int, int], course: Course | None = None
) -> Particles:
    """Particles at the end of one repetition, or of a pilot."""
    particles = begin(start, count, seed)
    while not particles.finished:
        particles = next_temperature(particles, start, 0.8, seed, course)
    return particles


def repetitions(
    start: InitialDistribution, *, count: int = 128, times: int = 16, seed: int = 3
) -> list[Particles]:
    """Several repetitions, independent of each other, along the course of one pilot."""
    course = led(start, count, (seed, 0, 1000)).path
    return [led(start, count, (seed, 0, n), course) for n in range(times)]


def checked(draws, lp, most=5000, seconds=np.inf, pieces=()):
    """The rule after checks of draws [chain, draw] that come in pieces with the given ends."""
    collected = DrawCollector()
    rule = StoppingRule(Algorithm(), collected, most, seconds / 60.0)
    done = 0
    while (end := rule.next_end("draws", done)) > done:
        end = min([piece for piece in pieces if piece > done] + [end])
        cut = slice(done, end)
        chunk = Chunk("draws", end, most, {"lp": lp[:, cut]}, {"x": draws[:, cut]}, 1.0)
        collected(chunk)
        rule(chunk)
        done = end
    return rule


def statistics_of_all(
    made: list[Particles], from_prior: list[Particles], law: InitialDistribution
) -> dict[str, np.ndarray]:
    """Statistics, as they are stored, of repetitions of which the first have one from the prior."""
    of_prior = [(one.log_evidence, one.lost) for one in from_prior]
    of_prior += [None] * (len(made) - len(of_prior))
    each = [statistics_of(one, other, law) for one, other in zip(made, of_prior, strict=True)]
    return {name: np.concatenate([one[name] for one in each]) for name in each[0]}


def evidence_of(made: list[Particles]) -> tuple[float, float]:
    """Log evidence of repetitions, and its error."""
    return log_mean(np.array([one.log_evidence for one in made]))
