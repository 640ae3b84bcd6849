"""The package from Python, by the same functions as the command line.

keywords    signatures made from settings, and errors in terms of a call
tasks       data: one function for each kind of task
model       a network; solve, sample, compare; the problem for a theory of one's own
runs        recipes: run, sweep, check, and their stored results
posterior   the posterior itself, as a NumPyro model or as a function of one vector; its attention
trained_model  a trained model with gates on its heads, and the theory of its attention
heads       which heads of a trained model matter, each alone, and which can go together
estimators  classifier and regressor in the manner of scikit-learn
"""
