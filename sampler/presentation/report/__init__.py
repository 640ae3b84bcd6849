"""One page about a run or a sweep: self-contained, without script, from stored results only.

write       `report.html` from a directory
elements    HTML elements, and numbers to the digits that their errors leave
verdict     what a run says, in plain words
tables      its tables
sweep       what a sweep says, and its points
captions    caption and text alternative of every figure
provenance  recipe, versions, seeds, timings, files, and what to cite
"""
