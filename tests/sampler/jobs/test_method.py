"""Space and algorithm of a recipe that leaves them open."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.analysis.results import RunResults
from sampler.data.examples import Examples, attended_by_numpy
from sampler.jobs.method import NAMED, SamplingMethod, ranked, warmup_of
from sampler.jobs.plan import SharedData, plan_with_data
from sampler.jobs.sizes import Sizes, leading_eigenvalue
from sampler.problem import build_problem
from sampler.settings.sampler import DEFAULT_WARMUP
from sampler.storage.manifest import read_manifest, write_manifest
from tests.assertions import assert_equal_to_rounding
from tests.commands import TINY, in_process, loader
from theory import Architecture, OrderParameters, attended_inputs

RECIPE = TINY + "chains = 2\nwarmup = 4\ndraws = 4\n"
RELU, LEARNED = "network.values=relu", 'attention.heads=[["learned", "uniform"]]'


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """The recipe with some settings, and its data."""
    return loader(tmp_path_factory.mktemp("choice"), RECIPE)


def choose(recipe, task) -> SamplingMethod:
    """Space and algorithm of a recipe with its data."""
    return plan_with_data("run", recipe, None, SharedData("", task)).method


@pytest.mark.parametrize("most", [400, 4])
def test_stiffness_is_that_of_the_kernel_at_infinite_width(most, load, monkeypatch):
    """Of a part of the examples as well as of all; steps in the space of weights follow from it."""
    monkeypatch.setattr("sampler.jobs.sizes.MOST_EXAMPLES", most)
    recipe, task = load("posterior.temperature=0.2", "network.variances=[0.5, 2.0, 3.0, 1.5]")
    problem = build_problem(recipe, task).learning
    chosen = np.linspace(0, 5, min(most, 6)).astype(int)
    factor = OrderParameters.gp_limit(problem.architecture).factors[0]
    kernel = np.asarray(problem.energy.kernels.kernel(factor))[np.ix_(chosen, chosen)]
    expected = np.linalg.eigvalsh(kernel)[-1] / 0.2 * 6 / len(chosen)
    sizes = Sizes.of(recipe, task, leading_eigenvalue(task, recipe))
    assert sizes.stiffness == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_padding_is_not_read_where_the_stiffness_is_estimated(readout, rng):
    """What is attended to at the end of every path, as the theory has it."""
    inputs, lengths = rng.standard_normal((3, 4, 5)), np.array([4, 2, 1])
    real = np.arange(4) < lengths[:, None]
    matrices = [rng.random((3, heads, 4, 4)) for heads in (2, 3)]
    attention = tuple(one * (real[:, None, :, None] | ~real[:, None, None, :]) for one in matrices)
    split = Examples(inputs, None, attention, lengths)
    arrays = jax.tree.map(jnp.asarray, (inputs, attention))
    expected = attended_inputs(*arrays, readout, jnp.asarray(lengths))
    received = attended_by_numpy(split, readout, (False, False))
    assert_equal_to_rounding(received, expected, operations=50)


def test_what_the_recipe_names_is_taken_and_settings_restrict_the_rest(load):
    choice = choose(*load("sampler.space=weights", "sampler.algorithm=hmc"))
    assert (choice.space, choice.algorithm, choice.reason) == ("weights", "hmc", NAMED)
    for setting, space in (
        ("sampler.evidence=true", "order_parameters"),
        (RELU, "hidden_weights"),
        (LEARNED, "order_parameters"),
    ):
        assert choose(*load(setting, "sampler.draws=8")).space == space


@pytest.mark.parametrize(
    ("space", "algorithm", "further", "warmup", "acceptance"),
    [
        ("order_parameters", "split_hmc", (), 50, 0.95),
        ("order_parameters", "nuts", (), 150, 0.8),
        ("weights", "split_hmc", (), 200, 0.95),
        ("hidden_weights", "split_hmc", (), 400, 0.95),
        ("weights", "split_hmc", (RELU,), 500, 0.8),
        ("hidden_weights", "split_hmc", (RELU,), 400, 0.8),
        ("hidden_weights", "split_hmc", (RELU, "sampler.target_acceptance=0.6"), 400, 0.6),
        ("order_parameters", "split_hmc", (LEARNED,), 150, 0.95),
        ("weights", "split_hmc", (LEARNED,), 500, 0.95),
    ],
)
def test_warmup_and_acceptance_are_as_the_meaning_of_the_settings_says(
    space, algorithm, further, warmup, acceptance, load
):
    """The Hessian of fixed attention is known; trajectories outside the theory are less exact."""
    recipe, task = load(f"sampler.space={space}", f"sampler.algorithm={algorithm}", *further)
    assert choose(recipe, task).warmup == 4, "the recipe's own"
    open_one = recipe.model_copy(
        update={"sampler": recipe.sampler.model_copy(update={"warmup": None})}
    )
    planned = plan_with_data("run", open_one, None, SharedData("", task)).recipe.sampler
    assert planned.warmup_steps == warmup
    assert planned.values_for(algorithm)["target_acceptance"] == acceptance
    # A run that was begun keeps to what it began with.
    earlier = SamplingMethod(space, algorithm, "of an earlier version")
    assert earlier.applied_to(open_one).sampler.warmup_steps == DEFAULT_WARMUP[space]


def test_warmup_is_short_only_where_the_hessian_is_known():
    """256 paths have 33,033 order parameters; those of 16 paths are singular at N = 10."""
    found = [
        warmup_of("order_parameters", "split_hmc", Architecture.uniform(heads, width, channels=64))
        for heads, width in (((4, 4), 100), ((16, 16), 1000), ((4, 4), 10))
    ]
    assert found == [50, 150, 150]


@pytest.mark.slow
def test_a_recorded_choice_is_used_whatever_would_be_chosen_now(tmp_path):
    file, out = tmp_path / "tiny.toml", tmp_path / "out"
    file.write_text(RECIPE)
    assert in_process("solve", file, "--out", out) == 0
    assert read_manifest(out).choice is None
    earlier = {"space": "weights", "algorithm": "hmc", "reason": "of an earlier version"}
    write_manifest(out, read_manifest(out).model_copy(update={"choice": earlier}))
    assert in_process("sample", file, "--out", out) in (0, 3)
    found = RunResults(out)
    assert found.space == "weights"
    assert found.draws["sample_stats"].attrs["algorithm"] == "hmc"


BOTH = {("order_parameters", "split_hmc"), ("order_parameters", "nuts")}
TRAJECTORIES = {("order_parameters", "split_hmc")}
OF_WEIGHTS = {("weights", "split_hmc")}


@pytest.mark.parametrize(
    ("heads", "width", "channels", "outputs", "examples", "stiffness", "fast"),
    [
        ((2, 2), 2, 231, 1, 100, 3438.0, BOTH),
        ((2, 1), 10, 231, 1, 100, 2885.0, BOTH),
        ((2, 1), 100, 231, 1, 100, 2885.0, BOTH),
        ((2, 2), 10, 231, 1, 100, 3438.0, TRAJECTORIES),
        ((2, 2), 100, 231, 1, 100, 3438.0, BOTH),
        ((4, 4), 10, 64, 1, 600, 74.98, OF_WEIGHTS),
        ((4, 4), 100, 64, 1, 600, 74.98, TRAJECTORIES | OF_WEIGHTS),
        ((4, 4), 10_000, 64, 1, 600, 74.98, TRAJECTORIES),
        ((2,), 100, 80, 10, 60, 11.73, OF_WEIGHTS),
        ((8, 8), 100, 64, 1, 200, 30.8, TRAJECTORIES | OF_WEIGHTS),
        ((1,) * 6, 20, 40, 1, 100, 22.97, TRAJECTORIES | OF_WEIGHTS),
    ],
)
def test_the_choice_is_one_of_those_measured_to_be_fast(
    heads, width, channels, outputs, examples, stiffness, fast
):
    """At most twice the time of the fastest chain to 1,200 effective draws, everything included."""
    network = Architecture.uniform(heads, width, channels=channels, outputs=outputs)
    sizes = Sizes(network, examples, observed=100, stiffness=stiffness)
    (chosen, _), *_ = ranked(sizes, ("order_parameters", "weights"))
    assert chosen in fast
