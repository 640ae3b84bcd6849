"""From a solved theory and from draws to labelled tables and their comparison.

labels        names of axes and coordinates
long_names    what variables are, in words, with their units
theory_table  what the theory predicts (`theory.nc`)
trained_columns  what gradient descent made of the same network, beside the theory
validation    scores on the validation split, for theory and draws
draws_table   draws in the layout of ArviZ (`draws.nc`)
estimate      means and variances with Monte Carlo errors
calibration   reliability of probabilities, expected calibration error
predictive_quality  log predictive density and calibration of theory, GP limit and draws
comparison    theory against draws (`comparison.json`)
rank_correlation  Spearman correlation with its bootstrap interval
pruning_table     scores against the drop when heads are removed
structure     head scores, and cosines between order parameters, of the draws
selection     the point of a sweep with the best score on the validation split
evidence      log evidence of theory, GP limit and draws
hyper_parameters  what was sampled of temperature and prior variances
finite_size   the power law of theory − exact in the width
"""
