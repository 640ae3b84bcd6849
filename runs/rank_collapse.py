# %% [markdown]
# # Rank collapse: what a mask does to depth
#
# Attention replaces every token by an average of tokens. Layer upon layer makes all tokens the
# same, μ(X) = ‖X − 1 x̄ᵀ‖_F → 0 (arXiv 2405.18781). How fast depends on the mask: once tokens are
# nearly equal, so are the weights of all visible keys, and a layer is the uniform average over
# them. The deviation then shrinks by that matrix's second eigenvalue λ in every layer.
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
from theory import Mask, collapse_of_random_attention, mask_matrix, rate_of_uniform_averages

TOKENS, CHANNELS, KEY_CHANNELS, LAYERS, SEEDS, WINDOW = 48, 16, 16, 400, 10, 4
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


# With LayerNorm tokens are known to rounding only; a deviation alone is known down to the smallest
# number there is.
SHALLOWEST, ROUNDING, SMALLEST = 30, 1e-12, 1e-290
SHOWN = (12, 50, 200, LAYERS)


def rate(share: np.ndarray, floor: float) -> tuple[float, float]:
    """Loss of ln μ per layer, from layer 30 to where μ/μ₀ is below the floor: mean and error."""
    deep = np.arange(share.shape[1])[None] >= SHALLOWEST
    used = (deep & (share > floor)).all(axis=0)
    if used.sum() < 5:
        return np.nan, np.nan
    depth = np.flatnonzero(used)
    slopes = [-np.polyfit(depth, np.log(one[used]), 1)[0] for one in share]
    return float(np.mean(slopes)), float(np.std(slopes, ddof=1) / np.sqrt(len(slopes)))


curves = []
print(f"μ/μ₀, geometric mean over {SEEDS} seeds, after {', '.join(map(str, SHOWN))} layers;")
print(f"loss of ln μ per layer from layer {SHALLOWEST} on, beside that of uniform averages")
for label, (kind, window) in MASKS.items():
    mask = mask_matrix(kind, TOKENS, window)
    uniform = rate_of_uniform_averages(mask)
    plain, normalised = (
        np.stack([distances(mask, seed, normalise) for seed in range(SEEDS)])
        for normalise in (False, True)
    )
    curves.append(CollapseCurve(label, plain, normalised))
    for name, found, floor in (
        ("attention only", plain, SMALLEST),
        ("LayerNorm", normalised, ROUNDING),
    ):
        share = found / found[:, :1]
        with np.errstate(divide="ignore"):
            logs = np.log(share[:, SHOWN]).mean(axis=0)
        texts = "  ".join(f"{np.exp(value):8.2g}" for value in logs)
        lost, error = rate(share, floor)
        fitted = "too fast to fit" if np.isnan(lost) else f"{lost:.4f} ± {error:.4f}"
        print(f"{kind:>17}, {name:14}: {texts}   {fitted}  ({uniform:.4f})")

# %%
with figure_style():
    setting = f"{TOKENS} tokens, {CHANNELS} channels"
    written = save_figure(draw_rank_collapse(curves, setting), folder, "rank_collapse")
print("figure:", *written)
