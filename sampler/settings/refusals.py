"""Settings that cannot be used: those that do not go together, and the words of pydantic's errors.

Each check is called once: of the sections when a recipe is made, of layers and draws when their
numbers are there, of the theory when a command needs one.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from sampler.attention.layers import Variants, lowest_layers, variants_by_head
from sampler.attention.variants import AttentionVariant
from sampler.errors import ABSENT, InputError, Part, Setting, Words, as_recipe, input_error_in
from sampler.mcmc.algorithm import BRIDGED_DRAWS
from sampler.posterior.spaces import (
    ATTENTION,
    OF_TOKENS,
    ORDER_PARAMETERS,
    kind_of,
    refuse_weight_draws,
)
from sampler.settings.identity import Sections
from sampler.settings.network_sections import NetworkSection, OutsideTheory
from sampler.settings.sampler import SINGLE, SamplerSection
from sampler.settings.task_sections import INPUTS, LEARNED, AttentionSection, TaskSection, kinds_of
from sampler.settings.types import AUTO, section_in
from theory.size_limits import HESSIAN_COORDINATES

SPACE_OF_EVIDENCE = f'evidence needs space = "{ORDER_PARAMETERS}"'
FALSE = Words("false", "False")


def of_sampler(sampler: SamplerSection, key: str, remedy: str, *parts: Part) -> InputError:
    return InputError(Setting("sampler", key), getattr(sampler, key), remedy, *parts)


def refuse_chains(sampler: SamplerSection) -> None:
    """Raise InputError for an end that chains cannot have, and for chains where there are none."""
    if sampler.until == "trusted" and sampler.draws is not None:
        remedy = 'until = "trusted" finds the number of draws itself; remove draws, or set '
        raise of_sampler(sampler, "draws", remedy + "max_draws instead")
    if sampler.until == "trusted" and sampler.chains == 1:
        remedy = 'until = "trusted" needs at least 2 chains; or set draws instead'
        raise of_sampler(sampler, "chains", remedy)
    if lacking := sampler.lacking(sampler.algorithm):
        counts = sampler.algorithm_class.counts
        remedy = f'algorithm = "{sampler.algorithm}" does not have it; remove this setting: '
        remedy += f"{counts.draws} and {counts.chains} say how many draws it makes"
        raise of_sampler(sampler, lacking[0], remedy)


def refuse_attention(attention: AttentionSection, task: TaskSection, learns: bool) -> None:
    """Raise InputError unless the heads are of kinds that the task has, and fit their variants."""

    def refused(key: str, value: object, remedy: str) -> InputError:
        return InputError(Setting("attention", key), value, remedy)

    if attention.form is not None:
        heads = tuple(map(len, attention.heads))
        variants_of(Setting("attention", "form"), attention.form, heads)
    learned = attention.learned
    if learned is not None and learned.rank is not None and learned.form != "low_rank":
        raise refused("learned.rank", learned.rank, 'rank needs form = "low_rank"')
    if attention.reads != INPUTS and not learns:
        remedy = f'heads that are fixed attend to inputs; use "{INPUTS}", or heads of the kind '
        raise refused("reads", attention.reads, f'{remedy}"{LEARNED}"')
    if task.brings_heads:
        return
    for layer, kinds in enumerate(attention.heads):
        for head, kind in enumerate(kinds):
            if kind not in task.head_kinds:
                remedy = f"this task has heads of the kinds {kinds_of(task.head_kinds)}"
                raise refused(f"heads[{layer}][{head}]", kind, remedy)
    if attention.lag is not None and "lag" not in task.head_kinds:
        raise refused("lag", attention.lag, "remove it: this task has no lag heads")


def variants_of(
    setting: Setting, form: Variants, heads: Sequence[int]
) -> tuple[tuple[AttentionVariant, ...], ...]:
    """Return the variant of every head, layer by layer; InputError if lists do not fit them."""
    try:
        return variants_by_head(form, heads)
    except InputError:
        raise
    except ValueError as problem:
        raise InputError(setting, dump_setting(form), str(problem)) from None


def refuse_learned(network: NetworkSection, sampler: SamplerSection) -> None:
    """Raise InputError for settings that heads whose attention is sampled do not go with."""
    if network.is_infinite and sampler.weight_draws:
        raise of_sampler(sampler, "weight_draws", "there are no weights at infinite width; use 0")
    if sampler.evidence and not sampler.algorithm_class.gives_evidence:
        remedy = "needs a single mode, which attention that is sampled does not have; "
        remedy += 'algorithm = "tempered" computes it in any case'
        raise of_sampler(sampler, "evidence", remedy)
    if sampler.points == "selected":
        remedy = 'needs the theory of fixed attention to choose by; use "all"'
        raise of_sampler(sampler, "points", remedy)


def refuse_sampler(
    network: NetworkSection, sampler: SamplerSection, outside: OutsideTheory | None
) -> None:
    """Raise InputError where no space is left, and for a theory that the network does not have."""
    asked = ORDER_PARAMETERS if sampler.evidence else sampler.space
    asked = ATTENTION if network.is_infinite else asked
    if sampler.precision == SINGLE and asked != AUTO and kind_of(asked) not in OF_TOKENS:
        remedy = f'is for the spaces of weights: rounding moves ln p in "{asked}"; use "float64"'
        raise of_sampler(sampler, "precision", remedy)
    if not sampler.spaces:
        raise of_sampler(sampler, "evidence", SPACE_OF_EVIDENCE)
    if network.is_infinite and outside is not None:
        remedy = (
            "a network with {} is sampled by its weights, of which there are none; use a number"
        )
        raise InputError(Setting("network", "widths"), network.widths, remedy, outside.setting)
    if sampler.space != AUTO and (sampler.space == ATTENTION) != network.is_infinite:
        allowed = ATTENTION if network.is_infinite else ORDER_PARAMETERS
        words = "infinite" if network.is_infinite else "finite"
        remedy = f'has another posterior than a network of {words} widths; use "{allowed}"'
        raise of_sampler(sampler, "space", remedy)
    if outside is None:
        return
    if not set(OF_TOKENS) & set(map(kind_of, sampler.spaces)):
        remedy = 'use "hidden_weights" or "weights"'
        if sampler.space == AUTO:  # the evidence leaves no such space
            remedy = SPACE_OF_EVIDENCE
        remedy = f"a network with {{}} has no order parameters; {remedy}"
        raise of_sampler(sampler, "space", remedy, outside.setting)
    if sampler.points == "selected":
        remedy = 'a network with {} has no theory to choose by; use "all"'
        raise of_sampler(sampler, "points", remedy, outside.setting)


def refuse_missing_draws(sampler: SamplerSection, weights: int) -> None:
    """Raise InputError where chains make too few draws for the evidence, or weights too large.

    sampler  with space and algorithm named
    weights  number of weights of the network
    """
    most = sampler.most_draws
    if sampler.evidence and not sampler.algorithm_class.gives_evidence and most < BRIDGED_DRAWS:
        remedy = f"the evidence needs at least {BRIDGED_DRAWS} draws of each chain"
        raise InputError(Setting("sampler", "draws"), most, remedy)
    if sampler.weight_draws:
        size = 4 if sampler.precision == SINGLE else 8
        refuse_weight_draws(sampler.weight_draws, sampler.chain_count, most, weights, size)


def refuse_layers(network: NetworkSection, attention_layers: int) -> None:
    """Raise InputError unless the network fits so many layers of attention."""
    layers = network.layers(attention_layers)
    widths = network.layer_widths(layers)
    network.layer_variances(layers)
    # Widths between branches: those inside a hypernetwork are neither normalised nor added to.
    lowest = lowest_layers(network.hypernetworks(attention_layers))
    between = [*(widths[layer - 1] for layer in lowest), widths[-1]]
    setting = Setting("network", "widths")
    given = dump_setting(network.widths)
    if network.norm != "none" and 1 in between[1 if network.norm == "after" else 0 :]:
        remedy = "one unit alone is always zero when it is normalised; use at least 2, or {} = {}"
        raise InputError(setting, given, remedy, Setting("network", "norm"), '"none"')
    if network.residual and len({*between}) > 1:
        remedy = f"a residual network adds layers of {between} units; use equal widths, or {{}} = "
        raise InputError(setting, given, remedy + "{}", Setting("network", "residual"), FALSE)


def refuse_without_theory(outside: OutsideTheory | None, learns: bool, remedy: str) -> None:
    """Raise InputError, naming the setting, if the theory does not describe a network.

    outside  the setting that is outside of it
    learns   whether the network learns its attention
    remedy   what to do instead
    """
    if outside is not None:
        text = f"the theory needs a sum over attention paths: {remedy}, or remove this setting"
        raise InputError(outside.setting, dump_setting(outside.value), text)
    if learns:
        text = f"the theory needs attention that is fixed: {remedy}, or other kinds of heads"
        raise InputError(Setting("attention", "heads"), LEARNED, text)


def refuse_evidence(sampler: SamplerSection, coordinates: int) -> None:
    """Raise InputError where the evidence would need too large a Hessian at the mode."""
    if sampler.evidence and coordinates > HESSIAN_COORDINATES:
        remedy = (
            f"needs the Hessian at the mode, too large in {coordinates:,} coordinates "
            f"(limit {HESSIAN_COORDINATES:,}); use {{}}"
        )
        raise of_sampler(sampler, "evidence", remedy, FALSE)


def refuse_untrainable(
    variants: Sequence[Sequence[AttentionVariant]], tokens: int | None, of: str
) -> None:
    """Raise InputError if a variant cannot be trained, or not on so many tokens, `of` what.

    variants  of every head, layer by layer
    tokens    None where the data tell how many there are
    """
    for layer, of_layer in enumerate(variants, start=1):
        for head, variant in enumerate(of_layer):
            remedy = variant.untrainable
            if remedy is not None:
                remedy = f"{remedy}; use a variant that can be differentiated"
            try:
                if tokens is not None:
                    variant.refuse_tokens(tokens)
            except InputError:
                raise
            except ValueError as problem:
                remedy = f"{problem} (the tokens are those of {of})"
            if remedy is not None:
                remedy = f"layer {layer}, head {head}: {remedy}"
                raise InputError(Setting("training", "form"), variant.kind, remedy)


def dump_setting(value: Any) -> Any:
    """A setting as a recipe has it."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    return [dump_setting(item) for item in value] if isinstance(value, list | tuple) else value


# --- what pydantic refuses

TABLE = Words("must be a table of keys and values", "must be a dict")
LIST = "must be a list, as in [1, 2]"
# Remedies by pydantic's name for the problem; {…} are taken from pydantic's own context.
REMEDIES: dict[str, str | Words] = {
    "missing": Words("this key is required; add it to the recipe", "this keyword is required"),
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
    "bool_type": Words("use true or false", "use True or False"),
    "string_type": 'must be text, as in "name"',
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "use letters, digits, '.', '_' and '-' only, none of the last "
    "three in front",
    "tuple_type": LIST,
    "list_type": LIST,
    "dict_type": TABLE,
    "model_type": TABLE,
    "model_attributes_type": TABLE,
    "too_short": "must have at least {min_length} entry",
}


def recipe_error(
    problem: ValidationError, settings: Mapping[str, Any], sections: Sections
) -> InputError:
    """Return the InputError of the first problem that pydantic reports of these settings.

    Of a missing key and one that is misspelt in its place it is the latter.

    sections  the class of each section of the recipe
    """
    original = input_error_in(problem)
    if original is not None:
        return original
    errors = problem.errors()
    *table, missing = errors[0]["loc"]
    unknown = {
        each["loc"][-1]: each
        for each in errors
        if each["type"] == "extra_forbidden" and [*each["loc"][:-1]] == table
    }
    misspelt = get_close_matches(str(missing), unknown, n=1, cutoff=0.75)
    error = unknown[misspelt[0]] if misspelt else errors[0]
    kind, context = error["type"], error.get("ctx", {})
    setting, value = locate(error["loc"], settings, kind)
    if kind == "extra_forbidden":
        return unknown_key(setting, value, sections)
    remedy = REMEDIES.get(kind)
    if isinstance(remedy, str):
        remedy = remedy.format(**context)
    elif remedy is None:
        remedy = str(context["error"]) if kind == "value_error" else error["msg"]
    return InputError(setting, value, "{}", remedy)


def locate(
    location: tuple[int | str, ...], settings: Mapping[str, Any], kind: str
) -> tuple[Part, Any]:
    """Setting and value of pydantic's location, whose names of unions are left out."""
    section, key, value = "", "", settings
    for step in location:
        if isinstance(step, int) and isinstance(value, list | tuple) and step < len(value):
            key, value = f"{key}[{step}]", value[step]
            continue
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif kind == "missing" and step == location[-1]:
            value = ABSENT
        else:
            continue
        section, key = (section, f"{key}.{step}" if key else step) if section else (step, "")
    return Setting(section or "recipe", key), value


def unknown_key(setting: Setting, value: Any, sections: Sections) -> InputError:
    """Return the error of a key that no section has, with the one that is meant, or all beside."""
    every = [Setting("name"), *map(Setting, sections), *settings_in(sections)]
    by_text, text = {as_recipe(item): item for item in every}, as_recipe(setting)
    same_depth = [key for key in by_text if key.count(".") == text.count(".")]
    table = text.rpartition(".")[0]
    beside = [key for key in same_depth if key.rpartition(".")[0] == table]
    same_name = [key for key in by_text if key.rpartition(".")[2] == text.rpartition(".")[2]]
    close = get_close_matches(text, beside, n=1, cutoff=0.75) or same_name
    close = close or get_close_matches(text, same_depth, n=1, cutoff=0.75)
    unknown = Words("this key is unknown", "this keyword is unknown")
    if close:
        return InputError(setting, value, "{}; did you mean {}?", unknown, by_text[close[0]])
    names = ", ".join(sorted(key.rpartition(".")[2] for key in beside))
    return InputError(
        setting, value, "{}; {}", unknown, f"known here: {names}" if names else "remove it"
    )


def settings_in(sections: Sections) -> Iterator[Setting]:
    """Yield all settings of these sections, and those of tables within them."""
    for name, section in sections.items():
        for key, field in section.model_fields.items() if section else ():
            yield Setting(name, key)
            inner = section_in(field.annotation)
            if inner is not None:
                yield from (Setting(name, f"{key}.{field}") for field in inner.model_fields)
