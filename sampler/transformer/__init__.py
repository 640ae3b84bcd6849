"""A transformer trained by gradient descent, whose attention the theory then takes as fixed.

model       sizes of a network, the file of a trained one, and the same in the theory's terms
network     its forward pass, and the attention of its layers
training    steps, choice by validation, and their checkpoints
evaluation  examples to learn, as arrays, and accuracies with their errors
classified  inputs of several classes, for training, validation and test
matrices    symbolic Raven's matrices: rules, panels, tokens, what is held out
forward_pass  attention seen in a forward pass of a PyTorch model, however it shows it
softmaxes   attention that a model computes step by step, and where
refusals    models whose attention is no matrix of all tokens of an example
value_products  what the values of a layer are made of
chosen_layers  which layers and heads of a model are recorded
recording   attention of all examples, batch by batch, without padding
read_tokens  the token of a sequence that a label is read off
stream      the residual stream: who writes into it, and which normalisations it passes
stream_steps  refuses what is not linear on the way along it
single_paths  every head of every layer as one attention path
"""
