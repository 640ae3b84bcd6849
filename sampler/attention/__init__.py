"""Attention matrices Ω [example, head, key, query] from inputs and weights.

variants    attention variants: softmax, masked, pooled, normalised and others; their table
layers      the variant of every head, the matrices of a layer, and the weights that it serves
logits      queries and keys by the form of logits, and the matrices that follow
learned     heads whose logit weights are sampled, and the prior of these
sampled     attended inputs as a function of sampled logit weights
similarity  distance and entropy of matrices, and heads in matched order
padding     sequences of unequal length in arrays of one size
"""
