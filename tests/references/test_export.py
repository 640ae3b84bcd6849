"""The folder in posteriordb's layout, read back with NumPy alone, and what the page fits."""

import json
import zipfile
from importlib.util import module_from_spec, spec_from_file_location

import numpy as np
import pytest

import sampler
from runs.references import export, make, page
from runs.references.values import compared, shortened, stored
from sampler.errors import RequeueError

SMALL, OPEN, PUBLISHED = "linear_one_layer", "copy_jump", "markov_published"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("posteriordb")
    written = export.export_all(target, [SMALL, OPEN, PUBLISHED, "infinite_width"])
    assert written == [SMALL, OPEN, PUBLISHED]
    return target


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [SMALL, OPEN, PUBLISHED])
def test_an_exported_density_is_that_of_the_check_values(folder, name):
    """Model code, data and dimensions are found as posteriordb's readers find them."""
    posterior = read(folder / f"posteriors/{name}-attention_network.json")
    model = read(folder / f"models/info/{posterior['model_name']}.info.json")
    spec = spec_from_file_location("exported", folder / model["model_code"]["numpy"])
    code = module_from_spec(spec)
    spec.loader.exec_module(code)
    info = read(folder / f"data/info/{posterior['data_name']}.info.json")
    with zipfile.ZipFile(folder / f"{info['data_file']}.zip") as file:
        (inside,) = file.namelist()
        assert inside == f"{name}.json"
        problem = code.of_data(json.loads(file.read(inside)))
    for check in problem["checks"]:
        point = code.check_point(problem, check["seed"])
        assert point.size == sum(posterior["dimensions"].values())
        assert code.log_density(problem, point) == pytest.approx(check["log_density"], rel=1e-12)


def test_an_exported_posterior_has_the_statistics_of_the_reference(folder):
    posterior = read(folder / f"posteriors/{SMALL}-attention_network.json")
    statistics = folder / "reference_posteriors/summary_statistics"
    name = posterior["reference_posterior_name"]
    known = sampler.reference(SMALL).values
    for what in ("mean", "sd", "quantiles"):
        found = read(statistics / what / what / f"{name}.json")
        assert len(found["names"]) == len(found[what]) == len(found[f"mcse_{what}"])
        row = found["names"].index("predictor_mean[3]")
        assert found[what][row] == known["predictor_mean"][what][2]
        assert found[f"mcse_{what}"][row] == known["predictor_mean"]["mcse"][what][2]
    assert read(statistics / "mean" / "info" / f"{name}.info.json")["checks_made"]


def test_the_slowest_functional_is_the_sum_that_is_exported_beside_it(folder):
    """A mean of a linear function is that function of the means."""
    statistics = folder / "reference_posteriors/summary_statistics/mean"
    info = read(statistics / f"info/{PUBLISHED}-attention_network.info.json")
    found = read(statistics / f"mean/{PUBLISHED}-attention_network.json")
    means = dict(zip(found["names"], found["mean"], strict=True))
    for number, (name, coefficients) in enumerate(info["slowest"].items(), start=1):
        expected = sum(c * means[f"{name}[{n}]"] for n, c in enumerate(coefficients, start=1))
        assert means[f"slowest[{number}]"] == pytest.approx(expected, rel=1e-6)
    assert f"slowest[{number + 1}]" not in means


def test_an_open_problem_is_exported_without_a_reference_and_one_without_weights_is_not(folder):
    posterior = read(folder / f"posteriors/{OPEN}-attention_network.json")
    assert posterior["reference_posterior_name"] is None
    assert not list(folder.rglob("*infinite_width*"))
    assert read(folder / "version.json")["posteriors"] == [SMALL, OPEN, PUBLISHED]


def test_an_exponent_is_that_of_power_laws_with_prefactors_of_their_own(rng):
    widths = np.array([4.0, 16.0, 64.0])
    exact = [np.stack([widths, c * widths**-2]) for c in (0.3, 2.0)]
    slope, error = page.exponent(exact)
    assert slope == pytest.approx(-2.0, abs=1e-12)
    assert error == pytest.approx(0.0, abs=1e-12)
    z = []
    for _ in range(400):
        noise = np.exp(0.2 * rng.standard_normal((8, 3)))
        groups = [np.stack([widths, c * widths**-1 * one])
                  for c, one in zip(range(1, 9), noise, strict=True)]  # fmt: skip
        slope, error = page.exponent(groups)
        z.append((slope + 1) / error)
    # The variance of t with 15 degrees is 15/13; of 400 numbers it is known to a twelfth.
    assert np.mean(np.square(z)) == pytest.approx(15 / 13, rel=0.3)
    assert page.exponent([exact[0][:, :1]]) is None


def test_a_value_that_many_draws_have_is_no_disagreement(rng):
    """As a kernel of ReLU values is 0 where no unit is active: with the probability 0.15 here."""
    one, other = (
        np.where(rng.random(shape) < 0.15, 0.0, rng.exponential(size=shape))
        for shape in ((10, 1000, 2), (10, 500, 2))
    )
    known = shortened(stored({"kernel": one}, "kernel", exact=False))
    z = compared({"kernel": known}, {"kernel": (other, None)}, means_only=False)["kernel"]
    assert np.abs(z[[0, 1, 4, 5, 6, 7, 8]]).max() < 4.5
    assert np.allclose(np.array(known["probabilities"])[:, 0], 0.15, atol=4.5 * 0.0036)


class Begun(Exception):
    """Something is computed."""


def test_a_record_without_values_is_made_again_and_one_with_them_is_not(tmp_path, monkeypatch):
    """An interrupted command leaves such a record behind."""
    one = sampler.reference(SMALL)
    source = make.FOLDER / f"{SMALL}.toml"
    (tmp_path / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(make, "FOLDER", tmp_path)

    def begin(name, recipe):
        raise Begun

    monkeypatch.setattr(make, "described", begin)
    target = tmp_path / f"{SMALL}.json"
    target.write_text(json.dumps(one.record), encoding="utf-8")
    make.make(SMALL)
    without = {key: value for key, value in one.record.items() if key != "values"}
    target.write_text(json.dumps(without), encoding="utf-8")
    with pytest.raises(Begun):
        make.make(SMALL)


def test_a_signal_ends_the_command_and_not_the_problem_alone(tmp_path, monkeypatch):
    made = []

    def stop(name):
        made.append(name)
        raise RequeueError("SIGTERM")

    monkeypatch.setattr(make, "FOLDER", tmp_path)
    monkeypatch.setattr(make, "make", stop)
    monkeypatch.setattr("sys.argv", ["make", "first", "second"])
    with pytest.raises(RequeueError):
        make.main()
    assert made == ["first"]
