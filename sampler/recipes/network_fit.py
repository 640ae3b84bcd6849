"""What a network asks of the other settings: the lists per layer, and what needs the theory."""

from sampler.errors import InputError
from sampler.recipes.sections import NetworkSection, SamplerSection


def check_network(network: NetworkSection, attention_layers: int) -> None:
    """Raise InputError unless the network fits so many layers of attention."""
    layers = network.layers(attention_layers)
    widths = network.layer_widths(layers)
    network.layer_variances(layers)
    if network.layer_norm:
        layer = 0
        for is_pair in network.hypernetworks(attention_layers):
            layer += 1 + is_pair
            if widths[layer] == 1:
                raise InputError(
                    "network.widths",
                    network.widths if isinstance(network.widths, int) else list(network.widths),
                    "one unit alone is always zero when it is normalised; use at least 2, or "
                    "network.layer_norm = false",
                )


def check_sampler_fits(network: NetworkSection, sampler: SamplerSection) -> None:
    """Raise InputError for a sampler that needs the theory of a network that has none."""
    if network.fits_theory:
        return
    if sampler.space != "weights":
        raise InputError(
            "sampler.space",
            sampler.space,
            f'{outside(network)} has no order parameters; use "weights"',
        )
    if sampler.points == "selected":
        raise InputError(
            "sampler.points",
            "selected",
            f'{outside(network)} has no theory to choose by; use "all"',
        )


def refuse_without_theory(network: NetworkSection, remedy: str) -> None:
    """Raise InputError, naming the setting, if this network has no theory."""
    if network.fits_theory:
        return
    if network.layer_norm:
        field, value, linear = "network.layer_norm", True, "false"
    else:
        field, value, linear = "network.values", network.values, '"linear"'
    raise InputError(
        field,
        value,
        f"the theory needs a network linear in its values: {remedy}, or set {field} = {linear}",
    )


def outside(network: NetworkSection) -> str:
    """What keeps a network outside the theory."""
    return "a network with " + ("layer_norm" if network.layer_norm else f"{network.values} values")
