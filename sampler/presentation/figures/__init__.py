"""Figures, one subject a file: drawings, captions, and alternative texts.

draw             the table of figures, and drawing those that apply
order_parameter  order parameters as coloured matrices
predictions      accuracy of runs and sweeps; theory and draws on the test set; calibration
kernels          kernels between training examples, and kernel–task alignment
network          two examples of the task, attention of the heads, and paths weighed by U_1
attention        attention that was sampled, beside prior mean and known heads
chains           traces, pairs, ranks, autocorrelation, energy and effective draws of chains
sweeps           theory and exact posterior against width, chosen temperatures, attention variants
"""
