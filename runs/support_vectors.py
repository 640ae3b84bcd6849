# %% [markdown]
# # Attention is a support-vector regressor
#
# Give every key a label, and regress the labels on the keys with a tube of half-width ε in which
# errors cost nothing. The solution *is* attention: softmax attention over the same keys, whose
# values are the coefficients of the regression. Keys inside the tube have value 0 (arXiv
# 2406.13781). This script solves one such regression, checks the identity, and draws it. It then
# looks at what else follows: the conditions as a complementarity problem, the primal form with
# features of finite order, and the regressions behind Attention-BN and Attention-SH.
#
#     python runs/support_vectors.py [FOLDER]      (a second; default runs/results/attention)

# %%
import sys
from pathlib import Path

import numpy as np

from sampler.presentation.figures.studies import draw_support_vectors
from sampler.presentation.style import figure_style, save_figure
from theory import (
    attention_kernel,
    attention_matrix,
    complementarity_problem,
    regression_of_attention,
    scaled_down_points,
    standardised_points,
    support_vector_attention,
    truncated_attention,
    truncation_bound,
    unknowns_of,
)

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

# %% The optimality conditions: of two numbers whose product is 0, neither is negative.
kernel, tube, beta = attention_kernel(keys, keys), attention.tube, attention.coefficients[:, 0]
unknowns = unknowns_of(kernel, labels[:, 0], tube, beta)
slack = complementarity_problem(kernel, labels[:, 0], tube, 10_000.0).slack(unknowns)
print(f"complementarity: smallest slack {slack.min():.1e}, of each pair one is at most "
      f"{np.minimum(unknowns, slack).max():.1e}")  # fmt: skip

# %% The primal form: n + 1 features of a key on a line, and no pair of tokens compared.
queries = rng.uniform(-3.0, 3.0, (1000, 1))
expected = attention_matrix(queries, keys)
print("softmax with the exponential cut off at order n, 1,000 queries among the keys:")
for order in (4, 8, 16, 24, 32, 40):
    weights = truncated_attention(queries, keys, np.eye(len(keys)), order)
    error = np.abs(weights - expected).sum(axis=1).max()
    bound = truncation_bound(queries, keys, order).max()
    print(f"  n = {order:2}: largest Σ|Ã − A| {error:.1e}, bound {bound:.1e}")

# %% Attention-SH is the regression over averages of two keys, Attention-BN that of standard keys.
averages = np.kron(np.eye(len(keys) // 2), [[0.5, 0.5]])
for name, points in (
    ("Attention-SH", scaled_down_points(keys, averages)),
    ("Attention-BN", standardised_points(keys, 1.0, True, 1e-5)),
):
    given = points.pooling @ labels
    found = support_vector_attention(points.keys, given, tube=0.4, bound=10_000.0)
    outputs = attention_matrix(points.queries(queries), points.keys) @ points.pooling
    difference = np.abs(outputs @ points.spread(found.values)
                        - found.regressor(points.queries(queries))).max()  # fmt: skip
    print(f"{name} − its regressor: at most {difference:.1e}; support vectors: "
          f"{len(found.support_vectors)} of {len(given)}")  # fmt: skip

# %%
with figure_style():
    written = save_figure(draw_support_vectors(attention), folder, "support_vectors")
print("figure:", *written)
