"""Commands and Python of the how-to pages, executed page by page as a reader would, in a folder
whose recipes have the names of those in `runs/` and sizes of seconds."""

import os
import re
import shlex
import subprocess
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from sampler.errors import ExitCode
from sampler.recipes.settings import read_toml, toml_text
from tests import ROOT
from tests.commands import in_process, without_drawing
from tests.texts import PROGRAM, TEXTS, blocks

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SAMPLER = {"chains": 2, "warmup": 20, "draws": 20, "weight_draws": 4, "space": "order_parameters",
           "algorithm": "nuts", "max_tree_depth": 3}  # fmt: skip
MARKOV = {"examples_train": 6, "examples_test": 5, "tokens": 4, "features": 6}
# What replaces the sections of a recipe, so that a command takes seconds.
SMALLER = {
    "quickstart": {"task": MARKOV, "sampler": SAMPLER, "posterior": {"temperature": 0.5}},
    "smoke": {"task": MARKOV, "sampler": SAMPLER},
    "one_shot_train": {
        "training": {"steps": 20, "batch": 8, "validation_every": 10, "validation_examples": 40,
                     "evaluation_examples": 40, "widths": 8, "key_size": 4, "heads": [2, 2]},
    },
    "one_shot": {
        "task": {"examples_train": 8, "examples_test": 10, "examples_validation": 10},
        "sampler": {"chains": 2, "warmup": 10, "draws": 10, "at_widths": [10]},
        "sweep": {"network.widths": [10], "posterior.temperature": [0.5, 1.0]},
    },
}  # fmt: skip
# What cannot be done here, by the word that a block begins with.
ELSEWHERE = {
    "eval": "is for the shell that reads it",
    f"{PROGRAM} train runs/attention_variants_one_shot_train": "a training of minutes",
}
# Libraries that only extras have.
EXTRA = ("nutpie", "flowMC", "torch")
PAGES = [
    name
    for name in TEXTS
    # The build of the site executes the tutorials.
    if name not in ("README.md", "runs/README.md")
    and not name.startswith("docs/tutorials/")
    and any(kind in ("bash", "python") for kind, _ in blocks(name))
]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with small recipes in `runs`, where this process is."""
    (tmp_path / "runs").mkdir()
    for name, sections in SMALLER.items():
        settings = read_toml(ROOT / "runs" / f"{name}.toml")
        for section, values in sections.items():
            kept = {} if section == "sweep" else settings.get(section, {})
            settings[section] = {**kept, **values}
        (tmp_path / "runs" / f"{name}.toml").write_text(toml_text(settings), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    return tmp_path


# Those pages take half a minute of sampling or more.
LONG = {
    f"docs/howto/{name}.md"
    for name in (
        "sweeps", "own_sampler", "learned_attention", "heads_that_can_go", "interrupted",
        "outside_theory", "one_shot",
    )
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] * (n in LONG)) for n in PAGES]
)
def test_blocks_of_a_page_run_in_order(name, folder, without_annotation_checks):
    session = {"__name__": "shown"}
    for kind, block in blocks(name):
        if block.startswith(tuple(ELSEWHERE)) or missing_libraries(block):
            continue
        if kind == "python":
            # A function alone is the file that the next commands name.
            (folder / "mine.py").write_text(block, encoding="utf-8")
            exec(compile(block, name, "exec"), session)
            plt.close("all")
        elif kind == "bash":
            run_lines(block.replace("\\\n", " "))


def missing_libraries(block: str) -> list[str]:
    """Libraries of an extra that a block imports and that are not installed."""
    return [
        name
        for name in EXTRA
        if re.search(rf"^(?:import|from) {name}\b", block, re.MULTILINE) and find_spec(name) is None
    ]


def run_lines(block: str) -> None:
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]  # devices are settled when JAX is imported
        if not words:
            continue
        if words[0] == "sbatch":
            submit(words[1])
            continue
        assert words[0] == PROGRAM, line
        with without_drawing():
            code = in_process(*words[1:])
        assert code in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED), line


def submit(script: str) -> None:
    """The tasks of a job array, one after the other, as Slurm starts them."""
    text = Path(script).read_text(encoding="utf-8")
    first, last = map(int, re.search(r"--array=(\d+)-(\d+)", text).groups())
    for task in range(first, last + 1):
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True)
        assert done.returncode in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED), done.stderr
