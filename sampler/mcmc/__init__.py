"""Sampling: knows spaces, algorithms, chains and draws, but no task and no file.

algorithm         what an algorithm is, and the table of those that there are; free of JAX
hamiltonian       NUTS and HMC by NumPyro, settings and verdict of all Hamiltonian algorithms
split_hmc         HMC about a Gaussian whose motion is solved exactly
tempered          tempered sequential Monte Carlo as an algorithm, and its verdict; free of JAX
tempered_smc      particles led from a law that can be drawn to the posterior
repetitions       repetitions of particles: how they are stored, what draws they are
chains            warm-up and draws of chains in chunks that can be stored and resumed
collected_draws   chunks gathered: kept whole, or every k-th where they would not fit
kept              the limits of what is kept, and the forms other than all draws
convergence       R-hat, effective sample sizes and Monte Carlo errors of many quantities at once
evidence          the log evidence beside chains: by importance, or by bridge sampling
bridge            the log evidence from the draws of chains
rounding          what rounding does to a log density
stopping          whether chains have made enough draws
diagnostics       can the draws be trusted, and why not
"""
