"""Time the expensive steps: `make benchmark`, or `python -m tests.benchmarks --help`.

competitors     the table of posteriors that are timed against each other: add a row here
token_by_token  the same posterior as anybody would first write it, for comparison
pooled_attention  Attention-SH against softmax: multiply-adds and milliseconds
gradient_cost   milliseconds per gradient of the log posterior
outsiders       this program against what a user would otherwise write or install
outsider_samplers  those samplers, and the posteriors that they see
effective_draws seconds and gradients per effective draw of the order parameter

Timings are printed, never asserted. RESULTS.md keeps the latest with the machine they are from.
"""
