"""The tools of ArviZ on stored draws, whichever of its releases is installed."""

import re
import warnings

import arviz_stats
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import sampler
from sampler.storage.directory import DRAWS_FILE
from sampler.storage.result_files import write_result
from tests import ROOT

with warnings.catch_warnings():
    # What ArviZ says about its own future is not about these files.
    warnings.simplefilter("ignore")
    import arviz

U_1, U_A = ["order_parameter"], ["readout_order_parameter"]
# ArviZ 0.23 is one package, from 1.0 on it consists of three, which Python 3.11 has beside it.
BEFORE_1 = hasattr(arviz, "plot_posterior")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Files of draws of the order parameters, and of all weights."""
    found = {}
    recipe = sampler.Recipe(
        task=sampler.MarkovChain(examples_train=12, examples_test=10, tokens=6),
        attention={"heads": [["good", "uniform"], ["uniform"]]},
        network={"widths": 4},
        posterior={"temperature": 1.0},
    )
    for space in ("order_parameters", "weights"):
        draws = sampler.sample(recipe, space=space, draws=100, warmup=100, progress=False)
        folder = tmp_path_factory.mktemp(space)
        write_result(folder, DRAWS_FILE, draws)
        found[space] = folder / DRAWS_FILE
    return found


@pytest.fixture(autouse=True)
def _quiet():
    """Ignore words of ArviZ about itself and about few draws; leave no figure open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    plt.close("all")


@pytest.fixture(scope="module")
def opened(stored):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {space: arviz.from_netcdf(file) for space, file in stored.items()}


@pytest.fixture(scope="module")
def trees(stored):
    return {n: xr.open_datatree(file, engine="h5netcdf").load() for n, file in stored.items()}


def test_a_summary_is_a_screenful(opened, trees):
    """Every element of the order parameters, and no test example."""
    for tables in (arviz.summary(opened["weights"]), arviz_stats.summary(trees["weights"])):
        assert len(tables) == 4 + 1 + 1
        assert any(str(name).startswith("order_parameter[good, good]") for name in tables.index)


@pytest.mark.parametrize("space", ["order_parameters", "weights"])
def test_leave_one_out_needs_no_names(space, opened, trees):
    ours = trees[space]["leave_one_out"]
    for loo in (
        arviz.loo(opened[space], pointwise=True),
        arviz_stats.loo(trees[space], pointwise=True),
    ):
        # ArviZ judges the worth of draws by those of the posterior, we by likelihoods.
        np.testing.assert_allclose(
            loo.elpd_i if hasattr(loo, "elpd_i") else loo.loo_i,
            ours["elpd"],
            atol=3 * float(ours["mcse"].max()),
        )
    pit = arviz_stats.loo_pit(trees[space])["y"]
    assert pit.sizes == {"example": 12}
    assert ((pit >= 0) & (pit <= 1)).all()
    table = arviz_stats.compare({"one": trees[space], "other": trees["weights"]})
    assert set(table.index) == {"one", "other"}


def test_sensitivity_to_the_likelihood_is_that_of_the_joint_one_given_weights(trees):
    tree = trees["weights"]
    joint = tree["sample_stats"]["lp"] - tree["log_prior"]["log_prior"]
    np.testing.assert_allclose(tree["log_likelihood"]["y"].sum("example"), joint, rtol=1e-4)
    found = arviz_stats.psense(tree, var_names=U_A, group="likelihood")
    assert found["readout_order_parameter"].values.item() >= 0.0


# The site runs it, with its figures, in the releases before 1.0.
@pytest.mark.slow
@pytest.mark.skipif(BEFORE_1, reason="the site runs the tutorial with these releases")
def test_the_tutorial_runs(monkeypatch):
    page = ROOT / "docs" / "tutorials" / "arviz.md"
    cell = re.compile(r"```{code-cell} ipython3\n(?::.*\n)*(.*?)```", re.DOTALL)
    cells = cell.findall(page.read_text("utf-8"))
    assert cells
    monkeypatch.chdir(page.parent)  # cells begin in the folder of the page
    exec("\n".join(cells), {})
