"""A transformer trained by gradient descent, whose attention the theory then takes as fixed.

shape         heads, widths and sizes of one network, and the arrays of its parameters
network       its forward pass
layer_attention  the attention of one layer, of any form, in the order that costs least
softmax       softmax with the derivative that is cheapest
training_data patches of every drawing, and the episodes of every step
optimiser     AdamW or Adam, and the learning rate over the steps
training      steps, choice by validation, and what is kept of them
checkpoint    the state of a training on disk
evaluation    accuracies with their binomial errors
nearest_neighbour  the baseline that looks at pixels alone
summary       accuracies of a trained network on every split
model_file    the trained network on disk, with its recipe
frozen        the trained network in the theory's terms: attention, and weights
trained_predictor  its output and overlaps
pruning       heads removed from it, and from the theory
export        the attention of PyTorch models, written as arrays
progress      what a running training shows
"""
