"""Presentation of results to people.

table           a table as a value: text of a terminal, HTML
templates       those of pages and tables
views           the tables of a run, each built once from the frame of its comparison
samples_tables  tables of the samples: diagnostics, cost, attention
several_runs    tables of a sweep, and models side by side
status_text     the progress of runs, as `status` and `list` print it
terminal        lines of a terminal
summary         what commands print of a run, in the order in which a physicist asks
notebook        what Python shows of a comparison
style           common to all figures: their entry in the table, colours, fonts, writing to disk
figures         the figures of runs and sweeps
report          one page about a run or a sweep, by the templates in `pages`
"""
