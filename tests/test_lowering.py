"""Every compiled function can be handed to the compilers of accelerators, of which none is here.

The programs are those of the packages, whatever they are; their arguments are recorded in small
runs that lay their work out as on an accelerator. A program that no run meets fails its test.
"""

import json
import re

import pytest

from tests import FIXTURES
from tests.lowering import LIST, Recorded, all_programs, record_small_runs

# Arrays are shapes while a program is lowered, which annotations do not allow.
pytestmark = pytest.mark.usefixtures("without_annotation_checks")
# Written by `python -m tests.custom_calls` from what JAX's own package for CUDA registers.
REGISTERED = json.loads((FIXTURES / "cuda_custom_calls.json").read_text(encoding="utf-8"))
PLATFORMS = ("cuda", "rocm", "tpu")
PROGRAMS = all_programs()


@pytest.fixture(scope="module")
def calls(tmp_path_factory) -> Recorded:
    """What all small runs called, laid out as on an accelerator."""
    return record_small_runs(tmp_path_factory.mktemp("lowered"))


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_lowered_for_every_platform(name, calls):
    one = PROGRAMS[name]
    found = [*calls.calls.get(one, {}).values()]
    if not found and one in calls.shapes:
        return  # its shapes alone are asked for
    assert found, f"{name}: no small run meets it; add one that does to RUNS"
    single = [call.in_single_precision() for call in found if "sampler.mcmc" in name]
    for call in (*found, *single):
        for platform in PLATFORMS:
            names = call.lowered(platform).custom_calls
            assert not [one for one in names if "callback" in one], "no call of the host in between"
            if platform == "cuda":
                assert names <= set(REGISTERED["names"]), f"no kernel on a GPU: {names}"


def test_programs_are_found_by_themselves():
    assert len(PROGRAMS) == len(set(PROGRAMS.values()))


def test_the_list_names_every_program():
    """A new one is in it after `python -m tests.lowering`, which lowers all of them."""
    listed = re.findall(r"^\| `([\w.]+)` \|", LIST.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(PROGRAMS)
