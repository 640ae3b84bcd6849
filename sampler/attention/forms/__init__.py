"""Forms of attention: which matrix a head makes of its queries and keys, and nothing else.

A form is a frozen group of settings with a method `matrices`. It sees the queries and keys of the
heads of one layer that share it, [example, head, token, key channel], and returns A [example, head,
query, key], whose transpose Ω is what theory and samplers take. Forms are written with the
operations that NumPy and JAX share: one text serves recipes, trainings and tests.

form               what all forms have in common; logits and softmax
softmax            softmax over all keys, or over those a mask leaves
hard_maximum       all weight on the largest logit
linear             positive features, normalised
batch_normalised   Attention-BN: queries and keys standardised with the statistics of the keys
scaled_heads       Attention-SH: keys pooled at a scale, BN on top where asked for
pooling            the matrices P of pooling
robust             RPC: keys clipped, queries equal to keys
scaled             A (1 − s A_sym)
head_normalised    HYLA: logits divided by their root mean square over heads
layer              the heads of one layer, each with its form
choice             which head takes which form, as recipes write it
"""
