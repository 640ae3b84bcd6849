"""A transformer trained by gradient descent, whose attention the theory then takes as fixed.

model_file  sizes of a network, and the file of a trained one
network     its forward pass, and the attention of its layers
training    steps, choice by validation, and their checkpoints
evaluation  what is learned, as arrays, and accuracies with their errors
classified  inputs of several classes, for training, validation and test
frozen      the trained network in the theory's terms
fused       attention whose matrices a model does not compute by itself
recording   the attention of PyTorch models
"""
