"""The public names of `theory`, imported when they are first used."""

import subprocess
import sys

import pytest

from tests import ROOT
from tests.commands import printed_without_jax
from tests.problems import ARCHITECTURES


def run(program):
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_the_sizes_of_a_network_need_no_jax():
    printed_without_jax(
        "from theory import Architecture\n"
        "assert Architecture.uniform((2,), 10, 3).weight_count == 240\n"
    )


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_bartlett_factors_have_as_many_numbers_as_the_order_parameters(name):
    """Unless a layer is narrower than its order parameter, which then has fewer."""
    arch = ARCHITECTURES[name]
    received = arch.bartlett_coordinate_count
    if name == "narrow":
        assert received < arch.coordinate_count
    else:
        assert received == arch.coordinate_count
