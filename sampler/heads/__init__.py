"""Heads of a trained model: the cost of removing them, and the set that can be removed.

path_sum     trained network and theory as sums over paths, without some of their heads
torch_heads  heads of PyTorch models, with a gate on each
importance   losses of a model; Taylor importance and magnitude of its heads
costs        what sets of heads cost: each alone, one after the other, the largest within a limit
cost_tables  the results as a frame, tables and texts
figures      and as figures
"""
