# %% [markdown]
# # Rank collapse: what a mask does to depth
#
# Attention replaces every token by an average of tokens. Layer upon layer makes all tokens the
# same, μ(X) = ‖X − 1 x̄ᵀ‖_F → 0, unless a mask or LayerNorm holds them apart (arXiv 2405.18781).
# Queries and keys are recomputed in each layer from the tokens of the layer below by new random
# weights; values are the tokens themselves.
#
#     python runs/rank_collapse.py [FOLDER]      (seconds; default runs/results/attention)

# %%
import sys
from pathlib import Path

import numpy as np

from sampler.presentation.figures.studies import CollapseCurve, draw_rank_collapse
from sampler.presentation.style import figure_style, save_figure
from theory import Mask, collapse_of_random_attention, mask_matrix

TOKENS, CHANNELS, KEY_CHANNELS, LAYERS, SEEDS, WINDOW = 48, 16, 16, 12, 10, 4
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/attention")
MASKS = {
    "all": (Mask.COMPLETE, None),
    "causal ($j ≤ i$)": (Mask.CAUSAL, None),
    f"window ($|i − j| ≤ {WINDOW}$)": (Mask.WINDOW, WINDOW),
    f"one-sided window ($0 ≤ i − j ≤ {WINDOW}$)": (Mask.ONE_SIDED_WINDOW, WINDOW),
}


# %%
def distances(mask: np.ndarray, seed: int, normalise: bool) -> np.ndarray:
    """μ(X_0) … μ(X_L); every mask sees the same tokens and the same random weights."""
    rng = np.random.default_rng(seed)
    tokens = rng.standard_normal((TOKENS, CHANNELS))
    return collapse_of_random_attention(mask, tokens, LAYERS, KEY_CHANNELS, rng, normalise)


curves = []
print(f"μ after {LAYERS} layers: geometric mean over {SEEDS} seeds, times or over its deviation")
for label, (kind, window) in MASKS.items():
    mask = mask_matrix(kind, TOKENS, window)
    plain, normalised = (
        np.stack([distances(mask, seed, normalise) for seed in range(SEEDS)])
        for normalise in (False, True)
    )
    curves.append(CollapseCurve(label, plain, normalised))
    texts = []
    for found in (plain, normalised):
        last = found[:, -1]
        if (last == 0.0).any():
            texts.append(f"0 in {np.mean(last == 0.0):.0%} of seeds")
        else:
            logs = np.log(last)
            texts.append(f"{np.exp(logs.mean()):.2g} ×/÷ {np.exp(logs.std(ddof=1)):.2g}")
    print(f"{kind:>17}: attention only {texts[0]:<22} LayerNorm {texts[1]}")

# %%
with figure_style():
    setting = f"{TOKENS} tokens, {CHANNELS} channels"
    written = save_figure(draw_rank_collapse(curves, setting), folder, "rank_collapse")
print("figure:", *written)
