"""PyTorch models of others: their attention as arrays.

model_inputs  inputs batch by batch, and the model while it runs on them
recording     attention of every layer, and the tokens before it
export        the same with labels in a file, for a task of arrays
"""
