"""The package from Python, by the same functions as the command line.

keywords    signatures written out, and errors in terms of Python
tasks       data: one function for each kind of task
results     a network; solve, sample, compare; the problem for a theory of one's own
runs        recipes: run, sweep, check, and their stored results
attention   what sampled attention attends to
posterior   the posterior itself, as a NumPyro model or as a function of one vector
models      trained models whose heads are removed, and the theory of them
heads       which heads of a trained model matter, each alone
removable   which of them can go together
estimators  classifier and regressor in the manner of scikit-learn
"""
