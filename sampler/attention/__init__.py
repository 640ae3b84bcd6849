"""Attention matrices from inputs and frozen weights, [example, head, key, query].

variants  attention variants: softmax, masked, pooled, normalised and others
layers    the variant of every head of a layer, as recipes choose it
heads     matrices of heads given by bilinear forms or by queries and keys
"""
