"""From a solved theory and from draws to labelled tables and their comparison.

text                numbers as text, with the digits that their errors leave; text for terminals
names               dimensions, coordinates, long names and names in words of stored quantities
predictors          the axis `predictor`: what predicts, and one table of all of them
estimates           means and variances with Monte Carlo errors
power_law           power laws in the width, with their errors
difference          how far theory and draws are apart in a quantity, and what may be said of it
scores              scores of a mean and a variance at every example, and of draws with errors
calibration         probabilities of the class +1, and how often labels are +1
verdict             whether the draws can be trusted, and what they allow to say of theories
theory_table        what the theory predicts (`theory.nc`)
infinite_tuned      infinite width at the temperature that is best for it
nonlinear_table     nonlinear values at infinite width (`theory.nc`)
user_theories       predictions of theories of the user's own, checked
teacher_table       the network that labels were drawn from (`teacher.nc`)
example_tables      training examples for figures: attention to them, kernels between them
attention_table     attention that was sampled, heads in matched order: matrices, and numbers
learned_kernels     kernel and alignment of draws whose attention is sampled, too
attention_found     numbers of learned heads with their errors
draws_table         draws in the layout of ArviZ (`draws.nc`)
validation          scores on the validation split, for theory and draws
leave_one_out       leave-one-out cross-validation of theory and draws
theory_and_draws    theories and draws of one problem, as quantities are computed from them
quantities          every compared quantity: what is predicted, what the draws say, how it is shown
comparison          theories against draws as one tree (`comparison.nc`)
model_comparison    models of several runs side by side
results             results of one run, in memory or read from its directory
slowest             the slowest numbers of a run, for figures of chains
finite_size         U_1 against the width
sweeps              the Dataset of a sweep, and tables that derive from it
sweep_dataset       the Dataset of a sweep gathered from its points
sweep_verdict       verdicts on a sweep
"""
