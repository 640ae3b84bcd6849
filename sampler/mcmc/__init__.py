"""Markov chains: knows algorithms, chunks and draws, but no task and no file.

algorithm    how chains are run, and the kernel that advances them
chunks       warm-up and draws in chunks that can be stored and gone on from
draws        chunks gathered: kept whole, or as moments where they would not fit
diagnostics  can the draws be trusted, and why not
"""
