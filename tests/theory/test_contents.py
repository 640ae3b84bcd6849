"""The public names of `theory`, imported when they are first used."""

import subprocess
import sys

import pytest

import theory
from tests import ROOT
from tests.commands import printed_without_jax
from tests.problems import ARCHITECTURES
from theory.architecture import bartlett_coordinate_count


def run(program):
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_the_sizes_of_a_network_need_no_jax():
    printed_without_jax(
        "from theory import Architecture\n"
        "from theory.architecture import weight_count\n"
        "count = Architecture.uniform((2,), 10, 3).weight_count\n"
        "assert count == weight_count((2,), (10, 10), 3, 1) == 240\n"
    )


@pytest.mark.parametrize("name", ["action", "path_kernels"])
def test_a_function_named_like_its_module_stays_a_function(name):
    run(
        f"import importlib, theory; module = importlib.import_module('theory.{name}');"
        f"assert theory.{name} is module.{name}; from theory import {name};"
        f"assert {name} is module.{name}"
    )


def test_every_name_is_that_of_its_module():
    for module, names in theory.CONTENTS.items():
        for name in names.split():
            assert getattr(theory, name).__module__ == f"theory.{module}", name
    assert set(theory.__all__) <= set(dir(theory))


def test_another_name_is_refused():
    with pytest.raises(AttributeError, match=r"'theory' has no attribute 'temperature'"):
        _ = theory.temperature


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_bartlett_factors_have_as_many_numbers_as_the_order_parameters(name):
    """Unless a layer is narrower than its order parameter, which then has fewer."""
    arch = ARCHITECTURES[name]
    received = bartlett_coordinate_count(arch.heads, arch.widths, arch.outputs)
    if name == "narrow":
        assert received < arch.coordinate_count
    else:
        assert received == arch.coordinate_count
