"""Figures, one subject a file: its drawing, its caption, and what it shows in words.

draw                the table of figures, and drawing those that apply
accuracy            accuracy of one run, and accuracy against width
task                two examples of the task
network             the network: attention of its heads, and its paths weighed by U_1
order_parameter     order parameters as coloured matrices
predictor           predictions of theory and draws
kernels             kernels between training examples, of pairs of paths and of the network
alignment           kernel–task alignment
reliability         predicted probabilities against the share of labels that came true
traces              chains draw by draw, and elements of U_1 in pairs
chains              ranks, autocorrelation, energy and effective draws of chains
finite_size         theory and exact posterior against width
variant_comparison  attention variants: redundancy and accuracy
temperature_choice  scores against temperature, and what was chosen
heads               head scores of a run
ablation            what removing heads costs, against predictions of it
pruning             head scores, and accuracy while heads are removed
studies             rank collapse; attention as support-vector regression
"""
