"""The exported posterior: from tasks, runs and recipes, and what is refused."""

import jax
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import sampler
from sampler.errors import InputError
from tests.commands import SMALLEST
from tests.pages import STORED

TASK = {
    "examples_train": 6, "examples_test": 10, "tokens": 4, "features": 6,
    "heads": [["good", "uniform"], ["uniform"]],
}  # fmt: skip
NETWORK = {"widths": 3, "temperature": 1.0}


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
def test_tasks_and_recipes_have_one_posterior(chosen, tmp_path):
    space = "weights"
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
def test_more_examples_than_features_keep_their_labels():
    task = sampler.markov_chain_task(**{**TASK, "examples_train": 60})
    network = sampler.make_network(**NETWORK)
    for space in ("hidden_weights", "order_parameters"):
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
    of_model, of_function = joint(task, network, space="hidden_weights")
    assert of_model == pytest.approx(of_function, rel=1e-10)
    model, kwargs = sampler.numpyro_model(task, network, sites=["predictor"])
    new = kwargs["space"].data.tokens_test
    seeded = handlers.seed(model, 0)
    sites = handlers.trace(seeded).get_trace(**kwargs, inputs_new=new)
    assert "order_parameter" not in sites
    assert sites["predictor"]["value"].shape == sites["y_new"]["value"].shape == (10,)
    for function in (sampler.numpyro_model, sampler.log_density):
        with pytest.raises(InputError, match=r"^space = "):
            function(task, network, "order_parameters")


def test_what_has_no_posterior_is_refused_by_its_setting(
    chosen, tmp_path, monkeypatch, without_annotation_checks
):
    def refused(*arguments, **keywords) -> str:
        with pytest.raises(InputError) as caught:
            sampler.log_density(*arguments, **keywords)
        return str(caught.value).partition(" = ")[0]

    recipe = tmp_path / "swept.toml"
    recipe.write_text(f"{SMALLEST}[sweep]\n'network.widths' = [2, 3]\n")
    for setting, arguments in {
        "network": chosen[:1], "task": (3,), "DIR": (tmp_path,), "space": (*chosen, "both"),
        "sweep": (recipe,),
    }.items():  # fmt: skip
        assert refused(*arguments) == setting
    assert refused(*chosen, settings={"network.widths": 2}) == "settings"
    assert sampler.log_density(recipe, settings={"network.widths": 2}) is not None
    monkeypatch.setattr("sampler.jobs.memory.available_bytes", lambda: 2.0**20)
    assert refused(*chosen) == "memory"


# Settings of JAX as strict as they go, other random numbers, and products of another precision.
STRICT = {
    "jax_numpy_rank_promotion": "raise",
    "jax_numpy_dtype_promotion": "strict",
    "jax_threefry_partitionable": False,
    "jax_default_prng_impl": "rbg",
    "jax_random_seed_offset": 7,
    "jax_high_dynamic_range_gumbel": True,
    "jax_enable_custom_prng": True,
    "jax_legacy_prng_key": "error",
    "jax_default_matmul_precision": "bfloat16",
    "jax_disable_jit": True,
    "jax_no_tracing": True,
    "jax_no_execution": True,
    "jax_enable_checks": True,
    "jax_check_tracer_leaks": True,
    "jax_debug_nans": True,
    "jax_debug_infs": True,
    "jax_debug_key_reuse": True,
    "jax_error_checking_behavior_nan": "raise",
    "jax_error_checking_behavior_oob": "raise",
    "jax_error_checking_behavior_divide": "raise",
    "jax_thread_guard": True,
    "jax_transfer_guard": "disallow",
}


@pytest.fixture
def strictly():
    """A function that makes these settings, for the whole process."""
    before = {name: getattr(jax.config, name) for name in STRICT}

    def make(*names: str) -> None:
        for name in names:
            jax.config.update(name, STRICT[name])

    yield make
    for name, value in before.items():
        jax.config.update(name, value)


def solved_and_sampled(task, network) -> list[np.ndarray]:
    """U_1 of theory and draws, in the space of all weights in single precision."""
    few = {"chains": 2, "warmup": 2, "draws": 4, "algorithm": "hmc", "leapfrog_steps": 2}
    few |= {"progress": False}
    theory = sampler.solve(task, network, starts=1)
    draws = [
        sampler.sample(task, network, space="order_parameters", **few),
        sampler.sample(task, network, space="weights", precision="float32", **few),
    ]
    tables = [theory, *(one["posterior"] for one in draws)]
    return [one["order_parameter"].values for one in tables]


@pytest.mark.heavy
def test_settings_of_the_process_change_no_number(chosen, strictly):
    """What is handed out keeps to all but a guard of transfers, which it names."""
    expected, handed_out = solved_and_sampled(*chosen), joint(*chosen, space="order_parameters")
    strictly("jax_numpy_rank_promotion", "jax_numpy_dtype_promotion")
    received = joint(*chosen, space="order_parameters")
    assert received == pytest.approx(handed_out, rel=1e-12)
    strictly(*STRICT)
    with pytest.raises(InputError, match=r"^jax_transfer_guard = 'disallow'"):
        sampler.log_density(*chosen)
    for received, values in zip(solved_and_sampled(*chosen), expected, strict=True):
        np.testing.assert_array_equal(received, values)


def test_64_bits_are_asked_for_before_anything_is_done(chosen):
    with jax.enable_x64(False):
        with pytest.raises(InputError, match=r"^precision = "):
            sampler.log_density(*chosen)
        assert not jax.config.jax_enable_x64
