"""Models of Hugging Face, of random small configurations, from their export to draws."""

import numpy as np
import pytest

from sampler.errors import ExitCode
from sampler.tasks.arrays import read_arrays
from sampler.tasks.export import export_attention
from sampler.transformer.chosen_layers import EVERY_LAYER
from sampler.transformer.single_paths import find_paths, recorded_paths
from tests.assertions import assert_equal_in_float32
from tests.commands import FEW_DRAWS, in_process, settings, stored_arrays, without_drawing

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")

pytestmark = pytest.mark.slow
LENGTHS = (5, 3, 1, 4, 2, 5)
WORDS, TOKENS, HEADS, LAYERS = 11, 5, 2, 2
END = {"bos_token_id": 0, "eos_token_id": 0}
HIDDEN = {"hidden_size": 8, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def hugging_face():
    remedy = "transformers is an extra: pip install -e '.[transformers]'"
    return pytest.importorskip("transformers", reason=remedy)


def bert():
    made = hugging_face()
    return made.BertModel(made.BertConfig(vocab_size=WORDS, intermediate_size=16, **HIDDEN))


def gpt_2():
    made = hugging_face()
    sizes = {"n_positions": 8, "n_embd": 8, "n_layer": LAYERS, "n_head": HEADS}
    return made.GPT2Model(made.GPT2Config(vocab_size=WORDS, **sizes, **END))


def vit():
    made = hugging_face()
    sizes = {"image_size": 8, "patch_size": 4, "num_channels": 1, "intermediate_size": 16}
    return made.ViTModel(made.ViTConfig(**sizes, **HIDDEN))


def texts():
    ids = torch.randint(1, WORDS, (len(LENGTHS), TOKENS))
    mask = (torch.arange(TOKENS) < torch.tensor(LENGTHS)[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def pictures():
    return torch.randn(len(LENGTHS), 1, 8, 8)


def test_a_model_as_it_is_loaded_is_exported_run_and_sampled(tmp_path):
    model, inputs = bert(), texts()
    assert model.config._attn_implementation == "sdpa"
    values = torch.arange(len(LENGTHS)) % 2 * 2.0 - 1.0
    path = export_attention(
        tmp_path / "mine.npz", model, train=(inputs, values), test=(inputs, values), batch_size=4
    )
    assert model.config._attn_implementation == "sdpa"
    task = read_arrays(path)
    assert task.train.lengths.tolist() == list(LENGTHS)
    recipe, out = tmp_path / "mine.toml", tmp_path / "out"
    recipe.write_text(
        'name = "mine"\ntask = {kind = "arrays", path = "mine.npz"}\n'
        'network = {widths = 3, readout = "mean"}\n'
    )
    small = settings("theory.starts=1", "posterior.temperature=1.0", *FEW_DRAWS)
    with without_drawing():
        # So few draws cannot pass the diagnostics.
        code = in_process("run", recipe, "--out", out, *small)
    assert code == ExitCode.DIAGNOSTICS_FAILED
    stored = stored_arrays(out)
    assert stored["theory/head_score"].shape[1:] == (LAYERS, HEADS)  # of every predictor
    assert np.isfinite(stored["posterior/order_parameter"]).all()


# Normalisations behind what heads of layers 1 and 2 write: of BERT those of every later layer, of
# models that normalise before each layer the last one.
STREAMS = {"bert": [4, 2], "vit": [1, 1]}


def value_and_output(model, number):
    """W_V and W_O of a layer, [to, from]."""
    if hasattr(model, "layers"):  # ViT
        attention = model.layers[number].attention
        return attention.v_proj.weight, attention.o_proj.weight
    attention = model.encoder.layer[number].attention
    return attention.self.value.weight, attention.output.dense.weight


@pytest.mark.parametrize(
    ("make", "inputs_of"),
    [(bert, texts), (vit, pictures)],
    ids=lambda f: f.__name__,
)
def test_single_heads_embedding_and_mlps_add_up_to_the_stream(make, inputs_of):
    """Each divided by the σ behind it, and heads through the model's own values, without biases."""
    model, inputs = make(), inputs_of()
    first = {k: v[:1] for k, v in inputs.items()} if isinstance(inputs, dict) else inputs[:1]
    for module in model.modules():
        if getattr(module, "bias", None) is not None:
            torch.nn.init.zeros_(module.bias)
        if isinstance(module, torch.nn.LayerNorm):
            torch.nn.init.ones_(module.weight)
    paths = find_paths(model, first, EVERY_LAYER, True, None)
    assert paths.stream.heads.sum(axis=1).tolist() == STREAMS[make.__name__]
    found = recorded_paths(
        model, first, paths, lambda real, _: np.eye(real.shape[1])[None, :1], None, 4
    )[0, 0]
    model.eval()
    with torch.no_grad():
        returned = model(**first) if isinstance(first, dict) else model(first)
        end = returned.last_hidden_state[0, 0].double().numpy()
        matrices = [value_and_output(model, number) for number in range(LAYERS)]
    heads = found[: LAYERS * HEADS].reshape(LAYERS, HEADS, -1)
    total = found[LAYERS * HEADS :].sum(axis=0)
    for layer, (value, output) in enumerate(matrices):
        for head, part in enumerate((slice(0, 4), slice(4, 8))):
            product = output.detach()[:, part] @ value.detach()[part]
            total = total + product.numpy() @ heads[layer, head]
    # The mean that normalisations subtract is the same for all that was written.
    assert_equal_in_float32(total - total.mean(), end, operations=10000)
