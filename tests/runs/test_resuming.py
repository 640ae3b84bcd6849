"""Whatever can be interrupted goes on: the same bits as what nothing disturbed.

One table: kinds of work × interrupted, extended, checkpoint lost.
"""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sampler.data import examples
from sampler.errors import ExitCode, RequeueError
from sampler.jobs import draw, method
from sampler.jobs.keeper import DrawKeeper
from sampler.jobs.plan import make_plan
from sampler.jobs.run import start_run, with_more_draws
from sampler.jobs.train import start_training
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.mcmc.collected_draws import POINTWISE, PREDICTORS, DrawCollector
from sampler.settings.recipe import AnyRecipe, TrainingRecipe, load_recipe
from sampler.storage.archives import read_archive, write_archive
from sampler.storage.directory import CHECKPOINT_FOLDER, ROWS_FOLDER
from sampler.storage.fingerprint import read_stamp
from sampler.storage.result_files import read_draws
from tests import ROOT
from tests.commands import (
    SMALLEST,
    TINY,
    TINY_SAMPLED,
    AfterChunks,
    in_process,
    settings,
    stored_arrays,
)
from tests.problems import within
from tests.recipes import write_training

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn")]
# Few draws are not trusted.
DONE = (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED)
PLUGINS = dict.fromkeys(
    re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL)
)


def thinned(patch) -> None:
    """Of predictors and terms of examples hardly any draw is kept."""
    limits = within(0, names=(*PREDICTORS, *POINTWISE))
    patch.setattr(draw, "DrawCollector", partial(DrawCollector, limits))


def left_open(patch) -> None:
    """The recipe names no algorithm, and is given this one."""
    pair = "order_parameters", "tempered", "chosen here"
    patch.setattr(method, "choose_pair", lambda *_: pair)


def registered(patch) -> None:
    """Algorithms that CONTRIBUTING adds from outside."""
    patch.setattr(ALGORITHMS, "_entries", dict(ALGORITHMS._entries))
    for code in PLUGINS:
        if "ALGORITHMS.register" in code:
            exec(code, {"__name__": "my_module"})


def streamed(patch) -> None:
    """Examples are too many to be held."""
    patch.setattr(examples, "HELD_BYTES", 1)
    patch.setattr(examples, "BLOCK_BYTES", 2000)


@dataclass(frozen=True)
class Kind:
    """A kind of work.

    text      its recipe
    stop      the chunk after which it is interrupted, with two checkpoints
    command   what does it, and stores its `result`
    few       the setting with which fewer draws are made, to which `more` are appended
    prepare   what is different while it is done
    """

    text: str
    stop: int
    command: str = "sample"
    result: str = "draws.nc"
    few: str | None = None
    more: int = 5
    prepare: Callable = lambda patch: None
    folder: str = CHECKPOINT_FOLDER


HMC = 'algorithm = "hmc"\nleapfrog_steps = 3\nwarmup = 4\n'
LEARNED = SMALLEST.replace('[["good", "uniform"]', '[["learned", "learned"]')
KINDS = {
    "chains": Kind(TINY_SAMPLED.replace("draws = 6", "draws = 11"), 3,
                   few="sampler.draws=6", prepare=thinned),
    # Between two checks that pass, by which it ends.
    "trusted": Kind(f"{TINY}warmup = 100\nmax_draws = 1200\n", 17),
    "repetitions": Kind(f'{TINY}particles = 32\nuntil = "draws"\nrepetitions = 6\n', 9,
                        few="sampler.repetitions=5", more=1, prepare=left_open),
    "plug-in": Kind(f'{TINY}algorithm = "metropolis"\nspace = "weights"\nchains = 2\n'
                    "warmup = 5\ndraws = 25\n", 3, few="sampler.draws=20", prepare=registered),
    "plug-in without chains": Kind(
        f'{TINY}algorithm = "rejection"\nspace = "weights"\nchains = 2\nwarmup = 0\ndraws = 25\n',
        1, few="sampler.draws=20", prepare=registered),
    "learned": Kind(f"{LEARNED}[sampler]\n{HMC}chains = 2\ndraws = 11\nweight_draws = 2\n", 3,
                    few="sampler.draws=6"),
    # At step 100, twenty after the last validation: each chunk is asked twice.
    "training": Kind("", 5, "train", "model.npz"),
    "streamed": Kind(TINY.replace("examples_train = 6", "examples_train = 1100"), 3, "solve",
                     "theory.nc", prepare=streamed, folder=ROWS_FOLDER),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Recipes of all kinds, and what nothing disturbed, once it was asked for."""
    folder = tmp_path_factory.mktemp("whole")
    for name, kind in KINDS.items():
        (folder / f"{name}.toml").write_text(kind.text)
    training = write_training(folder, np.random.default_rng(5))
    training.rename(folder / "training.toml")
    return folder


@pytest.fixture
def work(request, folder, monkeypatch) -> tuple[Kind, Path, Path]:
    """A kind, its recipe, and the directory of the work that nothing disturbed."""
    kind, recipe = KINDS[request.param], folder / f"{request.param}.toml"
    kind.prepare(monkeypatch)
    whole = recipe.with_suffix("")
    if not whole.exists():
        assert in_process(kind.command, recipe, "--out", whole) in DONE
    return kind, recipe, whole


def of(*names):
    return pytest.mark.parametrize("work", names, indirect=True)


def interrupted(kind: Kind, recipe: Path, directory: Path) -> list[Path]:
    """Begin a work and leave it: its checkpoints, the newest last."""
    if kind.command == "train":
        asked = load_recipe(recipe, kind=TrainingRecipe)
        begin = partial(start_training, asked, directory)
    else:
        begin = partial(start_run, make_plan(kind.command, load_recipe(recipe), directory))
    with pytest.raises(RequeueError):
        begin(AfterChunks(kind.stop))
    assert not (directory / kind.result).exists()
    saved = (directory / kind.folder).iterdir()
    return sorted(saved, key=lambda path: read_archive(path).header["sequence"])


def assert_same(received: Path, expected: Path) -> None:
    """The same files, arrays and tables, bit for bit."""
    one, other = ({path.name for path in where.iterdir()} for where in (received, expected))
    assert one - {"run.log"} == other - {"run.log"}
    one, other = stored_arrays(received), stored_arrays(expected)
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert values.dtype == other[name].dtype, name
        np.testing.assert_array_equal(values, other[name], err_msg=name)
    if (expected / "draws.nc").exists():
        one, other = (read_draws(where)["sample_stats"].attrs for where in (received, expected))
        assert {n: v for n, v in one.items() if "seconds" not in n} == {
            n: v for n, v in other.items() if "seconds" not in n
        }
    for path in expected.iterdir():
        if path.suffix in (".npz", ".csv"):
            assert (received / path.name).read_bytes() == path.read_bytes(), path.name


@of(*KINDS)
def test_interrupted_work_goes_on(work, tmp_path, monkeypatch):
    """And draws count the seconds before, of warm-up and draws, here some more than there were."""
    kind, recipe, whole = work
    go_on = DrawKeeper.go_on

    def later(keeper, collected, *arguments, **named):
        found = go_on(keeper, collected, *arguments, **named)
        if found is not None:
            spent = collected.seconds
            assert keeper.seconds_before == spent["warmup"] + spent["draws"]
        keeper.seconds_before += 1e6
        return found

    directory = tmp_path / "run"
    interrupted(kind, recipe, directory)
    monkeypatch.setattr(DrawKeeper, "go_on", later)
    assert in_process("resume", directory) in DONE
    if kind.result == "draws.nc":
        assert read_draws(directory)["sample_stats"].attrs["seconds"] > 1e6
    assert_same(directory, whole)
    assert load_recipe(directory / "recipe.toml", kind=AnyRecipe) == load_recipe(
        whole / "recipe.toml", kind=AnyRecipe
    )


@of(*(name for name, kind in KINDS.items() if kind.few))
def test_what_is_appended_is_that_of_a_longer_work(work, tmp_path):
    kind, recipe, whole = work
    directory = tmp_path / "run"
    assert in_process(kind.command, recipe, "--out", directory, *settings(kind.few)) in DONE
    (checkpoint,) = (directory / kind.folder).iterdir()
    # What cannot be done is refused while nothing is changed.
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    checkpoint.write_bytes(before[checkpoint][:-1])
    assert in_process("resume", directory, "--more", kind.more) == ExitCode.BAD_INPUT
    checkpoint.write_bytes(before[checkpoint])
    assert before == {path: path.read_bytes() for path in before}
    assert in_process("resume", directory, "--more", kind.more) in DONE
    assert_same(directory, whole)
    one, other = (load_recipe(where / "recipe.toml") for where in (directory, whole))
    assert one == other


@of("trusted")
def test_what_is_appended_to_trusted_draws_is_that_of_a_longer_work(work, tmp_path):
    _, recipe, whole = work
    directory, longer = tmp_path / "run", tmp_path / "longer"
    shutil.copytree(whole, directory)
    made = read_stamp(whole / "draws.nc")["made"]
    assert in_process("resume", directory, "--more", 5) == ExitCode.OK
    in_process("sample", recipe, "--out", longer, *settings(f"sampler.draws={made + 5}"))
    assert read_stamp(directory / "draws.nc")["made"] == made + 5
    assert_same(directory, longer)


@of("chains", "repetitions", "training", pytest.param("streamed", marks=pytest.mark.nightly))
def test_where_a_checkpoint_is_damaged_the_other_is_used(work, tmp_path):
    kind, recipe, whole = work
    directory = tmp_path / "run"
    newest = interrupted(kind, recipe, directory)[-1]
    os.truncate(newest, newest.stat().st_size // 2)
    assert in_process("resume", directory) in DONE
    assert_same(directory, whole)


# --- more that is lost, of chains


@of("chains")
def test_draws_that_are_lost_come_back_from_their_checkpoint(work, tmp_path):
    _, _, whole = work
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "draws.nc").unlink()
    assert in_process("resume", tmp_path / "run") in DONE
    assert_same(tmp_path / "run", whole)


@of("chains")
def test_an_extension_that_was_killed_before_its_manifest_was_written_goes_on(work, tmp_path):
    """The recipe asks for more already, the manifest says that the run is finished."""
    kind, recipe, whole = work
    directory = tmp_path / "run"
    in_process("sample", recipe, "--out", directory, *settings(kind.few))
    manifest = (directory / "manifest.json").read_bytes()
    asked = with_more_draws(directory, load_recipe(directory / "recipe.toml"), kind.more)
    with pytest.raises(RequeueError):
        start_run(make_plan("sample", asked, directory), AfterChunks(1), extended=True)
    (directory / "manifest.json").write_bytes(manifest)
    assert in_process("resume", directory, "--more", 3) == ExitCode.BAD_INPUT
    in_process("resume", directory)
    assert_same(directory, whole)
    assert len(list((directory / CHECKPOINT_FOLDER).iterdir())) == 1


# --- checkpoints that are whole and of other chains, as of another version of a library


def without_last(arrays: dict) -> None:
    del arrays[max(name for name in arrays if name.startswith("state/"))]


def other_kinds(arrays: dict) -> None:
    arrays["gathered/unknown/x"] = np.zeros(3)


@of("chains")
@pytest.mark.parametrize("change", [without_last, other_kinds])
def test_a_checkpoint_of_other_chains_is_named(change, work, tmp_path, capsys):
    directory = tmp_path / "run"
    for path in interrupted(*work[:2], directory):
        stored = read_archive(path)
        arrays = dict(stored.arrays)
        change(arrays)
        write_archive(path, stored.header, arrays)
    capsys.readouterr()
    assert in_process("resume", directory) == ExitCode.BAD_INPUT
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"attention-posterior: DIR = '{directory}'"), line
