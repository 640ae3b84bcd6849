"""Figures, one subject a file: drawings, captions, and alternative texts.

draw             the table of figures, and drawing those that apply
order_parameter  order parameters as coloured matrices
predictor        what theories leave of the predictor on the test set
kernels          kernels between training examples, of pairs of paths too, and their alignment
calibration      labels +1 where a probability is predicted
network          attention of the heads, and paths weighed by U_1
attention        attention that was sampled, beside prior mean and known heads
chains           an overview of chains
accuracy         accuracy along a sweep
finite_size      theory and exact posterior against width
temperatures     evidence and scores against temperature
"""
