"""Settings that do not go together.

Each check is called once: of the sections when a recipe is made, of layers and draws when their
numbers are there, of the theory when a command needs one.
"""

from collections.abc import Sequence

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

SPACE_OF_EVIDENCE = f'evidence needs space = "{ORDER_PARAMETERS}"'


def of_sampler(sampler: Sampler, key: str, remedy: str) -> InputError:
    return InputError(f"sampler.{key}", getattr(sampler, key), remedy)


def refuse_chains(sampler: Sampler) -> None:
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


def refuse_attention(attention: Attention, task: TaskSettings, learns: bool) -> None:
    """Raise InputError unless the heads are of kinds that the task has, and fit their variants."""

    def refused(key: str, value: object, remedy: str) -> InputError:
        return InputError(f"attention.{key}", value, remedy)

    if not attention.heads:
        raise refused("heads", ABSENT, REQUIRED)

    if attention.form is not None:
        heads = tuple(map(len, attention.heads))
        variants_of("attention.form", attention.form, heads)
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
    setting: str, form: Variants, heads: Sequence[int]
) -> tuple[tuple[AttentionVariant, ...], ...]:
    """Return the variant of every head, layer by layer; InputError if lists do not fit them."""
    try:
        return variants_by_head(form, heads)
    except InputError:
        raise
    except ValueError as problem:
        raise InputError(setting, dump_setting(form), str(problem)) from None


def refuse_learned(network: Network, sampler: Sampler) -> None:
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


def refuse_sampler(network: Network, sampler: Sampler, outside: OutsideTheory | None) -> None:
    """Raise InputError where no space is left, and for a theory that the network does not have."""
    asked = ORDER_PARAMETERS if sampler.evidence else sampler.space
    asked = ATTENTION if network.is_infinite else asked
    if sampler.precision == SINGLE and asked != AUTO and kind_of(asked) not in OF_TOKENS:
        remedy = f'is for the spaces of weights: rounding moves ln p in "{asked}"; use "float64"'
        raise of_sampler(sampler, "precision", remedy)
    if not sampler.spaces:
        raise of_sampler(sampler, "evidence", SPACE_OF_EVIDENCE)
    if network.is_infinite and outside is not None:
        remedy = f"a network with {outside.setting} is sampled by its weights, of which there are "
        raise InputError("network.widths", network.widths, f"{remedy}none; use a number")
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
        remedy = f"a network with {outside.setting} has no order parameters; {remedy}"
        raise of_sampler(sampler, "space", remedy)
    if sampler.points == "selected":
        remedy = f'a network with {outside.setting} has no theory to choose by; use "all"'
        raise of_sampler(sampler, "points", remedy)


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
    """Raise InputError unless the network fits so many layers of attention."""
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
    remedy   what to do instead
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
        raise of_sampler(sampler, "evidence", remedy)


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
                raise InputError("training.form", variant.kind, remedy)
