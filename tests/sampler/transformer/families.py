"""Tiny models of many families of `transformers`, with random weights.

Those of `docs/howto/models_that_serve.md` that differ most in how they make their attention.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

WORDS, TOKENS, WIDTH, HEADS, LAYERS, PAD = 37, 6, 16, 2, 2, 1
LENGTHS = (6, 4, 1, 5, 6)

COMMON = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "pad_token_id": PAD,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
GROUPED = {"num_key_value_heads": 1, "head_dim": WIDTH // HEADS}
GPT = {"n_positions": 32, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS}
T5 = {"d_model": WIDTH, "d_kv": WIDTH // HEADS, "d_ff": 24, "num_layers": LAYERS}
T5 |= {"num_heads": HEADS, "decoder_start_token_id": PAD}
PICTURE = {"image_size": 8, "patch_size": 4, "num_channels": 1}
SOUND = {"conv_dim": [8, 8], "conv_kernel": [4, 2], "conv_stride": [2, 2]}
SOUND |= {"num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4}
SOUND |= {"num_conv_pos_embedding_groups": 2, "feat_extract_norm": "layer"}


@dataclass(frozen=True)
class Family:
    """A kind of model.

    name      the class without "Model" or "Config", as `transformers` has them
    settings  of its configuration, beside or in the place of the common ones
    kind      what goes in: "text", "picture" or "sound"
    causal    no token sees those behind it
    fused     keeps to fused attention if it is loaded so
    mixes     convolutions read padding, so that a padded sequence is not what it is alone
    double    runs in double precision
    spoils    makes NaN of padded texts in double precision: its masks are infinite in its softmax
    model     the class, where it is not `name` and "Model"
    variant   settings that make it another model
    refusal   a part of the message with which it is refused
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "text"
    causal: bool = False
    fused: bool = False
    mixes: bool = False
    double: bool = True
    spoils: bool = False
    model: str | None = None
    variant: str = ""
    refusal: str | None = None

    @property
    def class_name(self) -> str:
        return self.model or f"{self.name}Model"

    @property
    def title(self) -> str:
        return f"`{self.class_name}`" + f", {self.variant}" * bool(self.variant)

    @property
    def sides(self) -> tuple[str, ...]:
        """Where padding is put."""
        if self.kind != "text":
            return ("none",)
        return ("none", "right", "left") if self.causal else ("none", "right")

    def make(self) -> Any:
        """A model in evaluation mode, as it is loaded by default."""
        made = pytest.importorskip(
            "transformers", reason="an extra: pip install -e '.[transformers]'"
        )
        torch = pytest.importorskip("torch", reason="an extra: pip install -e '.[torch]'")
        torch.manual_seed(0)
        settings = {**COMMON, **self.settings}
        config = getattr(made, f"{self.name}Config")(
            **{key: one for key, one in settings.items() if one is not None}
        )
        model = getattr(made, self.class_name)(config).eval()
        for parameter in model.parameters():  # weights of 0.02 would make all attention alike
            parameter.data.add_(0.2 * torch.randn_like(parameter))
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
                module.weight.data[module.padding_idx] = 0.0  # as training leaves it
        return model

    def inputs(self, model: Any, side: str) -> dict[str, Any]:
        """Named inputs, with padding on a side: "right", "left" or "none"."""
        torch = pytest.importorskip("torch")
        random, count = torch.Generator().manual_seed(1), len(LENGTHS)
        precision = next(model.parameters()).dtype
        if self.kind == "picture":
            return {"pixel_values": torch.randn(count, 1, 8, 8, generator=random).to(precision)}
        if self.kind == "sound":
            return {"input_values": torch.randn(count, 40, generator=random).to(precision)}
        ids = torch.randint(3, WORDS, (count, TOKENS), generator=random)
        if side == "none":
            return {"input_ids": ids}
        mask = (torch.arange(TOKENS) < torch.tensor(LENGTHS)[:, None]).long()
        mask = mask.flip(1) if side == "left" else mask
        named = {"input_ids": torch.where(mask == 1, ids, PAD), "attention_mask": mask}
        if side == "left" and "position_ids" in inspect.signature(model.forward).parameters:
            named["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
        return named


def causal(name: str, **settings: Any) -> Family:
    return Family(name, settings, causal=True)


SWIN = {**PICTURE, "patch_size": 2, "window_size": 2, "depths": [1, 1], "num_heads": [2, 2]}
SWIN |= {"num_attention_heads": None, "num_hidden_layers": None, "embed_dim": 8}
BART = {"d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS}
BART |= {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
XLNET = {"d_model": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "d_inner": 24}
XLNET |= {"max_position_embeddings": None}

ENCODERS = (
    Family("Bert"),
    Family("DebertaV2", {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    Family("SqueezeBert", {"embedding_size": WIDTH}),
    Family("ConvBert", {"embedding_size": 8, "head_ratio": 1}, mixes=True),
    Family("XLNet", XLNET),
    Family("ModernBert", {"local_attention": 4, "global_attn_every_n_layers": 2}),
    Family("T5", T5, model="T5EncoderModel"),
)
CAUSAL = (
    causal("GPT2", **GPT),
    causal(
        "GPTNeo",
        num_layers=LAYERS,
        num_heads=HEADS,
        window_size=4,
        attention_types=[[["global", "local"], 1]],
    ),
    Family("Bloom", {"n_layer": LAYERS, "n_head": HEADS}, causal=True, spoils=True),
    Family("Falcon", {"num_kv_heads": 1, "alibi": True}, causal=True, fused=True, variant="alibi"),
    causal("Llama", **GROUPED),
    causal("Mistral", **GROUPED, sliding_window=3),
    Family(
        "GptOss",
        {**GROUPED, "num_local_experts": 2, "num_experts_per_tok": 1},
        causal=True,
        double=False,
    ),
)
PERCEIVED = (Family("ViT", PICTURE, "picture"), Family("Wav2Vec2", SOUND, "sound"))
# Refused, and why.
REFUSED = (
    Family(
        "Longformer", {"attention_window": [4, 4]}, refusal="attention in a band around each token"
    ),
    Family("Swin", SWIN, "picture", refusal="attention is within 4 windows of an example"),
    Family("Mamba", {"state_size": 4}, refusal="the model has none"),
    Family("Yoso", refusal="no weights of queries and keys"),
    Family(
        "Canine", {"num_hash_buckets": 16, "num_hash_functions": 2}, refusal="among fewer tokens"
    ),
    Family("Bart", BART, refusal="an encoder with a decoder"),
)
SERVING = (*ENCODERS, *CAUSAL, *PERCEIVED)
