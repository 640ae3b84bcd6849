"""From a solved theory and from draws to labelled tables and their comparison.

labels              dimensions, coordinates and long names of stored quantities
estimate            means and variances with Monte Carlo errors, rank correlation, power laws
theory_table        what the theory predicts (`theory.nc`)
draws_table         draws in the layout of ArviZ (`draws.nc`)
validation          scores on the validation split, for theory and draws
comparison          theory against draws (`comparison.json`)
predictive_quality  log predictive density and calibration of theory, GP limit and draws
pruning_table       scores against the drop when heads are removed
"""
