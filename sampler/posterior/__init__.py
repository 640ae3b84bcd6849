"""Posteriors to sample, one space each, and what follows from their draws.

density           what an algorithm sees of a posterior; the temperature as a site
labels            laws of the labels: example by example, of all given U_1, of new ones
order_parameters  Bartlett coordinates: all weights integrated out, exact at any width; their mode
weights           all network weights
hidden_weights    all but the readout, of any network
pointwise         what a draw says of every training label
spaces            the spaces of a network of the theory, and what is read off each of their draws
learned_attention the same with attention that is sampled, too
prior             draws without data
modes             every mode that descents find, and a law to begin in at all of them
importance        independent draws of order parameters, and the log evidence
bridge            the log evidence from chains
weight_draws      exact draws of all weights from draws of order parameters
numpyro_model     the posterior as NumPyro models, for whatever NumPyro does with a model
flat_density      the posterior as one function of a flat vector, for samplers of other libraries
"""
