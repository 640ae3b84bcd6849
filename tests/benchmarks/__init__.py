"""Timings, which are printed and never asserted; RESULTS.md keeps the latest, with their machine.

own_samplers  this program and samplers of other libraries on one posterior
latency       seconds of commands, by what they go to
gpu           what an accelerator gives, and whether its numbers are right: `make gpu`
"""
