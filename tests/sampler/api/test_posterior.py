"""The exported posterior: from tasks, runs and recipes, and what is refused."""

import jax
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import sampler
from sampler.errors import InputError
from sampler.jobs import forecast
from tests.commands import SMALLEST
from tests.pages import STORED

TASK = {
    "examples_train": 6, "examples_test": 10, "tokens": 4, "features": 6,
    "heads": [["good", "uniform"], ["uniform"]],
}  # fmt: skip
NETWORK = {"widths": 3, "temperature": 1.0}
SPACES = ("weights", "hidden_weights", "order_parameters")


@pytest.fixture(scope="module")
def chosen():
    return sampler.markov_chain_task(**TASK), sampler.make_network(**NETWORK)


def joint(*source, space, **settings) -> tuple[float, float]:
    """The joint density of model and function at one point."""
    flat = sampler.log_density(*source, space=space, **settings)
    model, kwargs = sampler.numpyro_model(*source, space=space, **settings)
    point = flat.start(jax.random.key(1))
    return float(log_density(model, (), kwargs, flat.sites(point))[0]), float(flat(point))


@pytest.mark.heavy
@pytest.mark.parametrize("space", SPACES)
def test_tasks_and_recipes_have_one_posterior(space, chosen, tmp_path):
    of_model, of_function = joint(*chosen, space=space)
    assert of_model == pytest.approx(of_function, rel=1e-10)
    recipe = tmp_path / "tiny.toml"
    # What it says of sampling, which this space would refuse, has no part.
    recipe.write_text(f"{SMALLEST}[sampler]\nspace = 'order_parameters'\nevidence = true\n")
    assert joint(recipe, space=space) == pytest.approx((of_model, of_function), rel=1e-13)
    wider, _ = joint(recipe, space=space, settings={"network.widths": 4})
    network = sampler.make_network(widths=4, temperature=1.0)
    assert wider == pytest.approx(joint(chosen[0], network, space=space)[0], rel=1e-13)


@pytest.mark.heavy
def test_a_run_has_the_posterior_of_its_recipe():
    of_directory = joint(STORED, space="order_parameters")
    of_recipe = joint(STORED / "recipe.toml", space="order_parameters")
    of_run = joint(sampler.open_results(STORED), space="order_parameters")
    assert of_directory == of_recipe == of_run


@pytest.mark.heavy
def test_defaults_are_all_weights_and_order_parameters(chosen):
    model, kwargs = sampler.numpyro_model(*chosen)
    sites = handlers.trace(handlers.seed(model, 0)).get_trace(**kwargs)
    assert set(kwargs) == {"inputs", "labels", "temperature", "variances"}
    names = [name for name, site in sites.items() if site["type"] == "sample"]
    assert names == ["V_0", "V_1", "V_2", "a", "y"]
    assert sampler.log_density(*chosen).space == "order_parameters"
    with_sites, kwargs = sampler.numpyro_model(*chosen, sites=["predictor"])
    sites = handlers.trace(handlers.seed(with_sites, 0)).get_trace(**kwargs)
    assert sites["predictor"]["value"].shape == (10,)


@pytest.mark.heavy
def test_more_examples_than_features_keep_their_labels():
    task = sampler.markov_chain_task(**{**TASK, "examples_train": 60})
    network = sampler.make_network(**NETWORK)
    for space in SPACES:
        model, kwargs = sampler.numpyro_model(task, network, space)
        np.testing.assert_array_equal(kwargs["labels"], task.data.train.labels[:, 0])
        of_model, of_function = joint(task, network, space=space)
        assert of_model == pytest.approx(of_function, rel=1e-10)
        free = handlers.seed(model, 0)
        trace = handlers.trace(free).get_trace(**{**kwargs, "labels": None})
        assert trace["y"]["value"].shape == (60,)


@pytest.mark.heavy
def test_a_network_outside_the_theory_has_hidden_weights_and_all(chosen, without_annotation_checks):
    task, _ = chosen
    block = {"norm": "before", "residual": True, "mlp": {"width": 2, "activation": "gelu"}}
    network = sampler.make_network(widths=3, temperature=0.5, values="relu", **block)
    for space in SPACES[:2]:
        of_model, of_function = joint(task, network, space=space)
        assert of_model == pytest.approx(of_function, rel=1e-10)
    model, kwargs = sampler.numpyro_model(task, network, sites=["predictor"])
    new = kwargs["inputs_test"]
    seeded = handlers.seed(model, 0)
    sites = handlers.trace(seeded).get_trace(**kwargs, inputs_new=new)
    assert "order_parameter" not in sites
    assert sites["predictor"]["value"].shape == sites["y_new"]["value"].shape == (10,)
    for space in SPACES[2:]:
        for function in (sampler.numpyro_model, sampler.log_density):
            with pytest.raises(InputError, match='has no order parameters; use "hidden_weights"'):
                function(task, network, space)


def refusal(function, *arguments, **keywords) -> str:
    with pytest.raises(InputError) as caught:
        function(*arguments, **keywords)
    return str(caught.value)


@pytest.mark.parametrize("function", [sampler.numpyro_model, sampler.log_density])
def test_what_cannot_be_used_is_refused(
    function, chosen, tmp_path, monkeypatch, without_annotation_checks
):
    task, network = chosen
    assert refusal(function, task) == "network = (absent): make it with make_network(widths=…)"
    assert "changes a recipe" in refusal(function, task, network, settings={"network.widths": 2})
    assert "the run or recipe has one" in refusal(function, {}, network)
    assert "give a task, a run, its directory, or a recipe" in refusal(function, 3)
    assert "holds no recipe.toml" in refusal(function, tmp_path)
    assert "space = 'both'" in refusal(function, task, network, "both")
    recipe = tmp_path / "swept.toml"
    recipe.write_text(f"{SMALLEST}[sweep]\n'network.widths' = [2, 3]\n")
    expected = "sweep = 'network.widths': one network is needed; give each of these keys a value"
    assert expected in refusal(function, recipe)
    assert function(recipe, settings={"network.widths": 2}) is not None
    monkeypatch.setattr(forecast, "available_bytes", lambda: 2.0**20)
    assert refusal(function, task, network).startswith("memory = ")


@pytest.mark.parametrize("function", [sampler.numpyro_model, sampler.log_density])
def test_64_bits_are_asked_for_before_anything_is_done(function, chosen):
    with jax.enable_x64(False):
        expected = "precision = 'float32': factorising K + 𝒯 1 needs 64 bits; call "
        assert refusal(function, *chosen).startswith(f"{expected}numpyro.enable_x64()")
        assert not jax.config.jax_enable_x64


def test_a_model_of_all_labels_holds_all_examples(monkeypatch):
    """Rows stand for 60 examples elsewhere; the model has Π D numbers of each as well."""
    task = sampler.markov_chain_task(**{**TASK, "examples_train": 60})
    network = sampler.make_network(**NETWORK)
    wanted = []
    monkeypatch.setattr("sampler.jobs.forecast.refuse_what_does_not_fit", wanted.append)
    for function in (sampler.log_density, sampler.numpyro_model):
        function(task, network)
    rows, whole = (sum(part.copies * part.bytes for part in parts) for parts in wanted)
    (added,) = (part for part in wanted[1] if part.name == "attended inputs of all examples")
    assert added.bytes == 8 * 60 * 2 * task.data.channels
    assert whole > rows
