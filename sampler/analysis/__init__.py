"""From a solved theory and from draws to labelled tables and their comparison.

names             dimensions, coordinates, long names and names in words of stored quantities
text              numbers as text, with the digits that their errors leave; text for terminals
predictors        the axis `predictor`: what predicts, and one table of all of them
estimates         means and variances with Monte Carlo errors
difference        difference of theory and draws in a quantity, and its state
draws             draws as they are averaged: `draws.nc` with the weights of repetitions bound
scores            scores of a mean and a variance at every example, and of draws with errors
calibration       probabilities of the class +1, and how often labels are +1
validation        scores on the validation split, of theories and draws
cross_validation  leave-one-out cross-validation of theories and draws
kernels           kernels between training examples and their alignment, of theories and draws
theory_table      predictions of the theory (`theory.nc`)
user_theories     predictions of theories of the user's own, checked
teacher_table     the teacher that labels were drawn from (`teacher.nc`)
learned_heads     attention that was sampled, heads in matched order, with errors
draws_table       draws in the layout of ArviZ (`draws.nc`)
theory_and_draws  theories and draws of one problem, as quantities are computed from them
quantities        every compared quantity: prediction, estimate, format
verdict           whether the draws can be trusted, and verdicts on theories
comparison        theories against draws as one tree (`comparison.nc`)
results           results of one run, in memory or read from its directory
slowest           the slowest numbers of a run, for figures of chains
model_comparison  models of several runs side by side
sweep_dataset     the Dataset of a sweep gathered from its points
selection         the temperatures of a sweep that its validation split chooses
sweep_results     tables and verdicts that derive from the Dataset of a sweep
"""
