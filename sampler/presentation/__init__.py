"""Figures drawn from stored results.

| file | concept |
|---|---|
| `figures.py` | which figures a run directory and a sweep directory get |
| `comparison_table.py` | theory against draws as an object: text, table, labelled arrays |
| `stored_run.py` | the stored tables of one run, as the figures read them |
| `stored_sweep.py` | the table of a sweep and the runs behind its rows |
| `order_parameter_matrix.py` | order parameters as coloured matrices: theory, samples, difference |
| `predictor_scatter.py` | mean and variance of the predictor: samples against theory |
| `sampled_predictor.py` | the predictor of the samples, where there is no theory |
| `reliability.py` | predicted probabilities against the share of labels that came true |
| `alignment.py` | kernel–task alignment: theory against Gaussian process |
| `accuracy.py` | accuracy of one run, and accuracy against width |
| `form_comparison.py` | forms of attention: redundancy and accuracy, means over seeds |
| `support_vectors.py` | attention as a regressor: labels, tube, support vectors, values |
| `rank_collapse.py` | distance of the tokens from their mean against depth, mask by mask |
| `rank_plot.py` | ranks of the draws, chain by chain |
| `function_space.py` | the slowest numbers of function space, draw by draw |
| `ess_evolution.py` | effective sample size against draws |
| `autocorrelation.py` | autocorrelation against lag |
| `energy.py` | energies of the sampler: marginal and by transition |
| `report/` | one page that tells a run or a sweep |
| `finite_size.py` | theory and exact posterior against width |
| `temperature_choice.py` | scores against temperature, and what was chosen |
| `pruning.py` | accuracy while heads are removed |
| `summary.py` | what a run prints |
| `style.py` | colours, fonts, and writing a figure to disk |
"""
