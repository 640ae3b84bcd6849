"""Runs whose chains start where those of another run ended: stored, gone on with, refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import sampler
from sampler.errors import ExitCode, InputError, RequeueError
from sampler.jobs import keeper
from sampler.jobs import run as jobs
from sampler.recipes.recipe import load_recipe, make_recipe
from sampler.storage.checkpoint import read_sealed, write_sealed
from sampler.storage.manifest import read_manifest, record
from sampler.storage.results import read_draws
from sampler.storage.run_directory import CHECKPOINT_SLOTS
from tests.commands import SMALLEST, TINY, AfterChunks, assert_same_bits, made_once, settings
from tests.commands import in_process as command
from tests.problems import all_but

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("undrawn")]

FAST = ("sampler.warmup=4", "sampler.draws=6", "sampler.chains=2")
KINDS = {
    "nuts": (*FAST, "sampler.algorithm=nuts", "sampler.space=order_parameters"),
    "split_hmc": (*FAST, "sampler.algorithm=split_hmc", "sampler.space=order_parameters"),
    "weights": (*FAST, "sampler.algorithm=hmc", "sampler.leapfrog_steps=3",
                "sampler.space=weights"),
}  # fmt: skip
CODE = ExitCode.DIAGNOSTICS_FAILED  # so few draws are not trusted


def sampled(recipe_file: Path, out: Path, *overrides: str) -> ExitCode:
    return command("sample", recipe_file, "--out", out, *settings(*overrides))


@pytest.fixture(scope="module")
def sources(recipe_file, tmp_path_factory) -> Path:
    """A folder of finished runs, one of each kind, and of two that left no chains' end."""

    def make(folder: Path) -> list[int]:
        codes = [sampled(recipe_file, folder / kind, *KINDS[kind]) for kind in KINDS]
        independent = ("sampler.draws=6", "sampler.algorithm=importance")
        codes.append(sampled(recipe_file, folder / "independent", *independent))
        codes.append(command("solve", recipe_file, "--out", folder / "solved"))
        return codes

    folder, codes = made_once(tmp_path_factory, "sources_of_starts", make)
    assert set(codes[: len(KINDS)]) == {CODE}
    return folder


def starting_at(directory: Path, *overrides: str) -> tuple[str, ...]:
    return (*overrides, f'sampler.start_from="{directory}"')


@pytest.fixture(scope="module")
def started(recipe_file, sources, tmp_path_factory) -> Path:
    """A run of other width and seed without warm-up from each kind that allows another width."""

    def make(folder: Path) -> list[int]:
        return [
            sampled(recipe_file, folder / kind, *starting_at(sources / kind, *KINDS[kind]), *OTHER)
            for kind in ("nuts", "split_hmc")
        ]

    folder, codes = made_once(tmp_path_factory, "started_elsewhere", make)
    assert codes == [CODE, CODE]
    return folder


OTHER = ("network.widths=5", "sampler.warmup=0", "sampler.chains=3", "sampler.seed=4")


def last_checkpoint(directory: Path) -> Path:
    found = [directory / "checkpoint" / name for name in CHECKPOINT_SLOTS]
    return max((p for p in found if p.is_file()), key=lambda p: read_sealed(p).header["sequence"])


@pytest.mark.parametrize("kind", ["nuts", "split_hmc"])
def test_step_size_is_that_of_the_other_run_and_its_origin_is_recorded(kind, sources, started):
    before, after = read_draws(sources / kind), read_draws(started / kind)
    expected = before["sample_stats"]["step_size"].values[:, -1][[0, 1, 0]]
    steps = after["sample_stats"]["step_size"].values
    if kind == "nuts":
        np.testing.assert_array_equal(steps, np.repeat(expected[:, None], 6, axis=1))
    else:  # so many steps of at most this size make an angle
        name = "state/shared['step_size']"
        first, last = (read_sealed(last_checkpoint(f / kind)) for f in (sources, started))
        np.testing.assert_array_equal(last.arrays[name], first.arrays[name])
    manifest = read_manifest(started / kind)
    origin = Path(load_recipe(started / kind / "recipe.toml").sampler.start_from)
    assert manifest.started_from == {
        "directory": str(origin),
        "recipe_hash": read_manifest(sources / kind).recipe_hash,
        "checkpoint": read_sealed(last_checkpoint(sources / kind)).checksum,
    }
    assert manifest.recipe_hash != manifest.started_from["recipe_hash"]


def test_nothing_is_recorded_without_a_start(sources):
    assert read_manifest(sources / "nuts").started_from is None
    assert "started_from" not in (sources / "nuts" / "manifest.json").read_text()


@pytest.mark.parametrize("chunks", all_but([1, 3], [3], pytest.mark.long))
def test_resume_goes_on_from_its_own_checkpoint(chunks, recipe_file, sources, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(sources / "weights", source)
    overrides = starting_at(source, *KINDS["weights"])
    assert sampled(recipe_file, tmp_path / "whole", *overrides) == CODE
    recipe = load_recipe(recipe_file, overrides)
    directory = tmp_path / "run"
    with pytest.raises(RequeueError):
        jobs.start_run("sample", jobs.Point(recipe, directory), AfterChunks(chunks))
    shutil.rmtree(source)
    assert command("resume", directory) == CODE
    assert_same_bits(directory, tmp_path / "whole")
    assert command("resume", directory, "--more", 4) == CODE
    assert read_draws(directory)["posterior"].sizes["draw"] == 10


def test_chains_that_had_not_begun_need_the_recorded_checkpoint(
    recipe_file, sources, tmp_path, capsys, monkeypatch
):
    source, out = tmp_path / "source", tmp_path / "run"
    shutil.copytree(sources / "weights", source)

    def full_disk(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(keeper, "write_sealed", full_disk)
        overrides = starting_at(source, *KINDS["weights"])
        assert sampled(recipe_file, out, *overrides) == ExitCode.BAD_INPUT
    assert read_manifest(out).started_from is not None
    change(source)
    assert "is not the recorded one" in refusal(capsys, "resume", out)


def change(source: Path) -> None:
    """Give the last checkpoint of a run another content, as a longer run would."""
    path = last_checkpoint(source)
    sealed = read_sealed(path)
    names = [*sealed.arrays]
    write_sealed(path, {**sealed.header, "seen": "again"}, {n: sealed.arrays[n] for n in names})


def refusal(capsys, *words) -> str:
    capsys.readouterr()
    assert command(*words) == ExitCode.BAD_INPUT
    message = capsys.readouterr().err.splitlines()[-1]
    print(message)
    assert "sampler.start_from = " in message
    return message


def test_reproduce_starts_there_again_and_refuses_another_checkpoint(
    recipe_file, sources, tmp_path, capsys
):
    source, out = tmp_path / "source", tmp_path / "run"
    shutil.copytree(sources / "weights", source)
    assert sampled(recipe_file, out, *starting_at(source, *KINDS["weights"])) == CODE
    assert command("reproduce", out) == ExitCode.OK
    assert_same_bits(out / "reproduction", out)
    shutil.rmtree(out / "reproduction")
    change(source)
    message = refusal(capsys, "reproduce", out)
    assert f"'{source}'"[:40] in message
    assert "its last checkpoint is not the recorded one (SHA-256 " in message
    assert "restore it" in message
    assert not (out / "reproduction" / "draws.nc").exists()
    shutil.rmtree(source)
    assert "holds no recipe.toml" in refusal(capsys, "reproduce", out)


@pytest.mark.parametrize(
    ("name", "overrides", "expected"),
    [
        ("nowhere", (), "holds no recipe.toml; name the directory of a finished run"),
        ("solved", (), "its sampling is not finished; first use `resume`"),
        ("independent", (), "has no intact checkpoint of the end of its chains"),
        ("removed", (), "checkpoint/ was removed); name a run of chains that has one"),
        ("extended", (), "its sampling is not finished"),
        ("swept", (), "is a sweep; name the directory of one of its points"),
        ("trained", (), "holds a training"),
        ("weights", ("sampler.space=order_parameters",), 'set sampler.space = "weights"'),
        ("weights", ("sampler.space=weights", "sampler.algorithm=nuts"),
         'those of this run "nuts"; set sampler.algorithm = "hmc"'),
        ("nuts", ("sampler.space=order_parameters", "sampler.algorithm=importance"),
         'its chains have algorithm "nuts", those of this run "importance"'),
    ],
)  # fmt: skip
def test_runs_that_are_no_start_are_refused(
    name, overrides, expected, recipe_file, sources, tmp_path, capsys
):
    source = tmp_path / name
    if (sources / name).is_dir():
        shutil.copytree(sources / name, source)
    elif name in ("removed", "extended"):
        shutil.copytree(sources / "weights", source)
        if name == "removed":
            shutil.rmtree(source / "checkpoint")
        else:
            seconds = read_manifest(source).seconds
            record(source, seconds={k: v for k, v in seconds.items() if k != "sample"})
    elif name in ("swept", "trained"):
        source.mkdir()
        text = f"{TINY}[sweep]\n'network.widths' = [3, 4]\n"
        trained = 'name = "t"\n[task]\nkind = "one_shot"\n[training]\nsteps = 3\n'
        (source / "recipe.toml").write_text(text if name == "swept" else trained)
    given = overrides or ("sampler.space=weights", "sampler.algorithm=hmc")
    words = (recipe_file, *settings(*starting_at(source, *FAST, *given)))
    for first in (("check",), ("run", "--out", tmp_path / "out")):
        message = refusal(capsys, *first, *words)
        assert expected in message
        assert str(source)[:30] in message
    assert not (tmp_path / "out").exists(), "nothing is left behind"


@pytest.mark.parametrize(
    "overrides",
    [
        ("network.widths=4",),
        pytest.param(
            ('attention.heads=[["good", "uniform", "random"], ["uniform"]]',),
            marks=pytest.mark.long,
        ),
        ("sampler.precision=float32",),
    ],
)
def test_other_shapes_are_refused(overrides, recipe_file, sources, tmp_path, capsys):
    asked = starting_at(sources / "weights", *KINDS["weights"], *overrides)
    words = ("sample", recipe_file, "--out", tmp_path / "out", *settings(*asked))
    message = refusal(capsys, *words)
    assert "chains of this run cannot start there (" in message
    assert message.endswith("remove the key, or name a run whose chains have equal shapes")


def test_a_checkpoint_whose_newest_state_is_damaged_is_refused(
    recipe_file, sources, tmp_path, capsys
):
    source = tmp_path / "source"
    shutil.copytree(sources / "weights", source)
    last_checkpoint(source).write_bytes(b"damaged")
    words = settings(*starting_at(source, *KINDS["weights"]))
    assert "has no intact checkpoint of the end" in refusal(capsys, "check", recipe_file, *words)


def test_a_sweep_starts_outside_of_itself_and_every_point_there(
    recipe_file, sources, tmp_path, capsys
):
    out = tmp_path / "sweep"
    over = "network.widths=3,4"
    inside = settings(*starting_at(out / "network.widths=3", *KINDS["nuts"]))
    message = refusal(capsys, "sweep", recipe_file, "--out", out, "--over", over, *inside)
    assert "lies in the directory of this sweep; name a run that is no part of it" in message
    assert not out.exists()
    outside = settings(*starting_at(sources / "nuts", *KINDS["nuts"]))
    command("sweep", recipe_file, "--out", out, "--over", over, *outside)
    origins = [read_manifest(out / f"network.widths={width}").started_from for width in (3, 4)]
    assert origins[0] == origins[1]
    assert origins[0]["directory"] == str(sources / "nuts")


def test_the_start_cannot_be_swept():
    swept = {"name": "a", "task": {"kind": "markov_chain"}, "network": {"widths": 3}}
    with pytest.raises(InputError, match="this key cannot be swept"):
        make_recipe(swept | {"sweep": {"sampler.start_from": ["a", "b"]}})


def test_a_path_is_relative_to_the_recipe_and_changes_the_hash(tmp_path, monkeypatch):
    file = tmp_path / "folder" / "recipe.toml"
    file.parent.mkdir()
    file.write_text(f'{SMALLEST}\n[sampler]\nstart_from = "../run"\n')
    recipe = load_recipe(file)
    assert recipe.sampler.start_from == str(tmp_path / "run")
    assert load_recipe(file, ["sampler.start_from=b"]).sampler.start_from == str(file.parent / "b")
    without = recipe.model_copy(
        update={"sampler": recipe.sampler.model_copy(update={"start_from": None})}
    )
    assert recipe.hash8 != without.hash8


def test_from_python_a_path_is_relative_to_the_current_directory(sources, monkeypatch):
    monkeypatch.chdir(sources)
    task = sampler.make_task(
        "markov_chain", examples_train=6, examples_test=10, tokens=4, features=6,
        heads=[["good", "uniform"], ["uniform"]],
    )  # fmt: skip
    network = sampler.make_network(widths=3, temperature=1.0)
    asked = {"space": "order_parameters", "algorithm": "nuts", "chains": 2, "warmup": 0, "draws": 4}
    tree = sampler.sample(task, network, **asked, progress=False, start_from=Path("nuts"))
    expected = read_draws(Path("nuts"))["sample_stats"]["step_size"].values[:, -1]
    received = tree["sample_stats"]["step_size"].values
    np.testing.assert_array_equal(received, np.repeat(expected[:, None], 4, axis=1))
    with pytest.raises(InputError, match=r"^start_from = .*nowhere.*holds no recipe.toml"):
        sampler.sample(task, network, **asked, progress=False, start_from="nowhere")
