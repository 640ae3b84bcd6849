"""Tiny models of many families, with random weights: those of `transformers` by their names.

A family of texts is what makes its model and how it is told of positions; pictures and sounds have
inputs of their own.
"""

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
    shift     positions of a sequence must be told when padding lies before it
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "text"
    causal: bool = False
    shift: bool = False
    model: str | None = None

    def make(self) -> Any:
        """A model in evaluation mode, as it is loaded by default."""
        made = pytest.importorskip("transformers")
        torch = pytest.importorskip("torch")
        torch.manual_seed(0)
        config = getattr(made, f"{self.name}Config")(
            **{key: one for key, one in {**COMMON, **self.settings}.items() if one is not None}
        )
        model = getattr(made, self.model or f"{self.name}Model")(config).eval()
        for parameter in model.parameters():  # weights of 0.02 would make all attention alike
            parameter.data.add_(0.2 * torch.randn_like(parameter))
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
                module.weight.data[module.padding_idx] = 0.0  # as training leaves it
        return model


def causal(name: str, shift: bool = False, **settings: Any) -> Family:
    return Family(name, settings, causal=True, shift=shift)


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
    Family("ConvBert", {"embedding_size": 8, "head_ratio": 1}),
    Family("LayoutLM"),
    Family(
        "XLNet",
        {
            "d_model": WIDTH,
            "n_layer": LAYERS,
            "n_head": HEADS,
            "d_inner": 24,
            "max_position_embeddings": None,
        },
    ),
    Family("XLM", XLM),
    Family("Flaubert", XLM),
    Family("Esm", {"token_dropout": False}),
    Family("BigBird", {"attention_type": "original_full"}),
    Family("Nystromformer", {"segment_means_seq_len": TOKENS, "num_landmarks": TOKENS}),
    Family("Data2VecText"),
    Family("ModernBert", {"local_attention": 4, "global_attn_every_n_layers": 2}),
    Family("Splinter"),
    Family("Luke", {"entity_vocab_size": 5, "entity_emb_size": 8}),
    Family("T5", T5, model="T5EncoderModel"),
    Family("MT5", T5, model="MT5EncoderModel"),
)
CAUSAL = (
    causal("GPT2", True, **GPT),
    causal(
        "GPTNeo",
        True,
        num_layers=LAYERS,
        num_heads=HEADS,
        window_size=4,
        attention_types=[[["global", "local"], 1]],
    ),
    causal("GPTNeoX"),
    causal("GPTJ", **GPT, rotary_dim=4),
    causal("CodeGen", n_embd=WIDTH, n_layer=LAYERS, n_head=4, num_attention_heads=4, rotary_dim=2),
    causal("GPTBigCode", True, **GPT),
    causal("OpenAIGPT", True, **GPT),
    causal("CTRL", True, **GPT, dff=24),
    causal("OPT", ffn_dim=24, word_embed_proj_dim=WIDTH),
    causal("Bloom", n_layer=LAYERS, n_head=HEADS),
    causal("Mpt", d_model=WIDTH, n_heads=HEADS, n_layers=LAYERS, max_seq_len=32),
    causal("Falcon", num_kv_heads=1, new_decoder_architecture=False, alibi=False),
    causal("Llama", **GROUPED),
    causal("Mistral", **GROUPED, sliding_window=3),
    causal("Qwen2", num_key_value_heads=1),
    causal("Qwen3", **GROUPED),
    causal("Gemma", **GROUPED),
    causal("Gemma2", **GROUPED, sliding_window=3),
    causal("Phi"),
    causal("Phi3", **GROUPED),
    causal("StableLm", num_key_value_heads=1),
    causal("Starcoder2", num_key_value_heads=1),
    causal("Olmo", num_key_value_heads=1),
    causal("Olmo2", num_key_value_heads=1),
    causal("Cohere", num_key_value_heads=1),
    causal("Granite", num_key_value_heads=1),
    causal("Persimmon"),
    causal("BioGpt", True),
    causal("XGLM", True, d_model=WIDTH, num_layers=LAYERS, attention_heads=HEADS, ffn_dim=24),
    causal("GptOss", **GROUPED, num_local_experts=2, num_experts_per_tok=1),
)
PERCEIVED = (
    Family("ViT", PICTURE, "picture"),
    Family("DeiT", PICTURE, "picture"),
    Family("Beit", PICTURE, "picture"),
    Family("Data2VecVision", PICTURE, "picture"),
    Family("Dinov2", PICTURE, "picture"),
    Family("ViTMSN", PICTURE, "picture"),
    Family("CLIPVision", PICTURE, "picture"),
    Family("SiglipVision", PICTURE, "picture"),
    Family("Wav2Vec2", SOUND, "sound"),
    Family("Hubert", SOUND, "sound"),
)
REFUSED = (
    Family("Longformer", {"attention_window": [4, 4]}),
    Family(
        "Swin",
        {
            **PICTURE,
            "patch_size": 2,
            "window_size": 2,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "num_attention_heads": None,
            "num_hidden_layers": None,
            "embed_dim": 8,
        },
        "picture",
    ),
    Family("Mamba", {"state_size": 4}),
    Family("Rwkv", {"context_length": 32, "attention_hidden_size": WIDTH}),
    Family("FNet"),
    Family(
        "Funnel",
        {
            "block_sizes": [1, 1],
            "d_model": WIDTH,
            "n_head": HEADS,
            "d_head": 8,
            "d_inner": 24,
            "num_hidden_layers": None,
        },
    ),
    Family(
        "Reformer",
        {
            "attn_layers": ["local"],
            "axial_pos_embds": False,
            "is_decoder": False,
            "attention_head_size": 8,
            "feed_forward_size": 24,
        },
    ),
    Family("Yoso"),
    Family("Canine", {"num_hash_buckets": 16, "num_hash_functions": 2}),
    Family(
        "Bart",
        {
            "d_model": WIDTH,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
        },
    ),
    Family("T5", T5),
    Family("Wav2Vec2Bert", {}),
    Family("Perceiver", {}),
)
