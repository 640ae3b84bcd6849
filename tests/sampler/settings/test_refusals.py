"""Errors of settings: as keys of a recipe on a command line, as keywords in Python."""

import pickle

import pytest

import sampler
from sampler.api.keywords import as_python
from sampler.errors import InputError, Setting, Words
from sampler.settings.recipe import load_recipe, make_recipe

SHORTEST = {"name": "a", "task": {"kind": "markov_chain"}, "network": {"widths": 3}}

# Sections, the setting that is refused, and settings that the remedy names.
CONFLICTS = [
    ({"sampler": {"until": "trusted", "draws": 9}}, Setting("sampler", "draws"), ()),
    ({"sampler": {"until": "trusted", "chains": 1}}, Setting("sampler", "chains"), ()),
    ({"sampler": {"algorithm": "tempered", "warmup": 2}}, Setting("sampler", "warmup"), ()),
    ({"sampler": {"evidence": True, "space": "weights"}}, Setting("sampler", "evidence"), ()),
    (
        {"network": {"widths": "infinite", "norm": "after"}},
        Setting("network", "widths"),
        ("network.norm",),
    ),
    (
        {"network": {"widths": 3, "residual": True}, "sampler": {"points": "selected"}},
        Setting("sampler", "points"),
        ("network.residual",),
    ),
    ({"attention": {"heads": [["god"]]}}, Setting("attention", "heads[0][0]"), ()),
    ({"attention": {"lag": 3}}, Setting("attention", "lag"), ()),
    ({"attention": {"learned": {"rank": 2}}}, Setting("attention", "learned.rank"), ()),
    ({"task": {"kind": "markov_chain", "tokns": 3}}, Setting("task", "tokns"), ("task.tokens",)),
    ({"network": {}}, Setting("network", "widths"), ()),
]


@pytest.mark.parametrize(("sections", "setting", "named"), CONFLICTS)
def test_a_conflict_names_setting_value_and_remedy_in_both_faces(sections, setting, named):
    with pytest.raises(InputError) as caught:
        make_recipe(SHORTEST | sections)
    problem = caught.value
    assert problem.subject == setting
    assert str(problem).startswith(f"{setting.section}.{setting.key} = ")
    in_python = problem.written(as_python)
    keyword = {"lag": "head_lag"}.get(setting.key, setting.key)
    assert str(in_python).startswith(f"{keyword} = ")
    for other in named:
        assert other in problem.remedy
        assert other not in in_python.remedy
        assert other.partition(".")[2] in in_python.remedy
    assert str(pickle.loads(pickle.dumps(problem))) == str(problem)


def test_each_face_has_its_words():
    value = Words("true", "True")
    problem = InputError(Setting("network", "mlp.width"), 0, "set {} = {}", Setting("task"), value)
    assert str(problem) == "network.mlp.width = 0: set task = true"
    assert str(problem.written(as_python)) == "mlp.width = 0: set task = True"
    assert str(problem.about("X").written(as_python)) == "X = 0: set task = True"
    assert str(InputError("a", 0, "use {}")) == "a = 0: use {}"


@pytest.mark.parametrize("setting", [{"hypernetwork": [True]}, {"residual": 1}, {"mlp": 3}])
def test_python_reads_keywords_and_never_keys(setting):
    task = sampler.markov_chain_task(examples_train=4, examples_test=4, tokens=3, features=4)
    with pytest.raises(InputError) as refused:
        sampler.solve(task, sampler.make_network(3, **setting))
    ((keyword, value),) = setting.items()
    text = str(refused.value)
    assert text.startswith(f"{keyword} = {value}: ")
    assert not any(word in text for word in ("network.", "true", "a table"))


EQUAL = """
name = "a"
network.widths = 3
[task]
kind = "markov_chain"
[sweep]
"posterior.temperature" = [1, 0.5, 1.0]
"network.variances" = [[1, 2.0, 1, 1], [1.0, 2, 1, 1.0]]
"network.residual" = [true, false]
"""


def test_equal_values_of_a_sweep_are_one_point(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(EQUAL)
    recipe = load_recipe(path, over=["posterior.temperature=1,2,1e0,2.0"])
    assert recipe.sweep["posterior.temperature"] == (1, 2)
    assert load_recipe(path).sweep["posterior.temperature"] == (1, 0.5)
    assert len(load_recipe(path).sweep["network.variances"]) == 1
    assert recipe.sweep["network.residual"] == (True, False)


def test_a_key_is_swept_once(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(EQUAL)
    with pytest.raises(InputError, match=r"posterior\.temperature"):
        load_recipe(path, over=["posterior.temperature=1", "posterior.temperature=2"])
