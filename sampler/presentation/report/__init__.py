"""One page about a run or a sweep: self-contained, without script.

write  `report.html` from results, by the pages in `templates`, with provenance and what to cite
"""
