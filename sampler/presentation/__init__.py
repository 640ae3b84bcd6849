"""Presentation: what people see, from results alone.

status   where runs stand, as `status` and `list` say it
summary  what the terminal and notebooks show: theory, diagnostics and the comparison table
figures  the figures of runs and sweeps
report   one page about a run or a sweep
tables   the tables of runs and sweeps, each built once
draws_tables
         tables of how draws were made, and of whether they can be trusted
attention_tables
         tables of attention that was sampled
models   models of several runs, as a table and a figure
table    the one table of this program, and its forms: terminal, page, pandas
telling  texts of a command, and what may fail beside results without costing them
style    what all figures share: their entry in the table, colours, fonts, writing to disk
"""
