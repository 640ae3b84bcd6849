"""Tiny models of many families of `transformers`, with random weights.

`docs/howto/models_that_serve.md` has them in two tables: those that serve and those that do not.
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
XLM = {"emb_dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "pad_index": PAD}
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

    @property
    def row(self) -> str:
        """The row of this family in its table."""
        if self.refusal is not None:
            return f"| {self.title} | {self.refusal} |"
        notes = [
            "reads padding by convolutions" * self.mixes,
            "not in double precision" * (not self.double),
            "in double precision without padding" * self.spoils,
        ]
        cells = (
            self.title,
            self.kind,
            "earlier" if self.causal else "all",
            "fused calls" if self.fused else "returned",
            "; ".join(filter(None, notes)),
        )
        return "| " + " | ".join(cells) + " |"


def causal(name: str, **settings: Any) -> Family:
    return Family(name, settings, causal=True)


SWIN = {**PICTURE, "patch_size": 2, "window_size": 2, "depths": [1, 1], "num_heads": [2, 2]}
SWIN |= {"num_attention_heads": None, "num_hidden_layers": None, "embed_dim": 8}
FUNNEL = {"block_sizes": [1, 1], "d_model": WIDTH, "n_head": HEADS, "d_head": 8, "d_inner": 24}
FUNNEL |= {"num_hidden_layers": None}
BART = {"d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS}
BART |= {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
REFORMER = {"attn_layers": ["local"] * LAYERS, "axial_pos_embds": False, "is_decoder": False}
REFORMER |= {"attention_head_size": 8, "feed_forward_size": 24}
XLNET = {"d_model": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "d_inner": 24}
XLNET |= {"max_position_embeddings": None}

ENCODERS = (
    Family("Bert"),
    Family("Roberta"),
    Family("XLMRoberta"),
    Family("Camembert"),
    Family("Albert", {"embedding_size": 8}),
    Family("DistilBert", {"dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 24}),
    Family("Electra", {"embedding_size": 8}),
    Family("Deberta", {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    Family("DebertaV2", {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    Family("MPNet"),
    Family("Ernie"),
    Family("MobileBert", {"embedding_size": 8, "intra_bottleneck_size": WIDTH}),
    Family("RoFormer", {"embedding_size": 8}),
    Family("MegatronBert"),
    Family("RemBert", {"input_embedding_size": 8, "output_embedding_size": 8}),
    Family("IBert"),
    Family("SqueezeBert", {"embedding_size": WIDTH}),
    Family("ConvBert", {"embedding_size": 8, "head_ratio": 1}, mixes=True),
    Family("LayoutLM"),
    Family("XLNet", XLNET),
    Family("XLM", XLM),
    Family("Flaubert", XLM),
    Family("Esm", {"token_dropout": False}),
    Family("BigBird", {"attention_type": "original_full"}),
    Family("Nystromformer", {"segment_means_seq_len": TOKENS, "num_landmarks": TOKENS}, mixes=True),
    Family("Data2VecText"),
    Family("ModernBert", {"local_attention": 4, "global_attn_every_n_layers": 2}),
    Family("Splinter"),
    Family("Luke", {"entity_vocab_size": 5, "entity_emb_size": 8}),
    Family("Reformer", REFORMER),
    Family("T5", T5, model="T5EncoderModel"),
    Family("MT5", T5, model="MT5EncoderModel"),
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
    causal("GPTNeoX"),
    causal("GPTJ", **GPT, rotary_dim=4),
    causal("CodeGen", n_embd=WIDTH, n_layer=LAYERS, n_head=4, num_attention_heads=4, rotary_dim=2),
    causal("GPTBigCode", **GPT),
    causal("OpenAIGPT", **GPT),
    causal("CTRL", **GPT, dff=24),
    causal("OPT", ffn_dim=24, word_embed_proj_dim=WIDTH),
    Family("Bloom", {"n_layer": LAYERS, "n_head": HEADS}, causal=True, spoils=True),
    causal("Mpt", d_model=WIDTH, n_heads=HEADS, n_layers=LAYERS, max_seq_len=32),
    Family("Falcon", {"num_kv_heads": 1, "alibi": False}, causal=True, fused=True),
    Family("Falcon", {"num_kv_heads": 1, "alibi": True}, causal=True, fused=True, variant="alibi"),
    causal("Llama", **GROUPED),
    causal("Mistral", **GROUPED, sliding_window=3),
    causal("Qwen2", num_key_value_heads=1),
    causal("Qwen3", **GROUPED),
    causal("Gemma", **GROUPED),
    Family("Gemma2", {**GROUPED, "sliding_window": 3}, causal=True, spoils=True),
    causal("Phi"),
    causal("Phi3", **GROUPED),
    causal("StableLm", num_key_value_heads=1),
    causal("Starcoder2", num_key_value_heads=1),
    causal("Olmo", num_key_value_heads=1),
    causal("Olmo2", num_key_value_heads=1),
    causal("Cohere", num_key_value_heads=1),
    causal("Granite", num_key_value_heads=1),
    causal("Persimmon"),
    causal("BioGpt"),
    Family(
        "XGLM",
        {"d_model": WIDTH, "num_layers": LAYERS, "attention_heads": HEADS, "ffn_dim": 24},
        causal=True,
        double=False,
    ),
    Family(
        "GptOss",
        {**GROUPED, "num_local_experts": 2, "num_experts_per_tok": 1},
        causal=True,
        double=False,
    ),
)
PERCEIVED = (
    Family("ViT", PICTURE, "picture"),
    Family("DeiT", PICTURE, "picture"),
    Family("Beit", PICTURE, "picture"),
    Family("Data2VecVision", PICTURE, "picture", fused=True),
    Family("Dinov2", PICTURE, "picture"),
    Family("ViTMSN", PICTURE, "picture"),
    Family("CLIPVision", PICTURE, "picture"),
    Family("SiglipVision", PICTURE, "picture"),
    Family("Wav2Vec2", SOUND, "sound"),
    Family("Hubert", SOUND, "sound"),
)
# Refused, and why.
REFUSED = (
    Family(
        "Longformer", {"attention_window": [4, 4]}, refusal="attention in a band around each token"
    ),
    Family("Swin", SWIN, "picture", refusal="attention is within 4 windows of an example"),
    Family("Mamba", {"state_size": 4}, refusal="the model has none"),
    Family("FNet", refusal="the model has none"),
    Family(
        "Rwkv",
        {"context_length": 32, "attention_hidden_size": WIDTH},
        refusal="no weights of queries and keys",
    ),
    Family("Yoso", refusal="no weights of queries and keys"),
    Family("Funnel", FUNNEL, refusal="among fewer tokens"),
    Family(
        "Canine", {"num_hash_buckets": 16, "num_hash_functions": 2}, refusal="among fewer tokens"
    ),
    Family("Bart", BART, refusal="an encoder with a decoder"),
    Family("T5", T5, refusal="an encoder with a decoder"),
)
SERVING = (*ENCODERS, *CAUSAL, *PERCEIVED)
