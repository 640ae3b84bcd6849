"""Presentation: what people see, from results alone.

status   where runs stand, as `status` and `list` say it
terminal what commands print of a run, in the order in which a physicist asks
notebook what Python shows of a comparison
figures  the figures of runs and sweeps
report   one page about a run or a sweep
tables   the tables of a run, each built once
sweep_tables
         the tables of a sweep
draws_tables
         tables of how draws were made, and of whether they can be trusted
attention_tables
         tables of attention that was sampled
models   models of several runs, as a table and a figure
table    the one table of this program, and its forms: terminal (by rich), page, pandas
telling  texts of a command, and what may fail beside results without costing them
style    what all figures share: their entry in the table, colours, fonts, writing to disk
"""
