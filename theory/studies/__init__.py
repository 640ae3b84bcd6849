"""Studies of attention that need no order parameter.

attention_kernel  attention as a normalised kernel, and the masks that it may have
softmax_forms     softmax by features of finite order, as a maximiser, and as a projection
tube_regression   ε-insensitive regression and its optimality
support_vectors   softmax attention, and its variants, as support-vector regression
rank_collapse     rank collapse of tokens with depth
"""
