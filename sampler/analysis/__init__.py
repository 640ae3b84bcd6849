"""From a solved theory and from draws to labelled tables and their comparison.

text                numbers as text, with the digits that their errors leave; text for terminals
labels              dimensions, coordinates, long names and names in words of stored quantities
estimate            means and variances with Monte Carlo errors, rank correlation, power laws
difference          how far theory and draws are apart in a quantity, and what may be said of it
verdict             whether the draws can be trusted, and what they say of the theory
theory_table        what the theory predicts (`theory.nc`)
user_theories       predictions of theories of the user's own, checked
value_theories      nonlinear values at infinite width (`theory.nc`)
teacher_table       the network that labels were drawn from (`teacher.nc`)
example_tables      training examples for figures: attention to them, kernels between them
attention_table     attention that was sampled, heads in matched order: matrices, and numbers
learned_kernels     kernel and alignment of draws whose attention is sampled, too
attention_found     numbers of learned heads with their errors
draws_table         draws in the layout of ArviZ (`draws.nc`)
validation          scores on the validation split, for theory and draws
own_temperature     infinite width at the temperature that is best for it
leave_one_out       leave-one-out cross-validation of theory and draws
compared            what is compared, as values, and the lines of the comparison table
comparison          the compared quantities, and theory against draws (`comparison.json`)
predictive_quality  log predictive density and calibration of theory, GP limit and draws
models              models of several runs side by side
results             results of one run, held in memory or read from its directory
sweeps              the Dataset of a sweep, and tables and verdicts that derive from it
sweep_dataset       the Dataset of a sweep gathered from its points
"""
