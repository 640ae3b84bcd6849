"""What cannot be done is refused before JAX is there and before anything is written, by both faces.

All commands and calls are made in one process, whose first import of JAX would be seen.
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass

import numpy as np
import pytest

from sampler.errors import ExitCode
from tests import ROOT
from tests.commands import SMALLEST, environment

# Makes every command and call, and prints what is seen of each as a line of JSON.
CHILD = """
import contextlib, io, json, sys
from pathlib import Path
import sampler
from sampler.cli import main
from sampler.settings.toml import parse_over, parse_override

def listing():
    return sorted(str(path) for path in Path().rglob("*"))

def call(case):
    function = getattr(sampler, case["command"])
    changes = dict(map(parse_override, case["settings"]))
    over = [dict(map(parse_over, case["over"]))] if case["over"] else []
    function(sampler.Recipe.load(case["recipe"], changes), *over)

def words_of(case):
    pairs = [("--set", each) for each in case["settings"]]
    pairs += [("--over", each) for each in case["over"]]
    return [case["command"], case["recipe"], *(word for pair in pairs for word in pair)]

for case in json.load(open("cases.json")):
    before, seen = listing(), {"code": None, "errors": "", "call": ["", "", "", ""]}
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        seen["code"] = main(words_of(case))
        try:
            call(case)
        except sampler.InputError as problem:
            seen["call"] = [str(problem), problem.field, repr(problem.value), problem.remedy]
    seen |= {"errors": errors.getvalue(), "written": sorted({*listing()} - {*before})}
    print(json.dumps(seen | {"jax": "jax" in sys.modules}), flush=True)
"""


@dataclass(frozen=True)
class Case:
    """A recipe, what is changed in it, and the field and the value that must be named.

    name      of the recipe, or of an .npz file, whose recipe then has this name too
    settings  KEY=VALUE of --set
    over      KEY=V1,V2 of --over
    shown     beginning of the value in the message
    """

    name: str
    settings: tuple[str, ...]
    field: str
    shown: str
    command: str = "run"
    over: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.name, self.command, *self.settings, *self.over])[:60]


def tiny(setting: str, field: str, shown: str, **further) -> Case:
    return Case("tiny", (setting,), field, shown, **further)


def swept(over: str, field: str, shown: str, *settings: str) -> Case:
    return Case("tiny", settings, field, shown, command="sweep", over=(over,))


# Of a grid Python solves one point alone.
GRID_TO_SOLVE = tiny(
    "sweep.network.norm=['none', 'after']", "network.norm", "'after'", command="solve"
)
FORM = "attention.form={kind='softmax', scal=2.0}"
LARGE = f"{2 * 10**13}"
CASES = [
    # Misspelt: in a section, its name, in tables in tables, on the command line.
    Case("misspelt", (), "sampler.chians", "4"),
    Case("misspelt_table", (), "network.mlp.widht", "3"),
    tiny("network.widhts=10", "network.widhts", "10"),
    tiny("samplr.chains=3", "samplr", "{"),
    tiny("attention.learned.rnak=2", "attention.learned.rnak", "2"),
    tiny(FORM, "attention.form", "{"),
    swept("network.widhts=3,4", "network.widhts", "3"),
    swept("attention.learned.rnak=3,4", "attention.learned.rnak", "3"),
    tiny("temperature=1.0", "temperature", "1.0"),
    # Of another type, out of limits, unknown by name.
    tiny("network.widths=ten", "network.widths", "'ten'"),
    tiny("sampler.chains=2.5", "sampler.chains", "2.5"),
    tiny("posterior.temperature=-1", "posterior.temperature", "-1"),
    tiny("sampler.seed=4294967296", "sampler.seed", "4294967296"),
    tiny("task.kind=markov_chian", "task.kind", "'markov_chian'"),
    tiny("sampler.algorithm=gibbs", "sampler.algorithm", "'gibbs'"),
    tiny("sampler.space=wieghts", "sampler.space", "'wieghts'"),
    tiny("attention.heads=[['god']]", "attention.heads[0][0]", "'god'"),
    tiny("attention.form={kind='sofmax'}", "attention.form", "{'kind': 'sofmax'}"),
    tiny("network.variances=[1, 1, 1, nan]", "network.variances[3]", "nan"),
    tiny("network.readout=median", "network.readout", "'median'"),
    tiny("task.features=5", "task.features", "5"),
    tiny("posterior=1", "posterior", "1"),
    tiny("name=a/b", "name", "'a/b'"),
    tiny('task={kind="arrays", path="a\\u0000b"}', "task.path", r"'a\x00b'"),
    # What is no setting with a value.
    tiny("network.widths", "--set", "'network.widths'"),
    tiny("posterior.temperature=[0.1,", "--set posterior.temperature", "'[0.1,'"),
    tiny("network.widths=1\nname=2", "--set network.widths", ""),
    # Settings that do not go together, or without each other.
    tiny("network.mlp.activation=relu", "network.mlp.width", "(absent)"),
    tiny("task.kind=arrays", "task.path", "(absent)"),
    tiny("attention.reads=stream", "attention.reads", "'stream'"),
    tiny("network.heads=[[0, 0], [0]]", "network.heads", "[[0, 0], [0]]"),
    tiny("network.hypernetwork=[true]", "network.hypernetwork", "[True]"),
    tiny("theory.subnetworks=[[[0], [3]]]", "theory.subnetworks", "[[0], [3]]"),
    Case("conflict", (), "sampler.draws", "9"),
    Case("tiny", ("sampler.evidence=true", "sampler.space=weights"), "sampler.evidence", "True"),
    # Sweeps over what is no setting, and of a value that cannot be used.
    swept("name=a,b", "sweep", "'name'"),
    swept("network={widths=3},{widths=4}", "sweep", "'network'"),
    swept("network.widths=3,0", "network.widths", "0"),
    Case("tiny", (), "sweep", "10,000,000,000 points", command="sweep",
         over=("sampler.seed=0:100000", "task.seed=0:100000")),
    # Recipes that cannot be read, and data.
    Case("unended", (), "recipe", "'"),
    Case("no_text", (), "recipe", "'"),
    Case("absent", (), "recipe", "'"),
    Case("number", (), "task", "3"),
    Case("wide", ("attention.inverse_temperature=2.0",), "attention.heads", "(absent)"),
    Case("missing", (), "task.path", "'"),
    Case("missing", ("task.path=missing.h5",), "task.path", "'"),
    Case("shape", (), "labels_train", "(6"),
    Case("text", (), "labels_train", ""),
    Case("not_finite", (), "inputs_train[2, 1, 1]", "nan"),
    Case("no_attention", (), "attention_train_1", "(absent)"),
    # What only a plan shows: more than there are draws, or coordinates, or memory.
    Case("tiny", ("sampler.draws=20", "sampler.weight_draws=50"), "sampler.weight_draws", "50"),
    swept("sampler.weight_draws=2,50", "sampler.weight_draws", "50", "sampler.draws=20"),
    Case("wide", ("network.widths=100", "sampler.evidence=true", "sampler.space=order_parameters"),
         "sampler.evidence", "True"),
    tiny("network.norm=after", "network.norm", "'after'", command="solve"),
    GRID_TO_SOLVE,
    tiny(f"task.examples_train={LARGE}", "memory", ""),
    tiny("task.features=200000000", "memory", ""),
    tiny("sampler.draws=100000000000", "memory", ""),
    tiny("sampler.chains=1000000000", "memory", ""),
    swept("sampler.chains=4,1000000000", "memory", ""),
    swept(f"task.examples_train=4,{LARGE}", "memory", ""),
]  # fmt: skip

RECIPES = {
    "tiny": SMALLEST,
    "misspelt": f"{SMALLEST}[sampler]\nchians = 4\n",
    "misspelt_table": SMALLEST.replace("widths = 3", "widths = 3\nmlp = {widht = 3}"),
    "conflict": f'{SMALLEST}[sampler]\nuntil = "trusted"\ndraws = 9\n',
    "unended": "name = ",
    "number": 'name = "a"\ntask = 3',
}


def arrays(heads: int = 2) -> dict[str, np.ndarray]:
    """Five training and four test examples of three tokens."""
    rng = np.random.default_rng(0)
    made = {}
    for split, examples in (("train", 5), ("test", 4)):
        made[f"inputs_{split}"] = rng.standard_normal((examples, 3, 4))
        made[f"attention_{split}_1"] = rng.random((examples, heads, 3, 3))
    return made | {"labels_train": rng.standard_normal(5)}


def bad_arrays() -> dict[str, dict[str, np.ndarray]]:
    """Name of the file → arrays, each wrong in its way, the last by p(p + 1)/2 for 72 heads."""
    not_finite = arrays()["inputs_train"]
    not_finite[2, 1, 1] = np.nan
    return {
        "shape": arrays() | {"labels_train": np.ones(6)},
        "text": arrays() | {"labels_train": np.array(list("abcde"))},
        "not_finite": arrays() | {"inputs_train": not_finite},
        "no_attention": {key: v for key, v in arrays().items() if key != "attention_train_1"},
        "wide": arrays(heads=72),
    }


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> dict[Case, dict]:
    """What was seen of each case."""
    folder = tmp_path_factory.mktemp("refused")
    files = bad_arrays()
    for name, stored in files.items():
        np.savez(folder / f"{name}.npz", **stored)
    of_arrays = 'name = "a"\ntask = {{kind = "arrays", path = "{}.npz"}}\nnetwork.widths = 3\n'
    recipes = RECIPES | {name: of_arrays.format(name) for name in (*files, "missing")}
    for name, text in recipes.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    (folder / "no_text.toml").write_bytes(b"\xff\xfe")
    stored = [asdict(case) | {"recipe": f"{case.name}.toml"} for case in CASES]
    (folder / "cases.json").write_text(json.dumps(stored))
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=folder, env=environment(None) | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == len(CASES), done.stderr
    return dict(zip(CASES, map(json.loads, lines), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_command_is_refused_in_one_line_and_nothing_is_begun(case, seen):
    one = seen[case]
    assert one["written"] == []
    assert not one["jax"]
    assert one["code"] == ExitCode.BAD_INPUT
    (line,) = one["errors"].splitlines()
    start = f"attention-posterior: {case.field} = {case.shown}"
    assert line.startswith(start), line
    value, _, remedy = line.removeprefix("attention-posterior: ").partition(": ")
    assert value
    assert remedy


@pytest.mark.parametrize("case", [c for c in CASES if c is not GRID_TO_SOLVE], ids=str)
def test_the_same_is_refused_in_python_by_its_name(case, seen):
    text, field, value, remedy = seen[case]["call"]
    assert field == case.field
    assert text.startswith(f"{case.field} = {case.shown}")
    assert value
    assert remedy
