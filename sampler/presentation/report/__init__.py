"""One page that tells a run or a sweep: self-contained, without script, from stored results only.

| file | concept |
|---|---|
| `write.py` | `report.html` from a directory |
| `page.py` | the page around the sections: head, contents, landmarks |
| `style.css` | how it looks on a screen, in the dark, on a phone and on paper |
| `elements.py` | HTML elements, tables and figures, everything escaped |
| `numbers.py` | numbers as text, to the digits that their errors leave |
| `differences.py` | how far theory and samples are apart, quantity by quantity |
| `verdict.py` | what a run says, in plain words |
| `accuracy_table.py` | accuracies with their errors |
| `comparison_tables.py` | theory against samples in numbers |
| `quality_tables.py` | quality of the predictive distribution, where it was stored |
| `evidence_table.py` | the log evidence, where it is known |
| `hyper_parameter_table.py` | temperature and variances that were sampled |
| `diagnostics_table.py` | diagnostics against their limits |
| `sweep_points.py` | the points of a sweep, as the page reads them |
| `sweep_verdict.py` | what a sweep says: its points, and the trend with width |
| `captions.py` | caption and text alternative of every figure |
| `provenance.py` | recipe, versions, seeds, timings, files |
| `citation.py` | what to cite |
"""
