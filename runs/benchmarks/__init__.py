"""Timings, which are printed and never asserted; RESULTS.md keeps the latest, with their machine.

race     effective draws for a second of processor, beside samplers of other libraries
latency  seconds of commands, by what they go to
gpu      NUTS in all weights and the collapsed sampler, on an accelerator
"""
