"""Heads of a trained model: which of them matter, and what tells so.

gates    models with some of their heads replaced, of the command `train` and of PyTorch
measures what is lost without a head, and the predictions of it: gradients, magnitudes, the theory
removal  heads removed alone and in an order: the results as values
shown    the results as tables and figures
prune    the command `prune`
"""
