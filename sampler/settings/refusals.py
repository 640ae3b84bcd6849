"""Settings that do not go together.

Each check is called once: of the sections when a recipe is made, of layers and draws when their
numbers are there, of the theory when a command needs one.
"""

from collections.abc import Iterator, Sequence

from sampler.attention.layers import Variants, lowest_layers, variants_by_head
from sampler.attention.variants import AttentionVariant
from sampler.errors import ABSENT, InputError
from sampler.mcmc.algorithm import BRIDGED_DRAWS
from sampler.posterior.spaces import (
    ATTENTION,
    OF_TOKENS,
    ORDER_PARAMETERS,
    kind_of,
    refuse_weight_draws,
)
from sampler.settings.network_sections import Network, OutsideTheory
from sampler.settings.sampler import SINGLE, Sampler
from sampler.settings.section import REQUIRED, dump_setting
from sampler.settings.task_sections import INPUTS, LEARNED, Attention, TaskSettings, kinds_of
from sampler.settings.types import AUTO
from theory.size_limits import HESSIAN_COORDINATES

# Whether settings contradict, the refused one, and the remedy.
Conflict = tuple[bool, str, str]


def conflicts_of_chains(sampler: Sampler) -> Iterator[Conflict]:
    trusted, counts = sampler.until == "trusted", sampler.algorithm_class.counts
    remedy = 'until = "trusted" finds the number of draws itself; remove draws, or set max_draws'
    yield trusted and sampler.draws is not None, "sampler.draws", remedy
    remedy = 'until = "trusted" needs at least 2 chains; or set draws instead'
    yield trusted and sampler.chains == 1, "sampler.chains", remedy
    remedy = f'algorithm = "{sampler.algorithm}" does not have it; remove this setting: '
    remedy += f"{counts.draws} and {counts.chains} say how many draws it makes"
    for key in sampler.lacking(sampler.algorithm):
        yield True, f"sampler.{key}", remedy


def conflicts_of_attention(
    attention: Attention, task: TaskSettings, learns: bool
) -> Iterator[Conflict]:
    if not attention.heads:
        raise InputError("attention.heads", ABSENT, REQUIRED)
    if attention.form is not None:
        variants_of("attention.form", attention.form, [*map(len, attention.heads)])
    learned, remedy = attention.learned, 'rank needs form = "low_rank"'
    ranked = learned is not None and learned.rank is not None and learned.form != "low_rank"
    yield ranked, "attention.learned.rank", remedy
    remedy = f'heads that are fixed attend to inputs; use "{INPUTS}", or heads of the kind '
    yield attention.reads != INPUTS and not learns, "attention.reads", f'{remedy}"{LEARNED}"'
    if task.brings_heads:
        return
    for layer, kinds in enumerate(attention.heads):
        for head, kind in enumerate(kinds):
            if kind not in task.head_kinds:
                remedy = f"this task has heads of the kinds {kinds_of(task.head_kinds)}"
                raise InputError(f"attention.heads[{layer}][{head}]", kind, remedy)
    lags = attention.lag is not None and "lag" not in task.head_kinds
    yield lags, "attention.lag", "remove it: this task has no lag heads"


def conflicts_of_learned_heads(network: Network, sampler: Sampler) -> Iterator[Conflict]:
    weightless = network.is_infinite and sampler.weight_draws > 0
    yield weightless, "sampler.weight_draws", "there are no weights at infinite width; use 0"
    remedy = "needs a single mode, which attention that is sampled does not have; "
    remedy += 'algorithm = "tempered" computes it in any case'
    bridged = sampler.evidence and not sampler.algorithm_class.gives_evidence
    yield bridged, "sampler.evidence", remedy
    remedy = 'needs the theory of fixed attention to choose by; use "all"'
    yield sampler.points == "selected", "sampler.points", remedy


def conflicts_of_spaces(network: Network, sampler: Sampler) -> Iterator[Conflict]:
    asked, infinite = sampler.space, network.is_infinite
    rounded = ORDER_PARAMETERS if sampler.evidence else asked
    rounded = ATTENTION if infinite else rounded
    remedy = f'is for the spaces of weights: rounding moves ln p in "{rounded}"; use "float64"'
    narrow = sampler.precision == SINGLE and rounded != AUTO
    yield narrow and kind_of(rounded) not in OF_TOKENS, "sampler.precision", remedy
    remedy = f'needs space = "{ORDER_PARAMETERS}"'
    yield not sampler.spaces, "sampler.evidence", remedy
    other = asked != AUTO and (asked == ATTENTION) != infinite
    remedy = f"has another posterior than a network of {'infinite' if infinite else 'finite'} "
    remedy += f'widths; use "{ATTENTION if infinite else ORDER_PARAMETERS}"'
    yield other, "sampler.space", remedy


def conflicts_outside_theory(
    network: Network, sampler: Sampler, setting: str
) -> Iterator[Conflict]:
    of = f"a network with {setting}"
    remedy = f"{of} is sampled by its weights, of which there are none; use a number"
    yield network.is_infinite, "network.widths", remedy
    named = sampler.space != AUTO  # else it is the evidence that leaves no space
    remedy = 'use "hidden_weights" or "weights"' if named else "remove evidence"
    weightless = not set(OF_TOKENS) & set(map(kind_of, sampler.spaces))
    yield weightless, "sampler.space", f"{of} has no order parameters; {remedy}"
    remedy = f'{of} has no theory to choose by; use "all"'
    yield sampler.points == "selected", "sampler.points", remedy


def variants_of(
    setting: str, form: Variants, heads: Sequence[int]
) -> tuple[tuple[AttentionVariant, ...], ...]:
    """Return the variant of every head, layer by layer; InputError if lists do not fit them."""
    try:
        return variants_by_head(form, heads)
    except InputError:
        raise
    except ValueError as problem:
        raise InputError(setting, dump_setting(form), str(problem)) from None


def refuse_missing_draws(sampler: Sampler, weights: int) -> None:
    """Raise InputError where chains make too few draws for the evidence, or weights too large.

    sampler  with space and algorithm named
    weights  number of weights of the network
    """
    most = sampler.most_draws
    if sampler.evidence and not sampler.algorithm_class.gives_evidence and most < BRIDGED_DRAWS:
        remedy = f"the evidence needs at least {BRIDGED_DRAWS} draws of each chain"
        raise InputError("sampler.draws", most, remedy)
    if sampler.weight_draws:
        size = 4 if sampler.precision == SINGLE else 8
        refuse_weight_draws(sampler.weight_draws, sampler.chain_count, most, weights, size)


def refuse_layers(network: Network, attention_layers: int) -> None:
    """Raise InputError unless the network fits the number of layers of attention."""
    layers = network.layers(attention_layers)
    widths = network.layer_widths(layers)
    network.layer_variances(layers)
    # Widths between branches: those inside a hypernetwork are neither normalised nor added to.
    lowest = lowest_layers(network.hypernetworks(attention_layers))
    between = [*(widths[layer - 1] for layer in lowest), widths[-1]]
    setting = "network.widths"
    given = dump_setting(network.widths)
    if network.norm != "none" and 1 in between[1 if network.norm == "after" else 0 :]:
        remedy = "one unit alone is always zero when it is normalised; use at least 2, or "
        raise InputError(setting, given, f'{remedy}network.norm = "none"')
    if network.residual and len({*between}) > 1:
        remedy = f"a residual network adds layers of {between} units; use equal widths, or "
        raise InputError(setting, given, f"{remedy}network.residual = false")


def refuse_without_theory(outside: OutsideTheory | None, learns: bool, remedy: str) -> None:
    """Raise InputError, naming the setting, if the theory does not describe a network.

    outside  the setting that is outside of it
    learns   whether the network learns its attention
    remedy   for the user
    """
    if outside is not None:
        text = f"the theory needs a sum over attention paths: {remedy}, or remove this setting"
        raise InputError(outside.setting, dump_setting(outside.value), text)
    if learns:
        text = f"the theory needs attention that is fixed: {remedy}, or other kinds of heads"
        raise InputError("attention.heads", LEARNED, text)


def refuse_evidence(sampler: Sampler, coordinates: int) -> None:
    """Raise InputError where the evidence would need too large a Hessian at the mode."""
    if sampler.evidence and coordinates > HESSIAN_COORDINATES:
        remedy = (
            f"needs the Hessian at the mode, too large in {coordinates:,} coordinates "
            f"(limit {HESSIAN_COORDINATES:,}); use false"
        )
        raise InputError("sampler.evidence", True, remedy)


def refuse_untrainable(
    variants: Sequence[Sequence[AttentionVariant]], tokens: int | None, of: str
) -> None:
    """Raise InputError if a variant cannot be trained, or not on these tokens, `of` their kind.

    variants  of every head, layer by layer
    tokens    None where the data determine their number
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
                raise InputError("training.form", variant.kind, remedy)
