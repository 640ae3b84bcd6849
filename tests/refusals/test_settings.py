"""Settings that cannot be used: one line, before JAX is there and before anything is written.

The same from the command line, from a file in Python, and from sections in Python. All commands and
calls are made in one process, whose first import of JAX would be seen.
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
import contextlib, io, json, pickle, sys, tomllib
from pathlib import Path
import sampler
from sampler.cli import main
from sampler.settings.toml import parse_over, parse_override

def listing():
    return sorted(str(path) for path in Path().rglob("*"))

def refusal(call):
    try:
        call()
    except sampler.InputError as problem:
        # It is pickled by Dask, with what it holds.
        assert str(pickle.loads(pickle.dumps(problem))) == str(problem)
        context = repr(problem.__context__)
        return [str(problem), problem.field, repr(problem.value), problem.remedy], context
    return None, "None"

def of_file(case):
    changes = dict(map(parse_override, case["settings"]))
    over = [dict(map(parse_over, case["over"]))] if case["over"] else []
    recipe = sampler.Recipe.load(case["recipe"], changes)
    getattr(sampler, case["command"])(recipe, *over)

def sections(case):
    tables = tomllib.loads(Path(case["recipe"]).read_text(encoding="utf-8"))
    for key, value in map(parse_override, case["settings"]):
        *outer, last = key.split(".")
        table = tables
        for name in outer:
            table = table.setdefault(name, {})
        table[last] = value
    return tables

def words_of(case):
    pairs = [("--set", each) for each in case["settings"]]
    pairs += [("--over", each) for each in case["over"]]
    words = [word for pair in pairs for word in pair] + case["words"]
    return [case["command"], case["recipe"], "--out", "out", *words]

for case in json.load(open("cases.json")):
    before, errors = listing(), io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        seen = {"code": main(words_of(case)), "errors": errors.getvalue()}
        if not case["words"]:
            seen["file"], _ = refusal(lambda: of_file(case))
        if case["tables"]:
            tables = sections(case)
            seen["tables"], seen["context"] = refusal(lambda: sampler.Recipe(**tables))
    seen["written"] = sorted({*listing()} - {*before})
    print(json.dumps(seen | {"jax": "jax" in sys.modules}), flush=True)
"""


@dataclass(frozen=True)
class Case:
    """A recipe, what is changed in it, and what the message begins with.

    start     setting and beginning of its value
    settings  KEY=VALUE of --set
    recipe    its name, or that of an .npz file, whose recipe then has this name too
    over      KEY=V1,V2 of --over
    words     further ones of the command line
    remedy    what is named as well
    tables    whether sections in Python are refused with the same words
    """

    start: str
    settings: tuple[str, ...]
    recipe: str = "tiny"
    command: str = "run"
    over: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    remedy: str = ""
    tables: bool = False

    def __str__(self) -> str:
        return " ".join([self.recipe, self.command, *self.settings, *self.over, *self.words])[:70]


def refused(start: str, *settings: str, **further) -> Case:
    return Case(start, settings, **further)


def section(start: str, *settings: str, remedy: str = "") -> Case:
    return Case(start, settings, remedy=remedy, tables=True)


def swept(start: str, over: str, *settings: str, words: tuple[str, ...] = ()) -> Case:
    return Case(start, settings, command="sweep", over=(over,) if over else (), words=words)


# Of a grid Python solves one point alone.
GRID_TO_SOLVE = refused(
    "network.norm = 'after'", "sweep.network.norm=['none', 'after']", command="solve"
)
NO_WEIGHTS = "sampler.weight_draws=0"
CASES = [
    # Misspelt: in a section, its name, in tables in tables, on the command line.
    refused("sampler.chians = 4", recipe="misspelt", tables=True, remedy="sampler.chains"),
    section("samplr = {", "samplr.chains=3", remedy="sampler"),
    section("network.temperature = 1", "network.temperature=1", remedy="posterior.temperature"),
    section("attention.learned.rnak = 2", "attention.learned.rnak=2", remedy="learned.rank"),
    swept("network.widhts = 3", "network.widhts=3,4"),
    # Of another type, out of limits, unknown by name.
    section("network.widths = 'ten'", "network.widths=ten"),
    section("posterior.temperature = -1", "posterior.temperature=-1"),
    section("network.variances[3] = nan", "network.variances=[1, 1, 1, nan]"),
    section("task.kind = 'markov_chian'", "task.kind=markov_chian"),
    section("sampler.algorithm = 'gibbs'", "sampler.algorithm=gibbs"),
    section("sampler.space = 'wieghts'", "sampler.space=wieghts"),
    section("attention.heads[0][0] = 'god'", "attention.heads=[['god']]"),
    section("attention.form = {'kind': 'sofmax'}", "attention.form={kind='sofmax'}"),
    section("task.features = 5", "task.features=5"),
    section("name = 'a/b'", "name=a/b"),
    refused(r"task.path = 'a\x00b'", 'task={kind="arrays", path="a\\u0000b"}'),
    # What is no setting with a value, or no grid.
    refused("--set = 'network.widths'", "network.widths"),
    refused("--set posterior.temperature = '[0.1,'", "posterior.temperature=[0.1,"),
    swept("--over", "network.widths"),
    swept("--over network.widths", "network.widths=1,,2"),
    swept("--over sampler.seed", "sampler.seed=0:10000000000"),
    # Settings that do not go together, or without each other.
    section("network.mlp.width = (absent)", "network.mlp.activation=relu"),
    refused("task.path = (absent)", "task.kind=arrays"),
    refused("network.widths = (absent)", recipe="no_widths", tables=True),
    section("attention.reads = 'stream'", "attention.reads=stream"),
    section("attention.lag = 3", "attention.lag=3"),
    section("attention.learned.rank = 2", "attention.learned.rank=2"),
    section("network.heads = [[0, 0], [0]]", "network.heads=[[0, 0], [0]]"),
    section("network.hypernetwork = [True]", "network.hypernetwork=[true]"),
    refused("theory.subnetworks = [[0], [3]]", "theory.subnetworks=[[[0], [3]]]"),
    section("sampler.draws = 9", "sampler.until=trusted", "sampler.draws=9"),
    section("sampler.chains = 1", "sampler.until=trusted", "sampler.chains=1"),
    section("sampler.warmup = 2", "sampler.algorithm=tempered", "sampler.warmup=2"),
    section("sampler.evidence = True", "sampler.evidence=true", "sampler.space=weights"),
    section("network.widths = 'infinite'", "network.widths=infinite", "network.norm=after",
            remedy="network.norm"),
    section("sampler.points = 'selected'", "sampler.points=selected", "network.residual=true",
            remedy="network.residual"),
    # Networks outside the theory have no order parameters, and nothing to be solved.
    *(refused("network.values", "network.values=relu", f"network.hypernetwork={pairs}",
              command="solve") for pairs in ("true", "[true, false]", "[false, true]")),
    GRID_TO_SOLVE,
    refused("sampler.space", "network.residual=true", "sampler.space=order_parameters"),
    refused("sampler.space", "network.norm=after", "sampler.evidence=true"),
    refused("network.widths", "network.residual=true", "network.widths=[3, 2, 3]"),
    # Single precision is for weights.
    refused("sampler.precision", "sampler.precision=float32", "sampler.space=order_parameters"),
    refused("sampler.precision", "sampler.precision=float32", "network.widths=infinite",
            NO_WEIGHTS, recipe="learned"),
    # Attention that is sampled.
    *(refused(start, *settings, recipe="learned", command=command)
      for start, command, *settings in (
          ("attention.reads", "solve", "attention.reads=stream", NO_WEIGHTS),
          ("sampler.space", "run", "network.values=relu", "sampler.space=order_parameters",
           NO_WEIGHTS),
          ("network.widths", "run", "attention.reads=stream", "network.widths=infinite",
           NO_WEIGHTS),
          ("attention.learned.form", "run", "attention.reads=stream", "sampler.space=weights",
           "attention.learned.form=positions", NO_WEIGHTS),
          ("sampler.evidence", "run", "sampler.evidence=true"),
          ("attention.learned.rank", "run", "attention.learned.rank=2"),
          ("sampler.space", "run", "sampler.space=attention", NO_WEIGHTS),
          ("sampler.weight_draws", "run", "network.widths=infinite"),
          ("attention.heads (train split)", "run", "task.examples_train=900000"))),
    # Particles, which are no chains.
    refused("sampler.draws", "sampler.draws=100", recipe="tempered"),
    refused("sampler.repetitions", "sampler.repetitions=3", recipe="tempered"),
    # Sweeps over what is no setting, of a value that cannot be used, and not as asked for.
    swept("sweep = 'name'", "name=a,b"),
    swept("sweep = 'network'", "network={widths=3},{widths=4}"),
    swept("network.widths = 0", "network.widths=3,0"),
    Case("sweep = 10,000,000,000 points", (), command="sweep",
         over=("sampler.seed=0:100000", "task.seed=0:100000")),
    swept("--over", "", words=("--no-figures",)),
    swept("--workers", "network.widths=1,2", words=("--workers", "0")),
    swept("--point", "network.widths=1,2", words=("--point", "2")),
    swept("attention-posterior sweep: argument --slurm", "network.widths=1,2",
          words=("--workers", "2", "--slurm")),
    swept("--slurm-option", "network.widths=1,2", words=("--slurm-option", "time=1:00:00")),
    # Recipes that cannot be read, and data.
    *(refused("recipe = '", recipe=name) for name in ("unended", "no_text", "absent")),
    refused("task = 3", recipe="number", tables=True),
    refused("name = ", recipe="nameless"),
    refused("task.path = '", recipe="missing"),
    refused("attention.heads = (absent)", "attention.inverse_temperature=2.0", recipe="wide"),
    refused("inputs_train[2, 1, 1] = nan", recipe="not_finite"),
    # What only a plan shows: more than there are draws, or coordinates, or memory.
    refused("task.examples_validation = 1", "task.examples_validation=1"),
    swept("sampler.weight_draws = 50", "sampler.weight_draws=2,50", "sampler.draws=20"),
    refused("sampler.draws = 7", "sampler.draws=7", "sampler.evidence=true",
            "sampler.space=order_parameters"),
    refused("sampler.evidence = True", "network.widths=100", "sampler.evidence=true",
            "sampler.space=order_parameters", recipe="wide"),
    refused("memory = ", "task.features=200000000"),
    refused("memory = ", "sampler.draws=100000000000"),
    swept("memory = ", "sampler.chains=4,1000000000"),
]  # fmt: skip

LEARNED = SMALLEST.replace(
    '[["good", "uniform"], ["uniform"]]', '[["learned", "learned"], ["uniform"]]'
)
RECIPES = {
    "tiny": SMALLEST,
    "misspelt": f"{SMALLEST}[sampler]\nchians = 4\n",
    "no_widths": SMALLEST.replace("widths = 3", ""),
    "nameless": SMALLEST.replace('name = "tiny"', ""),
    "learned": f'{LEARNED}[sampler]\nalgorithm = "hmc"\nweight_draws = 2\n',
    "tempered": f'{SMALLEST}[sampler]\nalgorithm = "tempered"\nspace = "order_parameters"\n',
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
    """Name of the file → arrays; of 72 heads there are p(p + 1)/2 order parameters."""
    spoilt = arrays()
    spoilt["inputs_train"][2, 1, 1] = np.nan
    return {"not_finite": spoilt, "wide": arrays(heads=72)}


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
    stored = [asdict(case) | {"recipe": f"{case.recipe}.toml"} for case in CASES]
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
def test_it_is_refused_in_one_line_by_its_name_and_nothing_is_begun(case, seen):
    one = seen[case]
    assert one["written"] == []
    assert not one["jax"]
    assert one["code"] == ExitCode.BAD_INPUT
    (line,) = one["errors"].splitlines()
    message = line.removeprefix("attention-posterior: ")
    assert message.startswith(case.start), line
    value, _, remedy = message.partition(": ")
    assert value
    assert case.remedy in remedy != ""
    if not case.words and case is not GRID_TO_SOLVE:
        text, field, value, remedy = one["file"]
        assert case.start.startswith(field)
        assert text.startswith(case.start)
        assert value
        assert case.remedy in remedy != ""
    if case.tables:
        assert one["tables"] == one["file"]
        assert one["context"] == "None"  # which an error holds, and is pickled with
