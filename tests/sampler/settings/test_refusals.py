"""Errors of settings: one line, the same from a recipe, a command line and Python."""

import pickle

import pytest

import sampler
from sampler.errors import InputError
from sampler.settings.recipe import load_recipe
from sampler.settings.toml import toml_text

SHORTEST = {"name": "a", "task": {"kind": "markov_chain"}, "network": {"widths": 3}}

# Sections, the setting that is refused, and settings that the remedy names.
CONFLICTS = [
    ({"sampler": {"until": "trusted", "draws": 9}}, "sampler.draws", ()),
    ({"sampler": {"until": "trusted", "chains": 1}}, "sampler.chains", ()),
    ({"sampler": {"algorithm": "tempered", "warmup": 2}}, "sampler.warmup", ()),
    ({"sampler": {"evidence": True, "space": "weights"}}, "sampler.evidence", ()),
    ({"network": {"widths": "infinite", "norm": "after"}}, "network.widths", ("network.norm",)),
    (
        {"network": {"widths": 3, "residual": True}, "sampler": {"points": "selected"}},
        "sampler.points",
        ("network.residual",),
    ),
    ({"attention": {"heads": [["god"]]}}, "attention.heads[0][0]", ()),
    ({"attention": {"lag": 3}}, "attention.lag", ()),
    ({"attention": {"learned": {"rank": 2}}}, "attention.learned.rank", ()),
    ({"task": {"kind": "markov_chain", "tokns": 3}}, "task.tokns", ("task.tokens",)),
    ({"network": {}}, "network.widths", ()),
    ({"network": {"width": 3}}, "network.width", ("network.widths",)),
    ({"network": {"widths": 3, "temperature": 1}}, "network.temperature", ("posterior.t",)),
    ({"network": {"widths": 3, "mlp": {"width": 2, "activaton": "erf"}}},
     "network.mlp.activaton", ("network.mlp.activation",)),
    ({"network": {"widths": 3, "hypernetwork": [True]}}, "network.hypernetwork", ()),
    ({"network": {"widths": 3, "residual": 1}}, "network.residual", ()),
    ({"network": {"widths": 3, "mlp": 3}}, "network.mlp", ()),
    ({"network": 3}, "network", ()),
    ({"samplr": {"draws": 3}}, "samplr", ("sampler",)),
]  # fmt: skip


@pytest.mark.parametrize(("sections", "field", "named"), CONFLICTS)
def test_a_conflict_names_setting_value_and_remedy_the_same_way_everywhere(
    sections, field, named, tmp_path
):
    with pytest.raises(InputError) as caught:
        sampler.Recipe(**SHORTEST | sections)
    problem = caught.value
    assert problem.field == field
    assert str(problem).startswith(f"{field} = ")
    assert all(other in problem.remedy for other in named)
    assert str(pickle.loads(pickle.dumps(problem))) == str(problem)
    assert problem.__context__ is None  # which holds it, and is pickled by Dask
    path = tmp_path / "recipe.toml"
    path.write_text(toml_text(SHORTEST | sections), encoding="utf-8")
    with pytest.raises(InputError) as of_file:
        sampler.Recipe.load(path)
    assert str(of_file.value) == str(problem)


ALONE = [
    (lambda: sampler.Network(widht=3), "network.widht", "network.widths"),
    (lambda: sampler.Posterior(temperature=-1), "posterior.temperature", ""),
    (lambda: sampler.MarkovChain(tokns=3), "task.tokns", "task.tokens"),
    (lambda: sampler.LearnedAttention(rnak=3), "attention.learned.rnak", "attention.learned.rank"),
    (lambda: sampler.Digits(classes=(1, 1)), "task.classes", ""),
    (lambda: sampler.TimeSeries(period=10), "task.period", ""),
    (lambda: sampler.Arrays(inptus=[[1.0]]), "inptus", "inputs"),
    (lambda: sampler.Arrays(), "task.path", ""),
]


@pytest.mark.parametrize(("make", "field", "meant"), ALONE)
def test_a_section_alone_is_refused_as_in_a_recipe(make, field, meant):
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.field == field
    assert meant in caught.value.remedy


def test_an_error_about_another_name():
    problem = InputError("network.mlp.width", 0, "use {} = true")
    assert str(problem) == "network.mlp.width = 0: use {} = true"
    assert str(problem.about("X")) == "X = 0: use {} = true"


def test_a_recipe_in_a_file_has_a_name_of_its_own(tmp_path):
    assert sampler.Recipe(task=sampler.MarkovChain(), network={"widths": 3}).name == "python"
    path = tmp_path / "recipe.toml"
    path.write_text("task.kind = 'markov_chain'\nnetwork.widths = 3\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        sampler.Recipe.load(path)
    assert caught.value.field == "name"
    assert load_recipe(path, ["name=a"]).name == "a"


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
