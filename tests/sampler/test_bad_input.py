"""A mistake in recipe, data or command line: one line that names it, exit code 2, nothing left."""

import pickle
import resource
import shutil
import subprocess
import sys
from pathlib import PurePosixPath

import numpy as np
import pytest

from sampler.cli import main
from sampler.errors import ExitCode, InputError, RequeueError

SHORTEST = """
name = "shortest"
[task]
kind = "markov_chain"
examples_train = 4
examples_test = 4
tokens = 3
features = 4
[network]
widths = 10
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(SHORTEST)
    return path


def command(capsys, *arguments):
    """Exit code, standard output, and the one line on standard error."""
    code = main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    lines = output.err.splitlines()
    assert len(lines) <= 1, f"more than one line: {output.err}"
    return code, output.out, lines[0] if lines else ""


BAD_SETTINGS = [
    ("network.widths=0", "network.widths = 0: ", "from 1"),
    ("network.widths=true", "network.widths = True: ", "whole number"),
    ("network.widths=2.5", "network.widths = 2.5: ", "whole number"),
    ("network.widths=[]", "network.widths = []: ", "whole number"),
    ("network.widths=[10, 10]", "network.widths = [10, 10]: ", "3 numbers"),
    ("network.widths=[10, 10, -1]", "network.widths = [10, 10, -1]: ", "from 1"),
    ("network.variances=0", "network.variances = 0: ", "positive"),
    ("network.variances=[1, 1, 1, nan]", "network.variances = [1, 1, 1, nan]: ", "positive"),
    ("network.variances=[1, 1]", "network.variances = [1.0, 1.0]: ", "4 numbers"),
    ("network.readout=median", "network.readout = 'median': ", "'mean'"),
    ("network.heads=[[0], [2]]", "network.heads = [[0], [2]]: ", "0 to 1"),
    ("network.heads=[[0]]", "network.heads = [[0]]: ", "all 2 layers"),
    ("network.heads=[[0, 0], [0]]", "network.heads = [[0, 0], [0]]: ", "twice"),
    ("network.heads=[[], [0]]", "network.heads = [[], [0]]: ", "at least one head"),
    ("network.values=tanh", "network.values = 'tanh': ", "'relu'"),
    ("network.norm=layer", "network.norm = 'layer': ", "'before'"),
    ("network.residual=1", "network.residual = 1: ", "true or false"),
    ("network.mlp=true", "network.mlp = True: ", "table"),
    ("network.mlp.activation=relu", "network.mlp.width = (absent): ", "required"),
    ('network.mlp={width=2, activation="tanh"}', "network.mlp.activation = 'tanh': ", "'gelu'"),
    ("network.mlp={width=0}", "network.mlp.width = 0: ", "at least 1"),
    ("network.mlp={widht=2, width=2}", "network.mlp.widht = 2: ", "unknown"),
    ("attention.reads=weights", "attention.reads = 'weights': ", "'stream'"),
    ("attention.reads=stream", "attention.reads = 'stream': ", 'of the kind "learned"'),
    ("network.hypernetwork=1", "network.hypernetwork = 1: ", "true or false"),
    ("network.hypernetwork=[true]", "network.hypernetwork = [True]: ", "a list of 2"),
    ("network.widhts=10", "network.widhts = 10: ", "did you mean network.widths?"),
    ("temperature=1.0", "temperature = 1.0: ", "did you mean posterior.temperature?"),
    ("posterior.temperature=0", "posterior.temperature = 0: ", "greater than 0"),
    ("posterior.temperature=-1.0", "posterior.temperature = -1.0: ", "greater than 0"),
    ("posterior.temperature=inf", "posterior.temperature = inf: ", "finite"),
    ("posterior.temperature=nan", "posterior.temperature = nan: ", "finite"),
    ("posterior.temperature=true", "posterior.temperature = True: ", "number"),
    ('posterior.temperature="cold"', "posterior.temperature = 'cold': ", "number"),
    ("posterior.temperature=[0.1,", "--set posterior.temperature = '[0.1,': ", "TOML"),
    ("posterior=1", "posterior = 1: ", "table"),
    ("task.kind=markov", "task.kind = 'markov': ", "'markov_chain'"),
    ("task.kind=arrays", "task.path = (absent): ", "required"),
    ("task.features=5", "task.features = 5: ", "multiple of 2"),
    ("task.examples_train=1", "task.examples_train = 1: ", "at least 2"),
    ("task.stay_positive=1.5", "task.stay_positive = 1.5: ", "at most 1"),
    ("task.seed=-1", "task.seed = -1: ", "at least 0"),
    ("task.seed=4294967296", "task.seed = 4294967296: ", "less than"),
    ('attention.heads=[["god"]]', "attention.heads[0][0] = 'god': ", "'good'"),
    ("attention.heads=[]", "attention.heads = []: ", "at least 1"),
    ("attention.inverse_temperature=1e308", "attention_train_1", "finite"),
    ("theory.subnetworks=[[[0], [3]]]", "theory.subnetworks = [[0], [3]]: ", "no head 3"),
    ("theory.tolerance=0", "theory.tolerance = 0: ", "greater than 0"),
    ("sampler.space=function", "sampler.space = 'function': ", "'weights'"),
    ("sampler.target_acceptance=1.0", "sampler.target_acceptance = 1.0: ", "less than 1"),
    ("sampler.chains=0", "sampler.chains = 0: ", "at least 1"),
    ("sampler.largest_width.function=3", "sampler.largest_width.function = 3: ", "'weights'"),
    ("sampler.chian=3", "sampler.chian = 3: ", "sampler.chains?"),
    ("sweep.name=[1]", "sweep = 'name': ", "cannot be swept"),
    ("sweep.network.widths=[]", "sweep.network.widths = []: ", "at least 1"),
    ("sweep.network.widths=[10, 0]", "network.widths = 0: ", "from 1"),
    ("sweep.network.widths=[10, [1, 2]]", "network.widths = [1, 2]: ", "3 numbers"),
    ("name=a/b", "name = 'a/b': ", "letters"),
    ("name=", "--set name = '': ", "TOML"),
    ("network.widths", "--set = 'network.widths': ", "KEY=VALUE"),
    ("network.widths=1\nname=2", "--set network.widths = ", "TOML"),
    ("network.widths.a=1", "network.widths.a = 1: ", "not a table"),
]


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid:RuntimeWarning")
@pytest.mark.parametrize(("setting", "start", "remedy"), BAD_SETTINGS, ids=lambda text: text[:40])
def test_a_bad_setting_is_named_with_its_value_and_remedy(
    capsys, recipe, tmp_path, setting, start, remedy
):
    out = tmp_path / "new" / "directory"
    code, _, line = command(capsys, "run", recipe, "--out", out, "--set", setting)
    assert code == ExitCode.BAD_INPUT
    assert line.startswith(f"attention-posterior: {start}"), line
    assert remedy in line
    assert not out.parent.exists()


@pytest.mark.parametrize(
    ("content", "start"),
    [
        (b"name = ", "is not valid TOML"),
        (b"\xff\xfe", "must be UTF-8"),
        (b"", "name = (absent): "),
        (b'name = "a"', "task = (absent): "),
        (b'name = "a"\ntask = 3', "task = 3: "),
        (b'name = "a"\n[task]\nseed = 1', "task.kind = (absent): "),
        (b'name = "a"\n[task]\nkind = "markov_chain"', "network = (absent): "),
        (b'name = "a"\nsweep = 1\n[task]\nkind = "markov_chain"', "network = (absent): "),
        (None, "recipe = "),
    ],
)
def test_a_recipe_that_cannot_be_read(capsys, tmp_path, content, start):
    path = tmp_path / "recipe.toml"
    if content is not None:
        path.write_bytes(content)
    code, _, line = command(capsys, "check", path)
    assert code == ExitCode.BAD_INPUT
    assert start in line


def test_attention_of_arrays_names_its_heads(capsys, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(
        'name = "a"\ntask = {kind = "arrays", path = "a.npz"}\nnetwork.widths = 3\n'
        "attention.inverse_temperature = 2.0\n"
    )
    code, _, line = command(capsys, "check", path)
    assert code == ExitCode.BAD_INPUT
    assert line.startswith("attention-posterior: attention.heads = (absent): ")


def test_bad_data_is_named(capsys, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('name = "a"\ntask = {kind = "arrays", path = "a.npz"}\nnetwork.widths = 3\n')
    np.savez(tmp_path / "a.npz", inputs_train=np.ones((2, 3, 4)))
    code, _, line = command(capsys, "check", path)
    assert code == ExitCode.BAD_INPUT
    assert line.startswith("attention-posterior: labels_train = (absent): ")


def test_a_directory_of_something_else_is_left_alone(capsys, recipe, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    before = sorted(tmp_path.iterdir())
    elsewhere = tmp_path / "recipe.toml"
    for out in (tmp_path / "notes.txt", tmp_path / "notes.txt" / "below"):
        code, _, line = command(capsys, "run", recipe, "--out", out)
        assert code == ExitCode.BAD_INPUT
        assert line.startswith("attention-posterior: --out = ")
    # recipe.toml itself is there, so this directory looks like a run of another recipe.
    code, _, line = command(capsys, "run", elsewhere, "--out", tmp_path, "--set", "sampler.seed=5")
    assert code == ExitCode.BAD_INPUT
    assert "another recipe" in line
    elsewhere = elsewhere.rename(tmp_path.parent / f"{tmp_path.name}.toml")
    code, _, line = command(capsys, "run", elsewhere, "--out", tmp_path)
    assert code == ExitCode.BAD_INPUT
    assert "neither empty nor a run directory" in line
    assert sorted(tmp_path.iterdir()) == [path for path in before if path.name != "recipe.toml"]


def test_a_stage_needs_the_directory_of_a_run(capsys, tmp_path):
    for stage in ("compare", "diagnose", "figures", "report"):
        code, _, line = command(capsys, stage, tmp_path)
        assert code == ExitCode.BAD_INPUT
        assert line.startswith("attention-posterior: DIR = ")


@pytest.mark.parametrize("arguments", [[], ["walk"], ["run"], ["check", "a", "b"], ["run", "--x"]])
def test_a_bad_command_line_is_one_line(capsys, arguments):
    code, _, line = command(capsys, *arguments)
    assert code == ExitCode.BAD_INPUT
    assert "--help" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "runs/quickstart.toml", "--out", ""),
        ("sweep", "runs/quickstart.toml", "--over", "sampler.seed=0:2", "--out", ""),
        ("train", "runs/one_shot_train.toml", "--out", ""),
        ("check", ""),
        ("resume", ""),
        ("report", ""),
    ],
)
def test_an_empty_name_is_not_the_working_directory(capsys, arguments, tmp_path, monkeypatch):
    """As of a variable of the shell that is not set."""
    monkeypatch.chdir(tmp_path)
    assert main(list(arguments)) == ExitCode.BAD_INPUT
    assert "is empty; name a file or a directory" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_settings_may_stand_before_the_recipe(capsys, recipe):
    settings = ["--set", "network.widths=3", "task.tokens=4", "--set", "sampler.seed=2"]
    code, before, _ = command(capsys, "check", *settings, recipe)
    assert code == ExitCode.OK
    code, after, _ = command(capsys, "check", recipe, *settings)
    assert code == ExitCode.OK
    settings, _, times = before.partition("Time of")
    assert times
    assert after.startswith(settings)
    assert "tokens = 4" in before


def test_check_shows_sizes_and_defaults(capsys, recipe):
    code, text, _ = command(capsys, "check", recipe)
    assert code == ExitCode.OK
    # D = 4 + 3 + 1 channels, H = 2, 2, N = 10: 8·10 + 2·100 + 2·100 + 10 weights.
    assert " 490\n" in text
    assert "parameters of U_1 … U_L, U_a  14" in text
    assert "perpendicular_noise = 1.0" in text


def test_check_tells_which_points_of_a_sweep_are_theory_only(capsys, recipe):
    settings = ["--set", "sweep.network.widths=[10, 20]", "sampler.space=weights"]
    settings += ["--set", "sampler.largest_width.weights=10"]
    code, text, _ = command(capsys, "check", recipe, *settings)
    assert code == ExitCode.OK
    assert "network.widths=10  490 weights; theory and sampling" in text
    # 8·20 + 2·400 + 2·400 + 20 weights.
    assert "network.widths=20  1,780 weights; theory only (wider than 10)" in text


def test_what_is_raised_decides_the_exit_code(capsys, recipe, monkeypatch):
    def raising(problem):
        def make_plan(command, asked, here):
            raise problem

        return make_plan

    for problem, expected in (
        (RequeueError("SIGTERM received: draws 3 of 9 is saved"), 75),
        (KeyboardInterrupt(), 130),
        (RuntimeError("two\nlines"), 1),
        (InputError("field", "value", "remedy"), 2),
    ):
        monkeypatch.setattr("sampler.jobs.check.make_plan", raising(problem))
        code, _, line = command(capsys, "check", recipe)
        assert code == expected
        assert line
        again = f"to do it again: attention-posterior check {recipe}"
        assert line.endswith(again) == (expected in (75, 130)), line
    assert main(["--debug", "check", str(recipe)]) == ExitCode.BAD_INPUT
    assert "Traceback" in capsys.readouterr().err


def test_an_input_error_is_one_short_line_and_survives_pickling():
    problem = InputError("field", np.arange(1000), "remedy\nin two lines")
    text = str(problem)
    assert text.startswith("field = array([")
    assert text.endswith("…: remedy in two lines")
    assert "\n" not in text
    assert len(text) < 120
    assert str(pickle.loads(pickle.dumps(InputError("a", 1, "b")))) == "a = 1: b"


def test_of_a_long_path_the_end_is_shown():
    path = PurePosixPath("/", *(f"folder_{number}" for number in range(30)), "images.npz")
    shown = str(InputError("path", path, "remedy")).removeprefix("path = ").removesuffix(": remedy")
    assert len(shown) == 80
    assert shown.startswith("'…")
    assert str(path).endswith(shown[2:-1])
    assert str(InputError("path", PurePosixPath("a/b"), "remedy")) == "path = 'a/b': remedy"


@pytest.mark.heavy
def test_recipe_and_data_are_checked_before_jax_is_imported(recipe):
    program = (
        "import sys; from sampler.cli import main; code = main(sys.argv[1:]); "
        "heavy = {'jax', 'numpyro', 'arviz', 'matplotlib'} & set(sys.modules); "
        "sys.exit(99 if heavy else code)"
    )
    for arguments, expected in (
        (["check", str(recipe), "--set", "network.heads=[[0], [7]]"], 2),
        (["run", str(recipe), "--out", "/proc/none/such"], 2),
    ):
        done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True)
        assert done.returncode == expected, done.stderr


def test_help_of_every_command_has_an_example_and_imports_neither_numpy_nor_pydantic():
    program = """
import contextlib, io, sys
from sampler.cli import main
with contextlib.redirect_stdout(io.StringIO()) as listing:
    main(["--help"])
commands = [line.split()[0] for line in listing.getvalue().splitlines() if line[:4].isspace()
            and line[4:5].isalpha()]
for command in commands:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        assert main([command, "--help"]) == 0
    assert f"Example: attention-posterior {command} " in text.getvalue(), command
assert {"run", "check", "sweep", "resume"} <= set(commands), commands
sys.exit(len({"numpy", "pydantic", "jax"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_shell_completes_commands_and_recipes(tmp_path):
    (tmp_path / "mine.toml").touch()
    script = subprocess.run(
        [sys.executable, "-m", "sampler", "--print-completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    def completed(*words):
        line = " ".join(words)
        asked = (
            f"\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
            f"_shtab_attention_posterior {words[0]} '{words[-1]}' {words[-2]}; "
            'echo "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", script + asked], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    assert completed("attention-posterior", "res") == ["resume"]
    assert completed("attention-posterior", "run", "mi") == ["mine.toml"]
    assert completed("attention-posterior", "new", "qui") == ["quickstart"]
    keys = completed("attention-posterior", "run", "mine.toml", "--set", "sampler.max_")
    names = ("draws", "minutes", "repetitions", "tree_depth")
    assert keys == [f"sampler.max_{name}=" for name in names]


def test_an_output_directory_that_cannot_be_written_is_reported_within_three_seconds(recipe):
    def seconds():  # of processor time, which does not depend on what else runs
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    start = seconds()
    done = subprocess.run(
        [sys.executable, "-m", "sampler", "run", str(recipe), "--out", "/proc/none/such"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == ExitCode.BAD_INPUT
    assert len(done.stderr.splitlines()) == 1
    assert seconds() - start < 3.0
