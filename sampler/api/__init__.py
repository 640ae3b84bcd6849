"""The package from Python, by the same functions as the command line.

keywords    signatures made from settings, and errors in terms of a call
tasks       data: one function for each kind of task
model       a network; solve, sample, compare; the problem for a theory of one's own
runs        recipes: run, sweep, check, and their stored results
posterior   the posterior itself, as a NumPyro model or as a function of one vector; its attention
trained_model  a trained model on examples, whose heads are removed
heads       which heads of a trained model matter, and which can go
estimators  classifier and regressor in the manner of scikit-learn
"""

from sampler.runtime import silence_compiler, use_one_blas_thread

# Before anything numerical is imported, which reads this.
use_one_blas_thread()
silence_compiler()
