"""Refusals of recipes: conditions between keys, and the words of errors."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from sampler.attention.layers import lowest_layers
from sampler.errors import ABSENT, InputError
from sampler.posterior.spaces import OF_TOKENS
from sampler.recipes.sampler_section import SamplerSection
from sampler.recipes.sections import AUTO, NetworkSection, OutsideTheory, Section
from sampler.recipes.settings import toml_value
from theory.architecture import HESSIAN_COORDINATES

# Remedies by pydantic's name for the problem; {…} are taken from pydantic's own context.
REMEDIES = {
    "missing": "this key is required; add it to the recipe",
    "literal_error": "use {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "finite_number": "must be a finite number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "use true or false",
    "string_type": 'must be text, as in "name"',
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "use letters, digits, '.', '_' and '-' only, none of the last "
    "three in front",
    "tuple_type": "must be a list, as in [1, 2]",
    "list_type": "must be a list, as in [1, 2]",
    "dict_type": "must be a table of keys and values",
    "model_type": "must be a table of keys and values",
    "model_attributes_type": "must be a table of keys and values",
    "too_short": "must have at least {min_length} entry",
}


def recipe_error(
    problem: ValidationError, settings: Mapping[str, Any], sections: Mapping[str, Any]
) -> InputError:
    """Return the InputError of the first problem that pydantic found in these settings.

    sections  the class of each section of the recipe, None where it is not known
    """
    error = problem.errors()[0]
    kind, context = error["type"], error.get("ctx", {})
    field, value = locate(error["loc"], settings, kind)
    if kind == "extra_forbidden":
        remedy = f"this key is unknown; {suggestion(field, known_keys(sections))}"
    elif kind == "value_error":
        remedy = str(context["error"])
    elif kind in REMEDIES:
        remedy = REMEDIES[kind].format(**context)
    else:
        remedy = error["msg"]
    return InputError(field or "recipe", value, remedy)


def known_keys(sections: Mapping[str, Any]) -> list[str]:
    """Return the dotted keys that a recipe of these sections may have."""
    keys = [f"{name}.{key}" for name, one in sections.items() if one for key in one.model_fields]
    return ["name", *sections, *keys]


def locate(
    location: tuple[int | str, ...], settings: Mapping[str, Any], kind: str
) -> tuple[str, Any]:
    """Dotted key and value of pydantic's location, whose names of unions are left out."""
    field, value = "", settings
    for step in location:
        if isinstance(step, int) and isinstance(value, list | tuple) and step < len(value):
            field, value = f"{field}[{step}]", value[step]
        elif isinstance(value, Mapping) and step in value:
            field, value = dotted(field, str(step)), value[step]
        elif kind == "missing" and step == location[-1]:
            field, value = dotted(field, str(step)), ABSENT
    return field, value


def suggestion(field: str, known_keys: list[str]) -> str:
    """The known key meant by an unknown one, or the keys known beside it."""
    section, _, name = field.rpartition(".")
    beside = [key for key in known_keys if key.rpartition(".")[0] == section]
    elsewhere = [key for key in known_keys if key.rpartition(".")[2] == name]
    close = get_close_matches(field, beside, n=1, cutoff=0.75) or elsewhere
    depth = field.count(".")
    same_depth = [key for key in known_keys if key.count(".") == depth]
    close = close or get_close_matches(field, same_depth, n=1, cutoff=0.75)
    if close:
        return f"did you mean {close[0]}?"
    names = sorted({key.removeprefix(f"{section}.").split(".")[0] for key in beside})
    if not section:
        names = sorted({key.split(".")[0] for key in known_keys})
    return f"known here: {', '.join(names)}" if names else "remove it"


def dotted(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def check_network(network: NetworkSection, attention_layers: int) -> None:
    """Raise InputError unless the network fits so many layers of attention."""
    layers = network.layers(attention_layers)
    widths = network.layer_widths(layers)
    network.layer_variances(layers)
    # Widths between branches: those inside a hypernetwork are neither normalised nor added to.
    lowest = lowest_layers(network.hypernetworks(attention_layers))
    between = [*(widths[layer - 1] for layer in lowest), widths[-1]]
    given = list(network.widths) if isinstance(network.widths, tuple) else network.widths
    if network.norm != "none" and 1 in between[1 if network.norm == "after" else 0 :]:
        remedy = "one unit alone is always zero when it is normalised; use at least 2, or "
        raise InputError("network.widths", given, remedy + 'network.norm = "none"')
    if network.residual and len({*between}) > 1:
        remedy = f"a residual network adds layers of {between} units; use equal widths, or "
        raise InputError("network.widths", given, remedy + "network.residual = false")


def check_sampler_fits(
    network: NetworkSection, sampler: SamplerSection, outside: OutsideTheory | None
) -> None:
    """Raise InputError for a space that the network does not have, or a theory that it has not."""
    if network.is_infinite and outside is not None:
        text = f"{in_words(outside)} is sampled by its weights, of which there are none; use a "
        raise InputError("network.widths", network.widths, text + f"number, or {covering(outside)}")
    if sampler.space != AUTO and (sampler.space == "attention") != network.is_infinite:
        allowed = "attention" if network.is_infinite else "order_parameters"
        words = "infinite" if network.is_infinite else "finite"
        text = f'has another posterior than a network of {words} widths; use "{allowed}"'
        raise InputError("sampler.space", sampler.space, text)
    if outside is None:
        return
    if not set(OF_TOKENS) & set(sampler.spaces):
        remedy = 'use "hidden_weights" or "weights"'
        if sampler.space == AUTO:  # other settings leave no such space
            kept = set(OF_TOKENS)
            texts = (text for spaces, text in sampler.demands if not kept & set(spaces))
            remedy = next(texts, remedy)
        raise InputError(
            "sampler.space",
            sampler.space,
            f"{in_words(outside)} has no order parameters; {remedy}",
        )
    if sampler.points == "selected":
        raise InputError(
            "sampler.points",
            "selected",
            f'{in_words(outside)} has no theory to choose by; use "all"',
        )


def check_learned(
    network: NetworkSection, sampler: SamplerSection, outside: OutsideTheory | None
) -> None:
    """Raise InputError for settings that heads whose attention is sampled do not go with."""
    refused = (
        ("weight_draws", sampler.weight_draws, network.is_infinite and sampler.weight_draws > 0,
         "there are no weights at infinite width; use 0"),
        ("algorithm", sampler.algorithm, sampler.algorithm == "importance", "needs a single mode, "
         'which attention that is sampled does not have; use "tempered"'),
        ("evidence", True, sampler.evidence and not sampler.repeated, "needs a single mode, which "
         'attention that is sampled does not have; algorithm = "tempered" knows it by itself'),
        ("points", "selected", sampler.points == "selected", "needs the theory of fixed attention "
         'to choose by; use "all"'),
    )  # fmt: skip
    for key, value, is_asked, remedy in refused:
        if is_asked:
            raise InputError(f"sampler.{key}", value, remedy)


def refuse_without_theory(
    outside: OutsideTheory | None, remedy: str, learns_attention: bool = False
) -> None:
    """Raise InputError, naming the setting, if a network has no theory.

    outside  the setting that is outside of it
    """
    if outside is not None:
        text = f"the theory needs a sum over attention paths: {remedy}, or {covering(outside)}"
        raise InputError(outside.key, as_written(outside.value), text)
    if learns_attention:
        text = f"the theory needs attention that is fixed: {remedy}, or other kinds of heads"
        raise InputError("attention.heads", "learned", text)


def as_written(value: Any) -> Any:
    """A setting as a recipe has it."""
    return value.model_dump() if isinstance(value, Section) else value


def covering(outside: OutsideTheory) -> str:
    """The change that brings a network back into the theory, in words."""
    if outside.covered is None:
        return f"remove {outside.key}"
    return f"set {outside.key} = {toml_value(outside.covered)}"


def in_words(outside: OutsideTheory) -> str:
    """A network outside the theory, by what keeps it there."""
    return f"a network with {outside.key} = {toml_value(as_written(outside.value))}"


def refuse_without_hessian(field: str, value: object, coordinates: int) -> None:
    """Raise InputError for what needs the Hessian at the mode, if the coordinates are too many."""
    if coordinates > HESSIAN_COORDINATES:
        raise InputError(
            field,
            value,
            f"needs the Hessian at the mode, too large in {coordinates:,} coordinates "
            f"(limit {HESSIAN_COORDINATES:,}); "
            'use sampler.algorithm = "nuts" and sampler.evidence = false',
        )
