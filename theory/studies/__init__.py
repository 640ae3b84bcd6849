"""Studies of attention that need no order parameter.

softmax_forms     attention as a normalised kernel: its masks, features, maximiser, projection
tube_regression   ε-insensitive regression and its optimality
support_vectors   softmax attention, and its variants, as support-vector regression
rank_collapse     rank collapse of tokens with depth
"""
