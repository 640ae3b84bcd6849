"""Heads of a trained model: which of them matter, which can go, and what tells so.

path_sum         trained network and theory as sums over paths, without some of their heads
torch_heads      heads of PyTorch models, with a gate on each
head_importance  numbers of heads from the model and from the theory, and how well they order costs
removal          heads removed, alone and in an order; the largest set within a limit
removal_tables   the results as tables and texts
figures          and as figures
"""
