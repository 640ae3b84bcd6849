"""Tiny models of several kinds with random weights: their inputs, and what makes their attention.

Beside each stand the tokens before a layer, by the model's own normalisation, its queries and keys,
and the projection that joins its heads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")

WORDS, TOKENS, WIDTH, HEADS, LAYERS = 11, 5, 16, 4, 2
SIZE = WIDTH // HEADS
LENGTHS = (5, 3, 1, 4)
THETA = 10000.0
SIZES = {
    "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": 24,
}  # fmt: skip
ENDS = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}


@dataclass(frozen=True)
class Made:
    """A model with two outputs, and what is known of it.

    layers  its modules of layers
    norm    (layer, stream) → the tokens that the layer attends to
    keys    layer → W_Q, b_Q, W_K, b_K as [output, input] and [output]
    output  layer → W_O [input, output], a view to be changed in place
    name    of the projection of a layer, by its number from 0
    """

    model: Any
    layers: list[Any]
    norm: Callable[[Any, Any], Any]
    keys: Callable[[Any], tuple[Any, Any, Any, Any]]
    output: Callable[[Any], Any]
    name: str
    is_causal: bool = False
    rotates: bool = False
    takes: str = "text"

    def streams(self, inputs: Any) -> list[Any]:
        """The stream before every layer."""
        seen: list[Any] = []
        handles = [
            layer.register_forward_pre_hook(
                lambda _, given, named: seen.append((*given, *named.values())[0]),
                with_kwargs=True,
            )
            for layer in dict.fromkeys(self.layers)
        ]
        with torch.no_grad():
            called(self.model.eval(), inputs)
        for handle in handles:
            handle.remove()
        return seen


def called(model: Any, inputs: Any) -> np.ndarray:
    """Outputs of a model as its owner calls it."""
    with torch.no_grad():
        returned = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    return getattr(returned, "logits", returned).numpy()


class Encoder(torch.nn.Module):
    """Layers of `torch.nn.TransformerEncoder`, told by `padding` where there is none."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 24, dropout=0.0, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.readout = torch.nn.Linear(WIDTH, 2)

    def forward(self, tokens, padding=None):
        return self.readout(self.encoder(tokens, src_key_padding_mask=padding)[:, 0])


def encoder(transformers=None) -> Made:
    model = Encoder()

    def keys(layer):
        weights, bias = layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias
        return weights[:WIDTH], bias[:WIDTH], weights[WIDTH : 2 * WIDTH], bias[WIDTH : 2 * WIDTH]

    return Made(
        model, list(model.encoder.layers), lambda layer, stream: stream, keys,
        lambda layer: layer.self_attn.out_proj.weight.T, "encoder.layers.{}.self_attn",
        takes="vectors",
    )  # fmt: skip


def gpt2(transformers) -> Made:
    sizes = {"n_positions": 8, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS}
    model = transformers.GPT2ForSequenceClassification(
        transformers.GPT2Config(vocab_size=WORDS, **sizes, **ENDS)
    )

    def keys(layer):
        weights, bias = layer.attn.c_attn.weight.T, layer.attn.c_attn.bias
        return weights[:WIDTH], bias[:WIDTH], weights[WIDTH : 2 * WIDTH], bias[WIDTH : 2 * WIDTH]

    return Made(
        model, list(model.transformer.h), lambda layer, stream: layer.ln_1(stream), keys,
        lambda layer: layer.attn.c_proj.weight, "transformer.h.{}.attn.c_proj", is_causal=True,
    )  # fmt: skip


def llama(transformers) -> Made:
    """Rotary embeddings, and two heads of keys for four of queries."""
    config = transformers.LlamaConfig(
        vocab_size=WORDS, num_key_value_heads=2, rope_theta=THETA, **SIZES, **ENDS
    )
    model = transformers.LlamaForSequenceClassification(config)
    none = torch.zeros(WIDTH)
    return Made(
        model, list(model.model.layers), lambda layer, stream: layer.input_layernorm(stream),
        lambda layer: (layer.self_attn.q_proj.weight, none, layer.self_attn.k_proj.weight, none),
        lambda layer: layer.self_attn.o_proj.weight.T, "model.layers.{}.self_attn.o_proj",
        is_causal=True, rotates=True,
    )  # fmt: skip


# Layers of PyTorch, one matrix of queries, keys and values, and grouped keys that are turned.
FAMILIES = {"encoder": encoder, "gpt2": gpt2, "llama": llama}


def family(name: str) -> Made:
    """A model of a family with weights that do not vanish, as it is loaded by default."""
    transformers = None
    if name != "encoder":
        remedy = "transformers is an extra: pip install -e '.[transformers]'"
        transformers = pytest.importorskip("transformers", reason=remedy)
    torch.manual_seed(0)
    made = FAMILIES[name](transformers)
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    made.model.eval()
    return made


def real_tokens(side: str) -> Any:
    """[example, token], false for padding on a side: "right" or "left"."""
    real = torch.arange(TOKENS) < torch.tensor(LENGTHS)[:, None]
    return {"right": real, "left": real.flip(1)}.get(side, torch.ones_like(real))


def inputs_of(made: Made, side: str = "none", examples: int = len(LENGTHS)) -> Any:
    """Inputs of a model, padded on a side; with a mask of ones where that is "masked"."""
    random = torch.Generator().manual_seed(1)
    real = real_tokens(side)
    if made.takes == "vectors":
        tokens = torch.randn(examples, TOKENS, WIDTH, generator=random)
        return tokens if side == "none" else {"tokens": tokens, "padding": ~real}
    ids = torch.randint(1, WORDS, (examples, TOKENS), generator=random)
    if side == "none":
        return {"input_ids": ids}
    return {"input_ids": ids * real, "attention_mask": real.long()}


# --- attention by its definition


def rotated(vector: np.ndarray, place: int) -> np.ndarray:
    """A query or key of one head at a place, each pair of channels turned by its own angle."""
    half = len(vector) // 2
    turned = np.zeros_like(vector)
    for pair in range(half):
        angle = place * THETA ** (-2.0 * pair / len(vector))
        one, other = vector[pair], vector[pair + half]
        turned[pair] = one * np.cos(angle) - other * np.sin(angle)
        turned[pair + half] = other * np.cos(angle) + one * np.sin(angle)
    return turned


def by_loops(made: Made, layer: Any, tokens: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Ω [head, key, query] of one example among its real tokens: softmax of q·k/√d."""
    queries, query_bias, keys, key_bias = (
        one.detach().double().numpy() for one in made.keys(layer)
    )
    shared = len(queries) // len(keys)  # heads of queries for one of keys
    places = np.flatnonzero(real)
    omega = np.zeros((HEADS, len(places), len(places)))
    for head in range(HEADS):
        part = slice(head * SIZE, (head + 1) * SIZE)
        of_keys = slice(head // shared * SIZE, (head // shared + 1) * SIZE)
        for query, at in enumerate(places):
            q = queries[part] @ tokens[at] + query_bias[part]
            logits = np.full(len(places), -np.inf)
            for key, there in enumerate(places):
                if made.is_causal and there > at:
                    continue
                k = keys[of_keys] @ tokens[there] + key_bias[: len(keys)][of_keys]
                if made.rotates:
                    logits[key] = rotated(q, at) @ rotated(k, there) / SIZE**0.5
                else:
                    logits[key] = q @ k / SIZE**0.5
            raised = np.exp(logits - logits.max())
            omega[head, :, query] = raised / raised.sum()
    return omega
