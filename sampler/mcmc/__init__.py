"""Sampling: knows densities, algorithms, chunks and draws, but no task and no file.

algorithm    what an algorithm is, and the table of those that there are; free of JAX
hamiltonian  NUTS and static HMC
split_hmc    HMC about a Gaussian whose motion is solved exactly, gradients in single precision
importance   independent draws of the order parameters
tempered     tempered sequential Monte Carlo as an algorithm, and its verdict; free of JAX
tempering    particles led from a law that can be drawn to the posterior
chunks       warm-up and draws of chains in chunks that can be stored and gone on from
draws        chunks gathered: kept whole, or as moments where they would not fit
kept         the limits of what is kept, and the forms other than all draws
stopping     whether they have made enough draws
diagnostics  can the draws be trusted, and why not
"""
