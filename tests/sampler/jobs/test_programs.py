"""How much is compiled: programs of a whole run, and what a further point of a sweep adds."""

import json
import subprocess
import sys

import pytest

from tests import ROOT

# The programs of a run of the order parameters, and those that another width needs besides.
OF_A_RUN, OF_A_FURTHER_WIDTH = 35, 1
COUNTING = """
import json, sys
import jax.monitoring
from sampler.cli import main
from sampler.jobs import sweep

compiled, traced, before = [], [], []

def listen(event, seconds, **about):
    kind = event.rpartition("/")[2]
    if kind == "backend_compile_duration":
        compiled.append(about["fun_name"])
    if kind == "jaxpr_trace_duration":
        traced.append(about["fun_name"])

def work(job, of_job=sweep.work):
    before.append(len(compiled))
    return of_job(job)

jax.monitoring.register_event_duration_secs_listener(listen)
sweep.work = work
code = main(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    json.dump({"code": code, "compiled": compiled, "traced": traced, "before": before}, file)
"""


@pytest.mark.heavy
def test_a_run_compiles_few_programs_and_a_further_width_next_to_none(tmp_path):
    """They may become fewer; where they become more, what is small and done once is to be NumPy."""
    words = [
        "run", ROOT / "runs" / "smoke.toml", "--no-figures", "--out", tmp_path / "run",
        "--set", 'sweep={"network.widths"=[6,8]}',
    ]  # fmt: skip
    command = [sys.executable, "-c", COUNTING, tmp_path / "found.json", *words]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["code"] in (0, 3)
    first, second = found["before"]
    assert first == 0
    of_a_run = found["compiled"][:second]
    assert len(of_a_run) <= OF_A_RUN, of_a_run
    further = found["compiled"][second:]
    assert len(further) <= OF_A_FURTHER_WIDTH, further
    # A kept step of the chains is the largest of all: its transitions are traced once.
    for name in ("_kept_step", "_completed"):
        assert found["traced"].count(name) == 1, name
