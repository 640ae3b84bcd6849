"""Figures, one subject a file: drawings, captions, and alternative texts.

draw             the table of figures, and drawing those that apply
accuracy         accuracy of one run, and accuracy against width
order_parameter  order parameters as coloured matrices
predictor        predictions of theory and draws, and their calibration
kernels          kernels between training examples, and kernel–task alignment
network          two examples of the task, attention of the heads, and paths weighed by U_1
chains           traces, pairs, ranks, autocorrelation, energy and effective draws of chains
sweeps           theory and exact posterior against width, and the choice of a temperature
studies          attention variants; rank collapse; attention as support-vector regression
"""
