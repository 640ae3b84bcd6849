"""The lines of Python that README shows are executed."""

import re

import jax
import pytest

from tests import ROOT

SHOWN = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
)


@pytest.fixture
def precision_as_before():
    """What is shown sets the precision of the whole process."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")
def test_lines_from_python(precision_as_before, without_annotation_checks):
    """As shown, but for sizes: those lines would take a minute."""
    smaller = "\n".join(SHOWN)
    for text, small in (
        ("num_warmup=500, num_samples=500", "num_warmup=20, num_samples=20, progress_bar=False"),
        ("heads=", "tokens=4, examples_train=6, examples_test=5, features=6, heads="),
        ("widths=10, temperature=0.01", "widths=3, temperature=0.5"),
        ("draws=1000", "draws=20, warmup=20, space='weights', algorithm='hmc', leapfrog_steps=3"),
    ):
        assert text in smaller
        smaller = smaller.replace(text, small)
    names: dict = {}
    exec(compile(smaller, "README.md", "exec"), names)
    assert names["draws"]["posterior"].sizes["draw"] == 20
    assert names["comparison"].diagnostics.chains > 1
