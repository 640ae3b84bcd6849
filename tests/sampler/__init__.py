"""Tests of the sampler: network, chains, diagnostics, tables, comparison, commands."""
