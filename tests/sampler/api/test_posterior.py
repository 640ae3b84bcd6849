"""The exported posterior: from tasks, runs and recipes, and what is refused."""

import jax
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import sampler
from sampler.data.make import build_task
from sampler.errors import InputError
from tests.commands import SMALLEST

RECIPE = sampler.Recipe(
    task=sampler.MarkovChain(examples_train=6, examples_test=10, tokens=4, features=6),
    attention={"heads": [["good", "uniform"], ["uniform"]]},
    network={"widths": 3},
    posterior={"temperature": 1.0},
    theory={"starts": 1},
)


def joint(recipe: sampler.Recipe, space: str) -> tuple[float, float]:
    """The joint density of model and function at one point."""
    flat = recipe.log_density(space)
    model, kwargs = recipe.numpyro_model(space)
    point = flat.start(jax.random.key(1))
    return float(log_density(model, (), kwargs, flat.sites(point))[0]), float(flat(point))


@pytest.mark.slow
def test_what_a_recipe_says_of_sampling_has_no_part_in_the_posterior(tmp_path):
    of_model, of_function = joint(RECIPE, "weights")
    assert of_model == pytest.approx(of_function, rel=1e-10)
    path = tmp_path / "tiny.toml"
    # This space would refuse it.
    path.write_text(f"{SMALLEST}[sampler]\nspace = 'order_parameters'\nevidence = true\n")
    of_file = joint(sampler.Recipe.load(path), "weights")
    assert of_file == pytest.approx((of_model, of_function), rel=1e-13)


@pytest.mark.slow
def test_more_examples_than_features_keep_their_labels():
    recipe = RECIPE.changed({"task.examples_train": 60})
    labels = build_task(recipe).train.labels[:, 0]
    for space in ("hidden_weights", "order_parameters"):
        model, kwargs = recipe.numpyro_model(space)
        np.testing.assert_array_equal(kwargs["labels"], labels)
        of_model, of_function = joint(recipe, space)
        assert of_model == pytest.approx(of_function, rel=1e-10)
        free = handlers.seed(model, 0)
        trace = handlers.trace(free).get_trace(**{**kwargs, "labels": None})
        assert trace["y"]["value"].shape == (60,)


@pytest.mark.slow
def test_a_network_outside_the_theory_has_hidden_weights_and_all(without_annotation_checks):
    block = {"norm": "before", "residual": True, "mlp": {"width": 2, "activation": "gelu"}}
    recipe = RECIPE.changed({f"network.{key}": value for key, value in block.items()})
    recipe = recipe.changed({"network.values": "relu", "posterior.temperature": 0.5})
    of_model, of_function = joint(recipe, "hidden_weights")
    assert of_model == pytest.approx(of_function, rel=1e-10)
    model, kwargs = recipe.numpyro_model(sites=["predictor"])
    new = kwargs["space"].data.tokens_test
    seeded = handlers.seed(model, 0)
    sites = handlers.trace(seeded).get_trace(**kwargs, inputs_new=new)
    assert "order_parameter" not in sites
    assert sites["predictor"]["value"].shape == sites["y_new"]["value"].shape == (10,)


# Settings of JAX as strict as they go, other random numbers, and products of another precision.
STRICT = {
    "jax_numpy_rank_promotion": "raise",
    "jax_numpy_dtype_promotion": "strict",
    "jax_threefry_partitionable": False,
    "jax_default_prng_impl": "rbg",
    "jax_random_seed_offset": 7,
    "jax_default_matmul_precision": "bfloat16",
    "jax_disable_jit": True,
    "jax_no_tracing": True,
    "jax_no_execution": True,
    "jax_debug_nans": True,
    "jax_error_checking_behavior_nan": "raise",
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


def solved_and_sampled(recipe: sampler.Recipe) -> list[np.ndarray]:
    """U_1 of theory and draws, in the space of all weights in single precision."""
    few = {"chains": 2, "warmup": 2, "draws": 4, "algorithm": "hmc", "leapfrog_steps": 2}
    few |= {"progress": False}
    theory = sampler.solve(recipe)
    draws = [
        sampler.sample(recipe, space="order_parameters", **few),
        sampler.sample(recipe, space="weights", precision="float32", **few),
    ]
    tables = [theory, *(one["posterior"] for one in draws)]
    return [one["order_parameter"].values for one in tables]


@pytest.mark.slow
def test_settings_of_the_process_change_no_number(strictly):
    """What is handed out keeps to all but a guard of transfers, which it names."""
    expected, handed_out = solved_and_sampled(RECIPE), joint(RECIPE, "order_parameters")
    strictly("jax_numpy_rank_promotion", "jax_numpy_dtype_promotion")
    received = joint(RECIPE, "order_parameters")
    assert received == pytest.approx(handed_out, rel=1e-12)
    strictly(*STRICT)
    with pytest.raises(InputError, match=r"^jax_transfer_guard = 'disallow'"):
        RECIPE.log_density()
    for received, values in zip(solved_and_sampled(RECIPE), expected, strict=True):
        np.testing.assert_array_equal(received, values)


def test_64_bits_are_asked_for_before_anything_is_done():
    with jax.enable_x64(False):
        with pytest.raises(InputError, match=r"^precision = "):
            RECIPE.log_density()
        assert not jax.config.jax_enable_x64
