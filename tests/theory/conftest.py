"""Inside `theory`, arrays of different rank are never broadcast against each other."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _no_rank_promotion():
    with jax.numpy_rank_promotion("raise"):
        yield
