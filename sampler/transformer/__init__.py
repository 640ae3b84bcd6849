"""A transformer trained by gradient descent, whose attention the theory then takes as fixed.

model       sizes of a network, the file of a trained one, and the same in the theory's terms
network     its forward pass, and the attention of its layers
training    steps, choice by validation, and their checkpoints
evaluation  examples to learn, as arrays, and accuracies with their errors
classified  inputs of several classes, for training, validation and test
matrices    symbolic Raven's matrices: rules, panels, tokens, what is held out
"""
