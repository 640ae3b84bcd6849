"""A transformer trained by gradient descent, whose attention the theory then takes as fixed.

model       sizes of a network, the file of a trained one, and the same in the theory's terms
network     its forward pass, and the attention of its layers
"""
