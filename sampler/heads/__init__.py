"""Heads of a trained model: which of them matter, and what tells so.

gates      models with some of their heads replaced; those of the command `train`
consumers  the modules of a PyTorch model that take the heads of a layer
modules    PyTorch modules with gates on their heads
measures   what is lost without a head, and the predictions of it: gradients, magnitudes, the theory
removal    heads removed alone and in an order: the results as values
joint      heads removed together: greedy orders, what each set costs
left       what the theory says of the heads that are left
joint_shown  those orders as a table and a figure
steps      long work in steps that Ctrl-C ends with what is done kept
notes      what is to be known when the numbers are read
shown      the results as tables and figures
prune      the command `prune`
"""
