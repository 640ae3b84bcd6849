"""Sampling: spaces, algorithms, chains and draws, without tasks and files.

algorithm        interface and table of algorithms; free of JAX
chain_algorithm  algorithms that advance Markov chains; free of JAX until they draw
chains           warm-up and draws of chains in chunks that can be stored and resumed
observer         observables of their draws
chain_devices    devices that they are shared out over
hamiltonian      NUTS and HMC by NumPyro, settings and verdict of all Hamiltonian algorithms
split_hmc        HMC about a Gaussian whose motion is solved exactly
tempered         tempered sequential Monte Carlo as an algorithm, and its verdict; free of JAX
repetitions      its repetitions, one after the other, in resumable chunks
tempered_smc     the particles of one repetition, led from a distribution that can be drawn
collected_draws  chunks gathered: all small arrays, every k-th draw of large ones; free of JAX
space_checks     effect of rounding on a log density, and fixed elements of a draw
convergence      R-hat, effective sample sizes and Monte Carlo errors of many quantities at once
marginal_likelihood
                 the log evidence for chains: by importance, or by bridge sampling
diagnostics      can the draws be trusted, and why not
stopping         whether there are enough draws
"""
