"""The table of spaces, and the space of a network with its data.

Free of JAX until a space is made, so that settings are checked by the names alone.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from sampler.errors import InputError
from sampler.registry import Registry

if TYPE_CHECKING:
    from sampler.posterior.data import Data
    from sampler.posterior.space import Space
    from sampler.token_network import TokenNetwork
    from theory.architecture import Architecture
    from theory.learning_problem import LearningProblem

SpaceName = Literal["order_parameters", "hidden_weights", "weights", "attention"]
ORDER_PARAMETERS, HIDDEN_WEIGHTS, WEIGHTS, ATTENTION = get_args(SpaceName)
ROOM = "sampler.posterior"
SPACES: Registry[type["Space"]] = Registry(
    "space",
    {
        ORDER_PARAMETERS: f"{ROOM}.order_parameters:OrderParameters",
        HIDDEN_WEIGHTS: f"{ROOM}.hidden_weights:HiddenWeights",
        WEIGHTS: f"{ROOM}.weights:Weights",
        ATTENTION: f"{ROOM}.infinite_width:InfiniteWidth",
    },
)
# Spaces of networks outside the theory, and of networks whose attention is fixed or sampled.
OF_TOKENS = (HIDDEN_WEIGHTS, WEIGHTS)
OF_FIXED_PATHS = (ORDER_PARAMETERS, *OF_TOKENS)
OF_SAMPLED_PATHS = tuple(SPACES)


def refuse_space(name: str, allowed: Sequence[str], network: str) -> None:
    """Raise InputError for a space that a kind of network does not have."""
    if name not in allowed:
        remedy = f"{network} has {', '.join(allowed)}"
        raise InputError("space", name, remedy)


def make_space(
    name: str,
    data: "Data",
    network: "Architecture | TokenNetwork",
    temperature: float,
    spread: float = 0.0,
    *,
    keep: Sequence[str] = (),
    learning: "LearningProblem | None" = None,
) -> "Space":
    """The posterior of a network in a space.

    keep      names of the weights that are stored of every draw, where weights are sampled
    learning  the learning problem, where chains are to be whitened at the mode of order parameters
    """
    import jax.numpy as jnp
    import numpy as np

    dtype = data.labels.dtype

    def number(value: Any):
        """Converted by NumPy, which compiles nothing."""
        return jnp.asarray(np.asarray(value, dtype))

    fields: dict[str, Any] = {
        "data": data,
        "temperature": number(temperature),
        "spread": number(spread) if spread else None,
    }
    if name in OF_TOKENS:
        variances = number(network.variances)
        fields |= {"variances": variances, "network": network.sizes, "keep": tuple(keep)}
        return SPACES[name](**fields)
    from theory.wishart_chain import WishartChain

    space = SPACES[name](**fields, chain=WishartChain.of(network, dtype))
    if learning is None:
        return space
    from dataclasses import replace

    from sampler.posterior.mode import find_mode

    return replace(space, mode=find_mode(space, learning))
