"""Attention matrices from inputs and frozen weights, [example, head, key, query].

bilinear       softmax over keys of the logits x_sᵀ W x_t
markov_heads   the weights W of the heads of the hidden Markov task
"""
