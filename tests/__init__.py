"""Tests: `theory/` and `sampler/` mirror the packages; what several of them share lies here."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests" / "fixtures"
SHARED = ROOT.parent / "shared"
