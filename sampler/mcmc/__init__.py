"""Markov chains: knows kernels, chunks and draws, but no task and no file.

settings     how chains are run
kernel       the NumPyro kernel of a job
sharing      chains shared out over devices
chunks       warm-up and draws in chunks, each handed to a callback
snapshot     the state of chains as arrays, to go on from
draws        chunks gathered: kept whole, or as moments where they would not fit
diagnostics  can the draws be trusted, and why not
"""
