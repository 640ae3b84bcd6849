"""Tests of `theory` and `sampler`; run with `pytest` from the root of the repository."""
