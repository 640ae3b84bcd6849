"""Posteriors to sample, one space each, and what follows from their draws.

space                  what a sampler needs to know of a posterior
make_space             the space that a recipe names
weight_model, weight_space                    all network weights
token_space            all weights of a network outside the theory
upper_weight_model, upper_weight_space        V_0 integrated out, and drawn back at every draw
wishart_chain, order_parameter_model, order_parameter_space
                       all weights integrated out: exact at any width
mode                   mode and Hessian of the order parameters' density: start and scale of chains
weight_draws           exact draws of all weights from draws of order parameters
input_weights, orthonormal_rows, standard_normals    the steps of it
importance, importance_proposal, batched_density, resampling
                       independent draws of order parameters, and the log evidence
bridge                 the log evidence from chains
hessian_limit          in how many coordinates that Hessian is formed
hyper_parameters       temperature and prior variances as sites, where they have a prior
side_by_side           how many draws are worked on at once
"""
