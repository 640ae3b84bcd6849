"""Attention matrices Ω [example, head, key, query] from inputs and weights.

variants  attention variants: softmax, masked, pooled, normalised and others; their table
heads     the variant of every head, as recipes choose it, and the matrices of a layer
layers    the layers of weights that layers of attention serve, and the MLPs between them
learned   heads whose logit weights are sampled, and the prior of these
sampled   attended inputs as a function of sampled logit weights
measures  distance, overlap and entropy of matrices, and heads in matched order
padding   sequences of unequal length in arrays of one size
"""
