# %% [markdown]
# # Attention is a support-vector regressor
#
# Give every key a label, and regress the labels on the keys with a tube of half-width ε in which
# errors cost nothing. The solution *is* attention: softmax attention over the same keys, whose
# values are the coefficients of the regression. Keys inside the tube have value 0 (arXiv
# 2406.13781). This script solves one such regression, checks the identity, and draws it.
#
#     python runs/support_vectors.py [FOLDER]      (a second; default runs/results/attention)

# %%
import sys
from pathlib import Path

import numpy as np

from sampler.presentation.figures.studies import draw_support_vectors
from sampler.presentation.style import figure_style, save_figure
from theory import attention_matrix, regression_of_attention, support_vector_attention

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/attention")

# %% Forty keys on a line, with noisy labels.
rng = np.random.default_rng(0)
keys = np.sort(rng.uniform(-3.0, 3.0, 40))[:, None]
labels = np.sin(keys) + 0.3 * rng.standard_normal(keys.shape)
attention = support_vector_attention(keys, labels, tube=0.4, bound=10_000.0)

# %% The identity: attention with those values equals the regressor at any query.
queries = rng.uniform(-4.0, 4.0, (1000, 1))
difference = np.abs(attention.attend(queries) - attention.regressor(queries)).max()
print(f"attention − regressor at 1,000 queries: at most {difference:.1e}")
print(f"support vectors: {len(attention.support_vectors)} of {len(keys)} keys")
print(f"optimality conditions met to {attention.residual:.1e}")

# %% The converse: any values solve some regression.
values = rng.standard_normal(keys.shape)
coefficients, made_labels = regression_of_attention(keys, values, tube=0.4)
bound = 2.0 * np.abs(coefficients).max()
again = support_vector_attention(keys, made_labels, tube=0.4, bound=bound)
expected = attention_matrix(queries, keys) @ values
difference = np.abs(again.attend(queries) - expected).max()
print(f"random values, made a regression and solved again: outputs differ by {difference:.1e}")

# %%
with figure_style():
    written = save_figure(draw_support_vectors(attention), folder, "support_vectors")
print("figure:", *written)
