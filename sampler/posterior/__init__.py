"""Posteriors to sample: one NumPyro model per space.

space         what a sampler needs to know of a posterior
weight_model  all network weights with Gaussian priors and the tempered likelihood
weight_space  the same as a space, with overlaps and predictors read off each draw
"""
