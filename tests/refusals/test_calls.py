"""Calls from Python that cannot be answered: the name of the argument or of the setting."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import sampler
from sampler.data.make import build_task
from sampler.errors import InputError
from tests.commands import printed_without_jax
from tests.pages import STORED

pytestmark = pytest.mark.usefixtures("without_annotation_checks")
RECIPE = sampler.Recipe(
    task=sampler.MarkovChain(examples_train=6, examples_test=10, tokens=4, features=6),
    network={"widths": 3},
)
GRID = RECIPE.changed({"sweep.network.widths": [2, 3]})
OUTSIDE = RECIPE.changed({"network.norm": "after"})
OF_FILE = sampler.Recipe.load(STORED / "recipe.toml")
RUN = sampler.open_results(STORED)
X = np.random.default_rng(3).standard_normal((13, 4, 3))

MATRICES = [np.ones((2, 1, 3, 3)), np.ones((2, 3, 3))]
TOKENS = {"inputs": np.ones((2, 3, 1)), "labels": np.ones(2), "attention": MATRICES}
TESTS = {f"{key}_test": value for key, value in TOKENS.items()}


def arrays(**given) -> Callable:
    """A task of these arrays is built."""
    return lambda: build_task(sampler.Recipe(task=sampler.Arrays(**given), network={"widths": 3}))


def compared(theory, draws, **own) -> Callable:
    return lambda: sampler.compare(theory, draws, **own)


def own(**predicted) -> Callable:
    return compared(RUN.theory, RUN.draws, own={"mine": predicted})


def classifier() -> None:
    sampler.AttentionClassifier().fit(X, np.arange(13) % 3)


# A call, and what the message begins with.
CASES = [
    # Sections alone, as in a recipe.
    (lambda: sampler.Network(widht=3), "network.widht = "),
    (lambda: sampler.Arrays(inptus=[[1.0]]), "inptus = "),
    (lambda: sampler.Arrays(), "task.path = "),
    (lambda: RECIPE.changed({"sampler.drows": 3}), "sampler.drows = 3: "),
    # Arrays, by the names of their arguments.
    (arrays(**TOKENS), "inputs_test = "),
    (arrays(**TOKENS, **TESTS), "attention[1] = "),
    (arrays(**TOKENS | {"attention": MATRICES[0]}), "attention = (an array (2, 1, 3, 3))"),
    (arrays(**TOKENS, path="a.npz"), "task.path = "),
    (arrays(inputs=[[1.0], [1.0, 2.0]]), "inputs = "),
    (arrays(pth="a.npz"), "task.pth = "),
    # Recipes that a function cannot use.
    (partial(sampler.sample, RECIPE, drwas=4), "sampler.drwas = 4: "),
    (partial(sampler.sample, RECIPE, draws=9, until="trusted"), "sampler.draws = 9: "),
    (partial(sampler.sample, GRID), "sweep = 'network.widths': "),
    (partial(sampler.solve, OUTSIDE), "network.norm = 'after': "),
    (partial(sampler.solve, 3), "recipe = 3: "),
    (partial(sampler.teacher_of, RECIPE), "task.labels = 'task': "),
    (GRID.log_density, "sweep = "),
    (partial(OUTSIDE.log_density, "order_parameters"), "sampler.space = "),
    (partial(OUTSIDE.numpyro_model, "order_parameters"), "sampler.space = "),
    (partial(sampler.run, RECIPE, out=__file__, progress=False), "out = "),
    # Results that do not belong together, and predictions that do not fit.
    (compared(RUN.draws, RUN.theory), "draws = 'Dataset': "),
    (compared(RUN.theory.assign_coords(path=["a", "b"]), RUN.draws), "draws = ['good', "),
    (compared(RUN.theory.assign_attrs(temperature=2.0), RUN.draws), "draws.temperature = 1.0: "),
    (own(order_parameter=np.eye(3)), 'own theory "mine'),
    (own(order_parameter=[[1.0, np.nan], [np.nan, 1.0]]), 'own theory "mine'),
    (own(predictor_variance=-np.ones(4)), 'own theory "mine'),
    (own(predictor=np.ones(4)), 'own theory "mine'),
    (lambda: RUN.plot("acuracy"), "figure = "),
    (lambda: sampler.head_importance(RUN.theory.drop_vars("head_score")), "theory = "),
    # Labels of an estimator are two classes.
    (classifier, "y"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "start"), CASES)
def test_it_is_refused_by_its_name(call, start):
    with pytest.raises((InputError, ValueError)) as caught:
        call()
    assert str(caught.value).startswith(start) or start == "y"


def test_memory_is_refused_before_anything_is_traced(monkeypatch):
    monkeypatch.setattr("sampler.jobs.memory.available_bytes", lambda: 2.0**20)
    with pytest.raises(InputError) as caught:
        RECIPE.log_density()
    assert caught.value.field == "memory"


def test_nothing_is_written_where_a_run_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = RECIPE.changed({"attention.heads": [["good"]], "network.heads": [[3]]})
    for call in (
        partial(sampler.run, wrong, out=tmp_path / "run"),
        partial(sampler.run, RECIPE, out=""),
        partial(sampler.sweep, RECIPE, over={"network.widths": [2, 3]}, out=""),
    ):
        with pytest.raises(InputError):
            call(progress=False)
    assert not list(tmp_path.iterdir())


BEFORE_JAX = """
import sampler
one = sampler.Recipe(task=sampler.MarkovChain(), network={'widths': 3})
for call in (
    lambda: sampler.Theory(starts=0),
    lambda: sampler.solve(one.changed({'network.norm': 'after'})),
    lambda: sampler.run(one.changed({'sweep.network.widths': [3, 4]})),
    lambda: sampler.sweep(one),
    lambda: sampler.sweep(one, {'network.widths': []}),
    lambda: sampler.open_results('.'),
):
    try:
        call()
    except sampler.InputError as problem:
        print(problem)
assert {'solve', 'compare'} <= set(dir(sampler))
"""
STARTS = (
    "theory.starts = 0: ", "network.norm = 'after': ", "sweep = {'network.widths': (3, 4)}: ",
    "over = (absent): ", "sweep.network.widths = []: ", "DIR = '.': ",
)  # fmt: skip


def test_the_package_refuses_before_it_imports_jax():
    for line, start in zip(printed_without_jax(BEFORE_JAX).splitlines(), STARTS, strict=True):
        assert line.startswith(start), line
