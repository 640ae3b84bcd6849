"""The space that a recipe names."""

from jaxtyping import Array, Float

from sampler.posterior.order_parameter_space import order_parameter_space
from sampler.posterior.space import SampledSpace
from sampler.posterior.upper_weight_space import upper_weight_space
from sampler.posterior.weight_space import weight_space
from theory.learning_problem import LearningProblem


def make_space(
    name: str,
    problem: LearningProblem,
    attended_test: Float[Array, "test path channel"],
    keep_weights: bool,
) -> SampledSpace:
    """The space `name`: "order_parameters", "upper_weights" or "weights".

    `keep_weights` has a meaning only where weights are sampled. Raises ValueError for another name.
    """
    if name == "order_parameters":
        return order_parameter_space(problem, attended_test)
    if name == "upper_weights":
        return upper_weight_space(problem, attended_test, keep_weights)
    if name == "weights":
        return weight_space(problem, attended_test, keep_weights)
    raise ValueError(f"space {name!r}: use order_parameters, upper_weights or weights")
