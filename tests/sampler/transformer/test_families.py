"""Models of many families: recorded attention is their own, and that of each sequence alone.

Own attention is what a model loaded with eager attention returns, or what its fused kernel makes of
values that are the identity.
"""

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.transformer.recording import RecordedAttention, record_attention
from tests.sampler.transformer.families import (
    LENGTHS,
    REFUSED,
    SERVING,
    Family,
)

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")
functional = torch.nn.functional

HEADS, WIDTH = 2, 8
PRECISIONS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# Parts of a batch as the recorder makes them: products of other sizes may be rounded otherwise.
PARTS = (slice(0, 1), slice(1, None))
FAST = ("Bert", "GPT2", "Llama")


def assert_close(received, expected, precision):
    """To 10⁻¹² in double precision, 10⁻⁶ in single, two units in the last place in half."""
    received, expected = (np.asarray(one, np.float64) for one in (received, expected))
    if precision.itemsize == 2:
        numbers = torch.finfo(precision)
        size = np.maximum(np.abs(expected), numbers.tiny)
        allowed = 2 * numbers.eps * 2.0 ** np.floor(np.log2(size))
    else:
        allowed = {8: 1e-12, 4: 1e-6}[precision.itemsize]
    assert received.shape == expected.shape
    assert (np.abs(received - expected) <= allowed).all(), np.abs(received - expected).max()


@contextmanager
def kernel_weights() -> Iterator[list]:
    """Weights [example, head, query, key] of every fused call: what it makes of the identity."""
    kernel, found = functional.scaled_dot_product_attention, []

    class Watching(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function is kernel:
                query, key, _, *rest = args or ()
                identity = torch.eye(key.shape[-2], dtype=key.dtype).expand(*key.shape[:-1], -1)
                found.append(kernel(query, key, identity, *rest, **(kwargs or {})))
            return function(*args, **(kwargs or {}))

    with Watching():
        yield found


def of_kernels(model, named) -> list[np.ndarray]:
    """Weights [example, head, query, key] that fused calls have in a forward pass, if any."""
    parts = []
    for part in PARTS:
        with torch.no_grad(), kernel_weights() as found:
            model(**{name: values[part] for name, values in named.items()})
        parts.append(found)
    return [torch.cat(one).double().numpy() for one in zip(*parts, strict=True)]


def returned(model, named) -> list[np.ndarray]:
    """Weights [example, head, query, key] that the same model returns, loaded as eager."""
    config = copy.deepcopy(model.config)
    twin = type(model)._from_config(config, attn_implementation="eager").eval()
    twin.to(next(model.parameters()).dtype).load_state_dict(model.state_dict())
    parts = []
    for part in PARTS:
        with torch.no_grad():
            given = {name: values[part] for name, values in named.items()}
            parts.append(twin(**given, output_attentions=True).attentions)
    return [torch.cat(one).double().numpy() for one in zip(*parts, strict=True)]


def assert_own(found: RecordedAttention, own: list[np.ndarray], real, precision):
    """What was recorded is the model's own attention, at all tokens that are no padding."""
    assert len(found.attention) == len(own)
    for matrices, weights in zip(found.attention, own, strict=True):
        for row in range(len(matrices)):
            places = np.flatnonzero(real[row])
            count = len(places)
            expected = weights[row][:, places][..., places].swapaxes(1, 2)
            assert_close(matrices[row, :, :count, :count], expected, precision)


def assert_alone(found: RecordedAttention, alone: list[RecordedAttention], real, precision):
    """Every sequence is what it is without padding."""
    for row, by_itself in enumerate(alone):
        count = int(real[row].sum())
        assert not found.inputs[row, count:].any()
        assert_close(found.inputs[row, :count], by_itself.inputs[0], precision)
        for received, expected in zip(found.attention, by_itself.attention, strict=True):
            assert not received[row, :, count:].any()
            assert not received[row, :, :, count:].any()
            assert_close(received[row, :, :count, :count], expected[0], precision)


def of_family(family: Family):
    name = family.title.replace("`", "")
    fast = family.name in FAST
    return pytest.param(family, id=name, marks=() if fast else pytest.mark.long)


@pytest.mark.heavy
@pytest.mark.parametrize("family", [of_family(one) for one in SERVING])
def test_recorded_attention_is_the_models_own(family):
    """In every precision, without padding and with it behind and before the tokens."""
    for precision in PRECISIONS if family.double else PRECISIONS[1:]:
        model = family.make().to(precision)
        for side in family.sides:
            named = family.inputs(model, side)
            real, own = real_in(named, model), own_attention(family, model, named)
            if any(np.isnan(one[:, 0][real]).any() for one in own):
                assert (family.spoils, precision, side == "none") == (True, torch.float64, False)
                with pytest.raises(InputError, match="= nan: every entry must be finite"):
                    record_attention(model, named)
                continue
            found = record_attention(model, named)
            assert_own(found, own, real, precision)
            expected = np.float64 if precision == torch.float64 else np.float32
            assert {one.dtype.type for one in (found.inputs, *found.attention)} == {expected}
            fused = of_kernels(model, named)
            if fused and precision.itemsize > 2:
                assert_own(found, fused, real, torch.float32)
            if side != "none":
                assert found.lengths.tolist() == list(LENGTHS)
            if side != "none" and not family.mixes:
                alone = [
                    record_attention(model, ids[None, places])
                    for ids, places in zip(named["input_ids"], real, strict=True)
                ]
                assert_alone(found, alone, real, precision)


def own_attention(family: Family, model, named) -> list[np.ndarray]:
    """Weights [example, head, query, key] by the model itself.

    What a model returns that keeps to fused attention is none of its own: logits in half precision
    are rounded, and Falcon adds its biases twice or leaves out its mask. In double precision many a
    softmax is taken in single precision where its weights are returned.
    """
    fused = of_kernels(model, named)
    if fused and (family.fused or next(model.parameters()).dtype == torch.float64):
        return fused
    found = returned(model, named)
    if family.name == "SqueezeBert":  # which returns logits
        return [torch.as_tensor(one).softmax(dim=-1).numpy() for one in found]
    return found


def real_in(named, model) -> np.ndarray:
    """Tokens that are no padding [example, token]."""
    if "attention_mask" in named:
        return named["attention_mask"].numpy() == 1
    with torch.no_grad():
        tokens = model(**named).last_hidden_state.shape[:2]
    return np.ones(tokens, bool)


# --- refused, and the tables


@pytest.mark.parametrize(
    "family",
    [pytest.param(one, id=one.class_name, marks=pytest.mark.slow) for one in REFUSED],
)
def test_a_model_without_a_matrix_of_all_tokens_is_refused_by_the_cause(family):
    model = family.make()
    with pytest.raises(InputError, match=re.escape(family.refusal)):
        record_attention(model, family.inputs(model, "none"))


def test_a_decoder_of_pytorch_is_refused_by_the_cause():
    model = torch.nn.Transformer(WIDTH, HEADS, 1, 1, 8, batch_first=True)
    tokens = torch.randn(2, 3, WIDTH)
    with pytest.raises(InputError, match=r"self-attention only, so .* take the encoder"):
        record_attention(model, {"src": tokens, "tgt": 2.0 * tokens})
