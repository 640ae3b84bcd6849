"""A transformer trained by gradient descent, whose attention the theory then takes as fixed.

trained_transformer  sizes of a network, the file of a trained one, and both as the theory has them
forward_pass         its forward pass, and the attention of its layers
"""
