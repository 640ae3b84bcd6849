"""Tests of the theory that need no sampling."""
