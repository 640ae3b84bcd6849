"""Small random models of many families, with inputs, and the weights by which heads act."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")
functional = torch.nn.functional

EXAMPLES, TOKENS, WIDTH, HEADS, WORDS = 6, 5, 8, 2, 11
SIZES = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS}


@dataclass(frozen=True)
class Made:
    """A model, what it is given, and W_O [input, output] of every layer, to be changed in place."""

    model: Any
    inputs: Any
    weights: Callable[[Any], list[Any]]
    forward: Any = None


def words() -> dict[str, Any]:
    return {"input_ids": torch.randint(1, WORDS, (EXAMPLES, TOKENS))}


def padded_words(left: bool = False) -> dict[str, Any]:
    """Sequences of 2 to 5 words."""
    lengths = torch.tensor([5, 3, 2, 5, 4, 3])
    mask = (torch.arange(TOKENS) < lengths[:, None]).long()
    mask = mask.flip(1) if left else mask
    return {"input_ids": words()["input_ids"] * mask, "attention_mask": mask}


def bert(made, **others) -> Made:
    config = made.BertConfig(vocab_size=WORDS, intermediate_size=16, **SIZES, **others)
    return Made(
        made.BertForSequenceClassification(config),
        words(),
        lambda model: [layer.attention.output.dense.weight.T for layer in model.bert.encoder.layer],
    )


def gpt2(made) -> Made:
    config = made.GPT2Config(
        vocab_size=WORDS, n_positions=8, n_embd=WIDTH, n_layer=2, n_head=HEADS, pad_token_id=0,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = made.GPT2ForSequenceClassification(config)
    return Made(
        model, words(), lambda model: [block.attn.c_proj.weight for block in model.transformer.h]
    )


def albert(made) -> Made:
    config = made.AlbertConfig(
        vocab_size=WORDS, embedding_size=4, intermediate_size=16, **SIZES, num_hidden_groups=1
    )
    model = made.AlbertForSequenceClassification(config)
    (group,) = model.albert.encoder.albert_layer_groups
    return Made(
        model,
        words(),
        lambda model: [group.albert_layers[0].attention.dense.weight.T],
    )


def vit(made) -> Made:
    config = made.ViTConfig(
        image_size=8, patch_size=4, num_channels=1, intermediate_size=16, **SIZES
    )
    model = made.ViTForImageClassification(config)
    return Made(
        model,
        {"pixel_values": torch.randn(EXAMPLES, 1, 8, 8)},
        lambda model: [
            module.weight.T
            for name, module in model.named_modules()
            if name.endswith(("attention.output.dense", "attention.o_proj"))
        ],
    )


class OwnHead(torch.nn.Module):
    """A backbone of Hugging Face and one's own layer, without a `config`."""

    def __init__(self, backbone) -> None:
        super().__init__()
        self.backbone, self.head = backbone, torch.nn.Linear(WIDTH, 2)

    def forward(self, input_ids, attention_mask=None):
        hidden = self.backbone(input_ids, attention_mask=attention_mask).last_hidden_state
        return self.head(hidden[:, 0])


def own_head(made) -> Made:
    config = made.BertConfig(vocab_size=WORDS, intermediate_size=16, **SIZES)
    model = OwnHead(made.BertModel(config, add_pooling_layer=False))
    return Made(
        model,
        padded_words(),
        lambda model: [
            layer.attention.output.dense.weight.T for layer in model.backbone.encoder.layer
        ],
    )


class CausalAttention(torch.nn.Module):
    """One matrix for queries, keys and values, a fused call, and a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens):
        return self.c_proj(self.joined(tokens))

    def joined(self, tokens):
        """All heads side by side."""
        shape = (*tokens.shape[:2], HEADS, WIDTH // HEADS)
        query, key, value = (
            part.view(shape).transpose(1, 2) for part in self.c_attn(tokens).split(WIDTH, dim=2)
        )
        sent = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return sent.transpose(1, 2).contiguous().view(tokens.shape)


class Blocks(torch.nn.Module):
    """Two residual layers with such attention, and a readout of the last token."""

    def __init__(self, kind) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(kind() for _ in range(2))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, 2)

    def forward(self, tokens):
        for block, norm in zip(self.blocks, self.norms, strict=True):
            tokens = tokens + block(norm(tokens))
        return self.head(tokens[:, -1])


def nano_gpt(made=None) -> Made:
    return Made(
        Blocks(CausalAttention),
        torch.randn(EXAMPLES, TOKENS, WIDTH),
        lambda model: [block.c_proj.weight.T for block in model.blocks],
    )


HUGGING_FACE = {"bert": bert, "gpt2": gpt2, "albert": albert, "vit": vit, "own_head": own_head}
FAMILIES = {"nano_gpt": nano_gpt} | HUGGING_FACE


def family(name: str) -> Made:
    """A model of a family with weights that do not vanish."""
    made = None
    if name in HUGGING_FACE:
        remedy = "transformers is an extra: pip install -e '.[transformers]'"
        made = pytest.importorskip("transformers", reason=remedy)
    torch.manual_seed(0)
    found = FAMILIES[name](made)
    with torch.no_grad():
        for parameter in found.model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.4)
    return found
