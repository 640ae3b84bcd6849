"""Figures, one subject a file: drawings, captions, and alternative texts.

draw             the table of figures, and drawing those that apply
order_parameter  order parameters as coloured matrices
predictions      accuracy of sweeps; theory and draws on the test set; calibration
kernels          kernels between training examples, of pairs of paths too, and their alignment
network          attention of the heads, and paths weighed by U_1
attention        attention that was sampled, beside prior mean and known heads
chains           traces, pairs, ranks, autocorrelation, energy and effective draws of chains
finite_size      theory and exact posterior against width
temperatures     evidence and scores against temperature
"""
