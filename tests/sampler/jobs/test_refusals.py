"""What a command refuses before anything is written: the setting, and the exit code."""

import pytest

from sampler.errors import ExitCode
from tests.commands import SMALLEST, in_process, settings

PLAIN = f"{SMALLEST}[sampler]\n"
LEARNED = f"""{SMALLEST}[sampler]
algorithm = "hmc"
weight_draws = 2
""".replace('[["good", "uniform"], ["uniform"]]', '[["learned", "learned"], ["uniform"]]')
TEMPERED = f'{SMALLEST}[sampler]\nalgorithm = "tempered"\nspace = "order_parameters"\n'
TRUSTED = f'{SMALLEST}[sampler]\nuntil = "trusted"\n'
NO_WEIGHTS = "sampler.weight_draws=0"

REFUSED = [
    # Networks outside the theory have no order parameters, and nothing to be solved.
    (PLAIN, "solve", ["network.values=relu", "network.hypernetwork=true"], "network.values"),
    (PLAIN, "solve", ["network.mlp={width=2}"], "network.mlp"),
    (PLAIN, "solve", ['sweep.network.norm=["none", "after"]'], "network.norm"),
    (PLAIN, "run", ["network.residual=true", "sampler.space=order_parameters"], "sampler.space"),
    (PLAIN, "run", ["network.values=relu", "sampler.points=selected"], "sampler.points"),
    (PLAIN, "run", ["network.norm=after", "sampler.evidence=true"], "sampler.space"),
    (PLAIN, "run", ["network.residual=true", "network.widths=[3, 2, 3]"], "network.widths"),
    # Settings that leave no space.
    (PLAIN, "run", ["sampler.evidence=true", "sampler.space=weights"], "sampler.evidence"),
    # Single precision is for weights.
    (PLAIN, "run",
     ["sampler.precision=float32", "sampler.space=order_parameters"], "sampler.precision"),
    (PLAIN, "run", ["sampler.precision=float32", "sampler.evidence=true"], "sampler.precision"),
    (LEARNED, "run",
     ["sampler.precision=float32", "network.widths=infinite", NO_WEIGHTS], "sampler.precision"),
    # Attention that is sampled.
    (LEARNED, "solve", ["attention.reads=stream", NO_WEIGHTS], "attention.reads"),
    (LEARNED, "run",
     ["network.values=relu", "sampler.space=order_parameters", NO_WEIGHTS], "sampler.space"),
    (LEARNED, "run",
     ["attention.reads=stream", "network.widths=infinite", NO_WEIGHTS], "network.widths"),
    (LEARNED, "run",
     ["attention.reads=stream", "attention.learned.form=positions", NO_WEIGHTS,
      "sampler.space=weights"],
     "attention.learned.form"),
    (LEARNED, "run", ["sampler.evidence=true"], "sampler.evidence"),
    (LEARNED, "run", ["attention.learned.rank=2"], "attention.learned.rank"),
    (LEARNED, "run", ["attention.learned.variance=2.0"], "attention.learned.variance"),
    (LEARNED, "run", ["sampler.space=attention", NO_WEIGHTS], "sampler.space"),
    (LEARNED, "run", ["network.widths=infinite"], "sampler.weight_draws"),
    (LEARNED, "run", ["task.examples_train=900000"], "attention.heads (train split)"),
    # Particles, which are no chains.
    (TEMPERED, "run", ["sampler.draws=100"], "sampler.draws"),
    (TEMPERED, "run", ["sampler.precision=float32"], "sampler.precision"),
    (TEMPERED, "run", ["sampler.repetitions=3"], "sampler.repetitions"),
    # More than the draws give.
    (PLAIN, "run", ["sampler.draws=4", "sampler.weight_draws=5"], "sampler.weight_draws"),
    (PLAIN, "run",
     ["sampler.draws=7", "sampler.evidence=true", "sampler.space=order_parameters"],
     "sampler.draws"),
    # Draws until they can be trusted.
    (TRUSTED, "run", ["sampler.chains=1"], "sampler.chains"),
    (PLAIN, "run", ["task.examples_validation=1"], "task.examples_validation"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name", "words", "field"), REFUSED)
def test_a_setting_is_refused_by_its_name(text, name, words, field, tmp_path, capsys):
    recipe, out = tmp_path / "tiny.toml", tmp_path / "new"
    recipe.write_text(text, encoding="utf-8")
    assert in_process(name, recipe, "--out", out, *settings(*words)) == ExitCode.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"attention-posterior: {field} = "), line
    assert not out.exists()


@pytest.mark.parametrize("command", ["compare", "diagnose"])
def test_a_stage_of_a_sweep_is_asked_of_one_of_its_points(command, tmp_path, capsys):
    swept = f"{SMALLEST}\n[sweep]\n'network.widths' = [3, 4]\n"
    (tmp_path / "recipe.toml").write_text(swept)
    assert in_process(command, tmp_path) == ExitCode.BAD_INPUT
    assert "network.widths=3" in capsys.readouterr().err.splitlines()[-1]
