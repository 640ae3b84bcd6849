"""The package from Python, by the same functions as the command line.

recipes     what functions take: a recipe or its file; its data, made once
model       solve, sample, compare; the problem for a theory of one's own
runs        run, sweep, check, and stored results
posterior   the posterior itself, as a NumPyro model or as a function of one vector; its attention
trained_model  a trained model on examples, whose heads are removed
heads       which heads of a trained model matter, and which can go
estimators  classifier and regressor in the manner of scikit-learn
"""

from sampler.runtime import silence_compiler, use_one_blas_thread

# Before anything numerical is imported, which reads this.
use_one_blas_thread()
silence_compiler()
