"""Studies of attention that need no order parameter.

attention_kernel  attention as a normalised kernel, and the masks that it may have
support_vectors   softmax attention as support-vector regression
rank_collapse     rank collapse of tokens with depth
"""
