"""Which tokens are padding: what the masks of a model hide, and what its named inputs say of it.

What softmax gives decides. A key that a mask hides from all queries that see any key is padding,
whatever its argument is called. What named inputs say beyond that must agree with the weights: no
token may give weight to what they hide.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Shaped

from sampler.attention.padding import PADDING_WEIGHT, Real, refuse_infinite, within
from sampler.errors import InputError, Verbatim

# Numbers that masks add to logits are −10³ and less; logits of models are tens.
HIDING = -900.0
# Numbers between this and those weaken a key so that nothing may see it, and are no common mask.
WEAKENING = -20.0
# Words in the names of arguments that are masks; of those among them that can be nothing else than
# masks of padding; and of those that are true where there is padding.
MASK_WORDS = r"mask|pad|padding|padded|valid|keep|hide|hidden|real"
FOLLOWED_WORDS = r"att|attn|attention|key|src|input|pad|padding|padded|valid|keep|hide|hidden|real"
PADDING_WORDS = r"pad|padding|padded|hide|hidden"
Sees = Bool[np.ndarray, "example query key"]


def has_word(name: str, words: str) -> bool:
    """Whether one of the words stands in a name, between underscores or digits."""
    return re.search(rf"(?<![a-z])({words})s?(?![a-z])", name.lower()) is not None


@dataclass(frozen=True)
class HiddenKeys:
    """Keys and queries that the masks of a layer hide in all its heads.

    keys     [example, key], hidden from every query that sees a key
    blind    [example, query], queries from which every key is hidden
    doubted  a key that nothing sees may be hidden by what was not read as a mask of padding
    """

    keys: Real
    blind: Real
    doubted: bool = True

    @classmethod
    def of(
        cls,
        hidden: Sees,
        shared: Bool[np.ndarray, "#query key"] | None = None,
        doubted: bool = True,
    ) -> "HiddenKeys":
        """Read masks of examples, and one that all examples share, which tells no padding."""
        if shared is None:
            return cls(hidden_from_all(hidden), hidden.all(axis=2), doubted)
        both, columns = hidden | shared, shared.all(axis=0)
        doubted = doubted or bool(columns.any())
        return cls(hidden_from_all(both) & ~columns, both.all(axis=2), doubted)


def hidden_from_all(hidden: Bool[np.ndarray, "example _query key"]) -> Real:
    """Keys that are hidden from every query which sees a key."""
    return (hidden | hidden.all(axis=2, keepdims=True)).all(axis=1)


@dataclass(frozen=True)
class StatedMask:
    """A named input that may say where padding is.

    readings  [example, token] of each way to read it, true for a token; the likelier one first
    by_name   its name or kind says that it is a mask
    follows   of each reading, whether it needs no more than that no token sees what it hides
    """

    name: str
    readings: tuple[Real, ...]
    by_name: bool
    follows: tuple[bool, ...]


def stated_mask(name: str, values: Shaped[np.ndarray, "..."], tokens: int) -> StatedMask | None:
    """Read a named input, if it can be a mask; a mask of another number of tokens has no readings.

    True and 1 may keep or hide; numbers below −900, added to logits, hide. Masks are [example,
    token], [example, query or 1, key] or [example, head or 1, query or 1, key].
    """
    by_name = has_word(name, MASK_WORDS) or values.dtype == bool
    if values.ndim == 1 and has_word(name, "length") and values.dtype.kind in "iu":
        if not ((values > 0) & (values <= tokens)).all():
            return None
        return StatedMask(name, (within(values, tokens),), True, (True,))
    if values.ndim not in (2, 3, 4):
        return None
    added = values.dtype != bool and bool((values <= HIDING).any())
    if added:
        ways = (values <= HIDING,)
    elif np.isin(values, (0, 1)).all():
        ways = (values == 0, values != 0)
    elif has_word(name, "mask") and values.ndim == 2 and values.dtype.kind in "iu":
        remedy = "must be [example, token], 1 for a token and 0 for padding"
        raise InputError(name, Verbatim(f"(shape {values.shape})"), remedy)
    else:
        return None
    if values.shape[-1] != tokens or (values.ndim > 2 and values.shape[-2] not in (1, tokens)):
        hidden = ways[1] if has_word(name, PADDING_WORDS) and not added else ways[0]
        share = hidden.reshape(len(hidden), -1).mean(axis=1)
        # Samples of sound, say: what hides less than one token need hide none.
        return StatedMask(name, (), True, ()) if by_name and (share * tokens >= 1).any() else None
    readings = tuple(~hidden_from_all(by_query(hidden)) for hidden in ways)
    certain = by_name and (added or values.ndim > 2)
    keeps = certain or has_word(name, FOLLOWED_WORDS) or name.lower() == "mask"
    hides = certain or has_word(name, PADDING_WORDS)
    return StatedMask(name, readings, by_name, (keeps, hides)[: len(ways)])


def by_query(hidden: Bool[np.ndarray, "..."]) -> Bool[np.ndarray, "example _query key"]:
    """[example, query or 1, key] of a mask, hidden in all heads."""
    if hidden.ndim == 2:
        return hidden[:, None]
    return hidden if hidden.ndim == 3 else hidden.all(axis=1)


def seen_keys(
    weights: Sequence[Float[np.ndarray, "example _head query key"]], hidden: Sequence[HiddenKeys]
) -> Sees:
    """Whether a query gives a key weight in any layer and head; blind queries see nothing."""
    sees = np.zeros((len(weights[0]), *weights[0].shape[2:]), bool)
    for layer, matrices in enumerate(weights):
        seen = (np.abs(matrices) > PADDING_WEIGHT).any(axis=1)  # not of NaN
        if layer < len(hidden):
            seen &= ~hidden[layer].blind[:, :, None]
        sees |= seen
    return sees


def tokens_of(
    weights: Sequence[Float[np.ndarray, "example _head query key"]],
    hidden: Sequence[HiddenKeys],
    named: Mapping[str, Shaped[np.ndarray, "..."]],
) -> Real:
    """Tell tokens, true, from padding, by what layers hid and named inputs say.

    Raises InputError where they contradict each other or the weights, for a token that sees no key,
    and for one that nothing sees and no mask speaks of.
    """
    examples, _, _, tokens = weights[0].shape
    for layer, matrices in enumerate(weights, start=1):
        spoiled = np.isnan(matrices).any(axis=(1, 3)).all(axis=1)
        if layer <= len(hidden):
            spoiled &= ~hidden[layer - 1].blind.all(axis=1)
        if spoiled.any():
            refuse_infinite(f"attention of layer {layer}", matrices)
    sees = seen_keys(weights, hidden)
    real = ~hidden_everywhere(hidden) if hidden else np.ones((examples, tokens), bool)
    counts = real.sum(axis=1)
    if not counts.all():
        remedy = "every sequence needs one token at least; leave this example out"
        raise InputError(f"padding, tokens of example {int(np.argmin(counts))}", 0, remedy)
    told = not real.all()
    spoken = False
    for name, values in named.items():
        stated = stated_mask(name, values, tokens)
        if stated is None:
            continue
        if not stated.readings:
            if not told:
                refuse_mask_of_others(stated.name, values.shape, tokens)
            continue
        reading = agreeing_reading(stated, sees, real)
        if reading is not None:
            real = real & reading
            spoken = spoken or stated.by_name
        elif stated.by_name:
            refuse_contradiction(stated, weights)
    refuse_blind(real, hidden)
    if not spoken and all(one.doubted for one in hidden):
        refuse_unseen(weights, sees, real)
    return real


def hidden_everywhere(hidden: Sequence[HiddenKeys]) -> Real:
    """Keys that every layer hides; InputError where layers differ."""
    first = hidden[0].keys
    if any(not np.array_equal(one.keys, first) for one in hidden):
        remedy = "every layer of attention must hide the same padding"
        raise InputError("padding", Verbatim("(differs from layer to layer)"), remedy)
    return first


def agreeing_reading(stated: StatedMask, sees: Sees, told: Real) -> Real | None:
    """Find the reading that the weights bear out; None if there is none.

    Right of the tokens of a causal model nothing is seen anyhow: there a name must say so.
    """
    borne_out = partial(is_borne_out, sees)
    found = [
        reading
        for reading, follows in zip(stated.readings, stated.follows, strict=True)
        if borne_out(reading & told) and (follows or is_evident(sees, reading & told, told))
    ]
    equal = [reading for reading in found if np.array_equal(reading, told)]
    return (equal or found or [None])[0]


def is_borne_out(sees: Sees, real: Real) -> bool:
    """Whether every example has tokens, none of which sees padding."""
    crossing = sees & real[:, :, None] & ~real[:, None, :]
    return bool(real.any(axis=1).all() and not crossing.any())


def is_evident(sees: Sees, real: Real, told: Real) -> bool:
    """Whether it is no news, or tokens would see this padding if attention were only causal."""
    if np.array_equal(real, told):
        return True
    later = np.triu(np.ones(sees.shape[1:], bool), 1)
    both = real[:, :, None] & real[:, None, :]
    last = real.shape[1] - 1 - np.argmax(real[:, ::-1], axis=1)
    before = np.arange(real.shape[1]) < last[:, None]
    return bool((sees & both & later).any() or (~real & told & before).any())


# --- refusals


def refuse_mask_of_others(name: str, shape: tuple[int, ...], tokens: int) -> None:
    """Raise InputError for a mask that speaks of other tokens than attention sees."""
    remedy = (
        f"hides something, but not of the {tokens} tokens that attention sees, and no layer hides "
        "any of them; give one entry per token, or examples without padding in a list"
    )
    raise InputError(name, shape, remedy)


def refuse_contradiction(
    stated: StatedMask, weights: Sequence[Float[np.ndarray, "example _head query key"]]
) -> None:
    """Raise InputError for a mask that no attention follows, with the largest weight on it."""
    real = stated.readings[-1] if has_word(stated.name, PADDING_WORDS) else stated.readings[0]
    crossing = real[:, None, :, None] & ~real[:, None, None, :]
    by_example = np.max(
        [np.where(crossing, np.abs(one), 0.0).max(axis=(1, 2, 3)) for one in weights], axis=0
    )
    place = int(np.argmax(by_example))
    remedy = (
        f"is a weight that a token gives to what `{stated.name}` hides, above "
        f"{PADDING_WEIGHT:.1g}; hand it to every layer of attention, or, if it does not mark "
        "padding, give it as numbers under a name that speaks of no mask, by `forward`"
    )
    raise InputError(f"{stated.name}[{place}]", float(by_example[place]), remedy)


def refuse_blind(real: Real, hidden: Sequence[HiddenKeys]) -> None:
    """Raise InputError for a token from which every key is hidden."""
    for layer, one in enumerate(hidden, start=1):
        blind = np.argwhere(real & one.blind)
        if len(blind):
            example, token = map(int, blind[0])
            remedy = "every key is hidden from it; a token must see one at least, itself, say"
            field = f"attention of layer {layer}, token {token} of example {example}"
            raise InputError(field, 0.0, remedy)


def refuse_unseen(
    weights: Sequence[Float[np.ndarray, "example _head query key"]], sees: Sees, real: Real
) -> None:
    """Raise InputError for a token that no query of any layer sees: likely padding, unsaid."""
    unseen = np.argwhere(real & ~sees.any(axis=1))
    if len(unseen):
        example, token = map(int, unseen[0])
        largest = max(float(np.abs(one[example, ..., token]).max()) for one in weights)
        remedy = (
            "no token gives it more weight; give named inputs with `attention_mask` [example, "
            "token], 0 for padding, or 1 everywhere if it is a token"
        )
        field = f"attention to token {token} of example {example}"
        raise InputError(field, largest, remedy)
