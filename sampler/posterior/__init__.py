"""Posteriors to sample, one space each, and quantities of their draws.

space                  a space is its NumPyro model, and all that follows from it
data                   fixed paths, sampled paths, or tokens: inputs and labels of the examples
given                  the network given a position, and its predictions of every example
labels                 distributions of the labels: of all given a position, and of rows that
                       represent them
weights                all weights of a network, as a NumPyro model
hidden_weights         all but the readout, of any network
order_parameters       all weights integrated out: Bartlett coordinates, exact at any width, or, at
                       infinite width, sampled attention alone
mode                   the mode of order parameters, and the Hessian there
spaces                 the table of spaces, and the space of a network with its data
initial_distribution   every mode that descents reach, and a distribution to begin in at all of them
densities              densities of many points, and points at which they are not numbers
importance_sampling    independent weighted draws of order parameters, and the log evidence
importance_weights     what weights are worth, their tail, and resampling by them
t_mixture              mixtures of t distributions, and their fit to weighted points
weights_from_order_parameters  exact draws of all weights from draws of order parameters
exported               the posterior for other programs: a NumPyro model, a function of a vector
"""
