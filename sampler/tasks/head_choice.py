"""The variant of every head, and which heads are learned, as a recipe chooses them."""

from dataclasses import replace

import numpy as np

from sampler.attention.heads import variants_by_head
from sampler.attention.learned import LearnedHeads
from sampler.attention.variants import AttentionVariant, Softmax
from sampler.errors import InputError, Setting
from sampler.settings.task import LEARNED, STREAM, AttentionSection, LearnedSection

# The variant of every head, layer by layer.
HeadVariants = tuple[tuple[AttentionVariant, ...], ...]
# The form of learned heads of a task that has no random ones.
DEFAULT_FORM = "full"


def chosen_variants(attention: AttentionSection) -> HeadVariants:
    """Look up the variant of every head, layer by layer; softmax where the recipe names none."""
    return variants_by_head(attention.form or Softmax(), tuple(map(len, attention.heads)))


def learned_heads(
    attention: AttentionSection, channels: int, random: LearnedHeads | None = None
) -> LearnedHeads | None:
    """The learned heads of a recipe; None where it has none.

    random  form and scale of the random heads of the task, for a recipe that names no form; None
            where it has no such heads
    """
    if not attention.has_learned:
        return None
    section = attention.learned or LearnedSection()
    learned = tuple(tuple(kind == LEARNED for kind in kinds) for kinds in attention.heads)
    variants = chosen_variants(attention)
    refuse_without_derivatives(learned, variants)
    if attention.reads == STREAM:
        return heads_of_stream(section, channels, learned, variants)
    if section.form is None and random is not None:
        if "variance" in section.model_fields_set:
            remedy = "needs a form; without one learned heads have the law of random heads, of "
            remedy += "which {} is the scale"
            variance, beta = (
                Setting("attention", key) for key in ("learned.variance", "inverse_temperature")
            )
            raise InputError(variance, section.variance, remedy, beta)
        return replace(random, learned=learned, variants=variants)
    form = section.form or DEFAULT_FORM
    rank = (section.rank or channels) if form == "low_rank" else 0
    scale = {
        "full": np.full(channels, np.sqrt(section.variance / channels)),
        "low_rank": np.full(2, np.sqrt(section.variance / channels)),
        "positions": np.full(1, np.sqrt(section.variance)),
    }[form]
    return LearnedHeads(form, scale, learned, variants, rank)


def heads_of_stream(
    section: LearnedSection,
    channels: int,
    learned: tuple[tuple[bool, ...], ...],
    variants: HeadVariants,
) -> LearnedHeads:
    """Learned heads that read the hidden vectors z/√N, whose scale no task knows."""
    form = section.form or "low_rank"
    if form == "positions":
        remedy = 'logits of positions read nothing; use "low_rank" or "full", or {} = "inputs"'
        reads = Setting("attention", "reads")
        raise InputError(Setting("attention", "learned.form"), form, remedy, reads)
    rank = (section.rank or channels) if form == "low_rank" else 0
    scale = np.full(2 if rank else 1, np.sqrt(section.variance))
    return LearnedHeads(form, scale, learned, variants, rank, stream=True)


def refuse_without_derivatives(
    learned: tuple[tuple[bool, ...], ...], variants: HeadVariants
) -> None:
    """Raise InputError if a learned head has a variant that no gradient passes through.

    Or one that joins it with heads that are fixed.
    """
    for layer, (of_layer, those) in enumerate(zip(learned, variants, strict=True)):
        fixed = [v for v, is_learned in zip(those, of_layer, strict=True) if not is_learned]
        for head, (is_learned, variant) in enumerate(zip(of_layer, those, strict=True)):
            remedy = None
            if is_learned and variant.untrainable is not None:
                remedy = f"{variant.untrainable}; give this learned head another variant"
            elif is_learned and variant.joins_heads and variant in fixed:
                remedy = (
                    "joins all heads of a layer, and some of this one are fixed; make all of them "
                    "learned, or give those another variant"
                )
            if remedy is not None:
                field = Setting("attention", f"form (layer {layer + 1}, head {head})")
                raise InputError(field, variant.kind, remedy)
