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

SpaceName = Literal["order_parameters", "hidden_weights", "weights", "attention"]
ORDER_PARAMETERS, HIDDEN_WEIGHTS, WEIGHTS, ATTENTION = get_args(SpaceName)
ROOM = "sampler.posterior"
SPACES: Registry[type["Space"]] = Registry(
    "space",
    {
        ORDER_PARAMETERS: f"{ROOM}.order_parameters:OrderParameterSpace",
        HIDDEN_WEIGHTS: f"{ROOM}.hidden_weights:HiddenWeightSpace",
        WEIGHTS: f"{ROOM}.weights:WeightSpace",
        ATTENTION: f"{ROOM}.order_parameters:AttentionSpace",
    },
)
# Spaces of networks outside the theory, and of networks whose attention is fixed or sampled.
OF_TOKENS = (HIDDEN_WEIGHTS, WEIGHTS)
OF_FIXED_PATHS = (ORDER_PARAMETERS, *OF_TOKENS)
OF_SAMPLED_PATHS = tuple(SPACES)


def kind_of(name: str) -> str:
    """The built-in space that one is like: of those from outside, the space of all weights."""
    return name if name in get_args(SpaceName) else WEIGHTS


def has_own_priors(name: str) -> bool:
    """Whether a space is registered from outside, with priors that are not the theory's."""
    return name in SPACES and name not in get_args(SpaceName)


def refuse_own_priors(name: str) -> None:
    """Raise InputError where theory and order parameters have other priors than a space."""
    if has_own_priors(name):
        remedy = "the theory and order parameters have Gaussian weights, this space its own priors"
        raise InputError("sampler.space", name, f"{remedy}; use `sample`")


def refuse_space(name: str, allowed: Sequence[str], network: str) -> None:
    """Raise InputError for a space that a kind of network does not have."""
    if name not in SPACES or kind_of(name) not in allowed:
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
) -> "Space":
    """The posterior of a network in a space, its mode not known.

    keep  names of the weights that are stored of every draw, where weights are sampled
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
    if kind_of(name) in OF_TOKENS:
        variances = number(network.variances)
        fields |= {"variances": variances, "network": network.sizes, "keep": tuple(keep)}
        return SPACES[name](**fields)
    from theory.wishart_chain import WishartChain

    return SPACES[name](**fields, chain=WishartChain.of(network, dtype))


# Bytes of the weights that are kept of all draws.
MOST_WEIGHT_BYTES = 2 * 2**30


def refuse_weight_draws(count: int, chains: int, draws: int, weights: int, item_bytes: int) -> None:
    """Raise InputError unless weights of `count` draws per chain exist and fit into memory."""
    setting = "sampler.weight_draws"
    if not 1 <= count <= draws:
        remedy = f"must lie between 1 and the {draws} draws of each chain"
        raise InputError(setting, count, remedy)
    of_one = chains * weights * item_bytes
    if count * of_one > MOST_WEIGHT_BYTES:
        most = MOST_WEIGHT_BYTES // of_one
        needed, limit = count * of_one / 2**30, MOST_WEIGHT_BYTES / 2**30
        remedy = f"use at most {most}" if most else "use narrower layers or fewer chains"
        remedy = (
            f"{weights:,} weights × {count} draws × {chains} chains need {needed:.3g} GiB "
            f"(limit {limit:.3g} GiB); {remedy}"
        )
        raise InputError(setting, count, remedy)
