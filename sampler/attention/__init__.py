"""Attention matrices Ω [example, head, key, query] from inputs and frozen weights.

variants  attention variants: softmax, masked, pooled, normalised and others; their table
heads     the variant of every head, as recipes choose it, and the matrices of a layer
padding   sequences of unequal length in arrays of one size
"""
