"""Stored reference posteriors: three densities that agree, data, sizes, and scores that tell."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from numpyro.infer.util import log_density

import sampler
from runs.references.make import bridged_evidence
from runs.references.truths import scalars
from sampler.api.references import FOLDER, arrays_of, plain_density
from sampler.errors import InputError
from tests.problems import all_but

NAMES = sampler.references()
WITH_WEIGHTS = [name for name in NAMES if sampler.reference(name).record["checks"]]
SMALL = "linear_one_layer"
SEVERAL = "linear_two_layers"
FEW = [SMALL, "temperature_prior", "learned_copy"]
MOST_BYTES = 60_000


def test_every_problem_is_a_recipe_with_values_of_a_known_size():
    assert set(NAMES) <= {path.stem for path in FOLDER.glob("*.toml")}
    for name in NAMES:
        text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
        assert len(text.encode()) <= MOST_BYTES, name
        assert json.loads(text)["recipe"] == sampler.reference(name).recipe.hash8, name
    sizes = [path.stat().st_size for path in FOLDER.iterdir() if path.is_file()]
    assert sum(sizes) <= 3_000_000


def test_a_name_that_is_none_is_refused():
    with pytest.raises(InputError, match="linear_one_layer"):
        sampler.reference("markov")


@pytest.mark.slow
@pytest.mark.parametrize("name", all_but(NAMES, FEW, pytest.mark.nightly))
def test_data_are_those_that_the_recipe_makes(name):
    one = sampler.reference(name)
    stored, made = one.plain["arrays"], arrays_of(one.recipe)
    assert stored.keys() == made.keys()
    for key, array in made.items():
        np.testing.assert_allclose(stored[key].ravel(), array.ravel(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_a_density_has_its_check_values_in_numpy(name):
    one, density = sampler.reference(name), plain_density()
    checks = one.record["checks"]
    assert len(checks) == 5
    for check in checks:
        point = density.check_point(one.plain, check["seed"])
        assert one.plain_log_density(point) == pytest.approx(check["log_density"], rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", all_but(WITH_WEIGHTS, FEW, pytest.mark.nightly))
def test_densities_of_numpy_jax_and_numpyro_are_one(name):
    one = sampler.reference(name)
    space = "attention" if one.network.is_infinite else "weights"
    flat = one.log_density(space)
    model, arguments = one.recipe.numpyro_model(space)
    density = plain_density()
    checks = one.record["checks"]
    for check in checks:
        point = density.check_point(one.plain, check["seed"])
        assert float(flat(point)) == pytest.approx(check["log_density"], rel=1e-8)
    sites = density.sites(one.plain, point)
    sites = {name: jnp.asarray(array) for name, array in sites.items()}
    of_numpyro, _ = log_density(model, (), arguments, sites)
    assert float(of_numpyro) == pytest.approx(checks[-1]["log_density"], rel=1e-8)


@pytest.mark.parametrize("name", [name for name in NAMES if not sampler.reference(name).open])
def test_ln_p_of_two_methods_agree(name):
    known = sampler.reference(name).log_evidence
    for other in known["others"]:
        away = abs(other["value"] - known["value"])
        assert away <= 4.5 * np.hypot(other["mcse"], known["mcse"]), other


def test_an_open_problem_has_densities_and_no_scores():
    one = sampler.reference("copy_jump")
    assert one.open
    assert not one.values
    with pytest.raises(InputError, match="open problem"):
        one.score({"point": np.zeros((2, 4, 48))})


def exact_draws(one, rng, factor=1.0):
    """Independent draws of U_1, by the inverse of its cumulative distribution."""
    arrays, network = one.plain["arrays"], one.record["network"]
    values, _ = scalars(
        network["widths"], network["variances"], arrays["attended_train"][:, 0],
        arrays["labels_train"][:, 0], arrays["attended_test"][:, 0], arrays["labels_test"][:, 0],
        network["temperature"],
    )  # fmt: skip
    points, weights = values["order_parameter"]
    drawn = np.interp(rng.random((4, 500)), np.cumsum(weights), points[:, 0])
    return {"order_parameter": factor * drawn[..., None, None]}


def test_exact_draws_agree_and_others_do_not(rng):
    one = sampler.reference(SMALL)
    score = one.score(exact_draws(one, rng), gradients=20_000)
    assert score.agrees
    assert score.root_mean_square < 4.5 / np.sqrt(2000)
    assert score.draws_per_gradient == score.effective_draws / 20_000
    wrong = one.score(exact_draws(one, rng, factor=1.1))
    assert not wrong.agrees
    assert wrong.draws_per_gradient is None


def test_weights_from_the_prior_have_their_functionals_and_are_no_posterior(rng):
    """Overlaps and f of weights, as a vector or by site, are those of the package."""
    one = sampler.reference(SEVERAL)
    flat = one.log_density("weights")
    points = rng.standard_normal((2, 4, flat.dimension))
    found = one.functionals({"point": points})
    seen = flat.observables(points, jax.random.key(0))
    rows, columns = np.triu_indices(seen["order_parameter"].shape[-1])
    U = seen["order_parameter"][..., rows, columns]
    np.testing.assert_allclose(found["order_parameter"], U, rtol=1e-10)
    np.testing.assert_allclose(found["predictor"], seen["predictor"], rtol=1e-9)
    sites = {name: np.stack([[np.asarray(flat.sites(p)[name]) for p in row] for row in points])
             for name in ("V_0", "V_1", "V_2", "a")}  # fmt: skip
    by_site = one.functionals(sites)
    np.testing.assert_allclose(by_site["energy"], found["energy"], rtol=1e-10)
    arrays = {
        name: (["chain", "draw", *(f"{name}_axis_{n}" for n in range(array.ndim - 2))], array)
        for name, array in sites.items()
    }
    stored = xr.Dataset(arrays)
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset(), "posterior_weights": stored})
    np.testing.assert_array_equal(one.functionals(tree)["energy"], by_site["energy"])
    with pytest.raises(InputError, match="V_0"):
        one.functionals({"a": sites["a"]})
    larger = rng.standard_normal((4, 50, flat.dimension))
    assert not one.score({"point": larger}).agrees


@pytest.mark.parametrize(
    ("judged", "field"),
    [
        ({"order_parameter": np.ones((2, 2))}, "order_parameter"),
        ({"order_parameter": 3.1}, "order_parameter"),
        ({"order_parameter": np.ones((2, 9, 2, 2))}, "order_parameter"),
        ({"predictor_mean": np.zeros(3)}, "predictor_mean"),
        ({"point": np.zeros((2, 9, 299))}, "point"),
        ({"point": np.zeros((9, 300))}, "point"),
        ({"point": np.full((2, 9, 300), np.nan)}, "point"),
        ({"U": np.ones((1, 1))}, "names"),
        (np.zeros((2, 9, 300)), "judged"),
    ],
)
def test_what_cannot_be_judged_is_refused(judged, field):
    """Of a problem of one path, one output and 300 weights."""
    with pytest.raises(InputError) as refused:
        sampler.reference(SMALL).score(judged)
    assert refused.value.field == field


def test_a_theory_of_ones_own_is_scored_as_that_of_the_package():
    one = sampler.reference(SEVERAL)
    theory = sampler.solve(one.recipe)
    scores = one.score(theory)
    assert {"leading", "next", "infinite"} <= scores.keys()
    for worse, names in (
        ("leading", ("order_parameter", "kernel")),
        ("infinite", ("predictor_mean", "predictor_variance")),
    ):
        for name in names:
            assert scores["next"][name]["error"] < scores[worse][name]["error"], name
    leading = theory.sel(predictor="leading")
    mine = {name: leading[name].values for name in ("order_parameter", "predictor_mean")}
    own = one.score(mine)
    assert own["order_parameter"] == scores["leading"]["order_parameter"]
    assert own["predictor_mean"] == scores["leading"]["predictor_mean"]
    U = one.values["order_parameter"]["mean"]
    size = leading["order_parameter"].shape[0]
    rows, columns = np.triu_indices(size)
    exact = {"order_parameter": np.zeros((size, size))}
    exact["order_parameter"][rows, columns] = exact["order_parameter"][columns, rows] = U
    assert one.score(exact)["order_parameter"]["error"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
def test_a_reference_is_found_again():
    one = sampler.reference(SMALL)
    draws = sampler.sample(one.recipe, draws=400, chains=4, seed=7, progress=False)
    score = one.score(draws, gradients=draws["posterior"].attrs["gradients"])
    assert score.agrees, str(score)
    known, found = one.log_evidence, draws["posterior"].attrs
    assert abs(found["log_evidence"] - known["value"]) <= 4.5 * found["log_evidence_error"]
    bridged = bridged_evidence(one.recipe, draws, 7)
    assert abs(bridged["value"] - known["value"]) <= 4.5 * bridged["mcse"]


def test_the_page_shows_what_is_stored():
    from runs.references.page import PAGES, records, tables, with_tables

    made = tables(records())
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert [with_tables(text, made) for text in texts] == texts
    assert all(any(f"references: {name}" in text for text in texts) for name in made)
