"""Attention matrices from inputs and frozen weights, [example, head, key, query].

bilinear       softmax over keys of the logits x_sᵀ W x_t
softmax        softmax over keys of learned products k_s·q_t/√G
factored       queries and keys W_Q x and W_K x, in any form
forms          all other ways from queries and keys to a matrix
markov_heads   the weights W of the heads of the hidden Markov task
series_heads   the weights W_Q and W_K of the heads of time series
image_heads    the same of the heads of digits
"""
