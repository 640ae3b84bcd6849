"""Learned heads are refused where, and only where, nothing that is read depends on their logits."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.attention.learned import READ, LearnedHeads
from sampler.attention.sampled import SampledAttention
from sampler.attention.variants import (
    BatchNormalised,
    FirstOrder,
    HeadNormalised,
    Linear,
    Robust,
    ScaledHeads,
    Softmax,
)
from sampler.data.make import build_task
from sampler.errors import InputError
from tests.recipes import learned_recipe

EXAMPLES, TOKENS, CHANNELS, HEADS = 3, 4, 5, 2
FORMS = {
    "full": LearnedHeads("full", np.full(CHANNELS, 0.5), (), ()),
    "low_rank": LearnedHeads("low_rank", np.full(2, 0.7), (), (), rank=3),
    "positions": LearnedHeads("positions", np.array([0.8]), (), ()),
}
CASES = [
    Softmax(),
    Softmax(mask="causal"),
    Softmax(mask="window", window=1),
    Softmax(mask="one_sided_window", window=2),
    Linear(),
    FirstOrder(),
    FirstOrder(offset=False),
    BatchNormalised(),
    BatchNormalised(beta=0.5, scaling=False),
    Robust(limit=0.5),
    HeadNormalised(),
    *(ScaledHeads(scale=scale) for scale in (1, 2, 3, 4)),
    *(ScaledHeads(scale=scale, pooling="stride") for scale in (2, 3)),
    *(ScaledHeads(scale=scale, pooling="block", grid=(2, 2)) for scale in (1, 2)),
    *(ScaledHeads(scale=scale, beta=1.0) for scale in (2, 4)),
]


def derivatives(heads, inputs):
    """Of Ω [example, head, key, query], in random directions of the logits at random ones."""
    generator, found = np.random.default_rng(5), []
    attention = SampledAttention.of(heads, TOKENS, CHANNELS, (False,), "mean")
    tokens = attention.tokens(inputs, (np.zeros((EXAMPLES, HEADS, TOKENS, TOKENS)),))
    for _ in range(2):
        point, direction = (
            {n: jnp.asarray(generator.standard_normal(s)) for n, s in attention.sites}
            for _ in range(2)
        )
        _, along = jax.jvp(
            lambda drawn: attention.matrices(drawn, tokens)[0], (point,), (direction,)
        )
        found.append(along)
    return np.stack(found)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variant", CASES, ids=str)
def test_refused_is_what_has_no_derivative(variant, form):
    inputs = np.random.default_rng(3).standard_normal((EXAMPLES, TOKENS, CHANNELS))
    layers = {"learned": ((True,) * HEADS,), "variants": ((variant,) * HEADS,)}
    heads = replace(FORMS[form], **layers)
    along = derivatives(heads, inputs)
    for readout, read in READ.items():
        size = np.abs(along[..., read]).max(axis=(0, 1, 3, 4))
        expected = [(0, head) for head in np.flatnonzero(size < 1e-12).tolist()]
        assert heads.without_effect(inputs, readout) == expected
    # A head above does not see the readout.
    above = replace(
        heads,
        learned=(*heads.learned, (False,)),
        variants=(*heads.variants, (Softmax(),)),
    )
    assert above.without_effect(inputs, "first") == heads.without_effect(inputs, "mean")


def test_sharp_heads_are_not_refused():
    """Each draw attends to one token alone, and sometimes to the same."""
    inputs = np.random.default_rng(3).standard_normal((EXAMPLES, TOKENS, CHANNELS))
    for form, heads in FORMS.items():
        sharp = replace(
            heads, scale=1e6 * heads.scale, learned=((True,),), variants=((Softmax(),),)
        )
        assert not sharp.without_effect(inputs, "last"), form


ROBUST = {"kind": "robust", "limit": 0.5}
REFUSED = [
    ({"form": ROBUST}, {}, "attention.form (layer 1, head 0) = 'robust'"),
    ({"form": [{"kind": "softmax"}, ROBUST]}, {}, "form (layer 2, head 0)"),
    ({"form": {"kind": "softmax", "mask": "causal"}}, {"readout": "first"}, "form (layer 2, head"),
    ({"inverse_temperature": 0.0}, {}, "attention.inverse_temperature = 0.0"),
]
ALLOWED = [
    ({"form": ROBUST, "learned": {"form": "low_rank"}}, {}),
    ({"form": {"kind": "softmax", "mask": "causal"}}, {"readout": "last"}),
    ({"form": {"kind": "robust", "limit": 0.5}, "reads": "stream"}, {"values": "relu"}),
]


@pytest.mark.parametrize(("attention", "network", "place"), REFUSED)
def test_the_recipe_is_refused_with_the_place_and_a_remedy(attention, network, place):
    recipe = learned_recipe(
        heads=(("learned", "learned"), ("learned",)), attention=attention, network=network
    )
    with pytest.raises(InputError) as caught:
        build_task(recipe)
    assert place in str(caught.value)


@pytest.mark.parametrize(("attention", "network"), ALLOWED)
def test_what_depends_on_its_logits_is_not_refused(attention, network):
    build_task(learned_recipe(attention=attention, network=network))
