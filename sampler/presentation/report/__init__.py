"""One page about a run or a sweep: self-contained, without script, from stored results only.

write       `report.html` from a directory, by the pages in `templates`
elements    numbers to the digits that their errors leave, tables, pictures
verdict     what a run says, in plain words
tables      its tables
sweep       what a sweep says, and its points
provenance  recipe, versions, seeds, timings, files, and what to cite
"""
