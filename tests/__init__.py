"""Tests. What lies where:

`theory/` and `sampler/` mirror the packages: a test file lies in the folder of what it tests.
`runs/` has runs that are interrupted, extended and moved, `refusals/` a table of each face that
refuses, `processes/` what takes a process: kills, signals, streams, clusters.
`test_*.py` here are about the whole: order of imports, README, the files in `runs/`.
`told/` compares what runs tell, in every form, with their stored numbers.
Other files here are what several tests share: problems, recipes, commands, pages, definitions by
loops and quadrature (`dense.py`), and assertions whose tolerance follows from an error.
`conftest.py` has the fixtures; `reference/`, `fixtures/` hold stored arrays.
Marks: `slow` takes more than about two seconds (`make test-slow`), `nightly` takes minutes
(`make test-nightly`); everything else is `make test`.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests" / "fixtures"
