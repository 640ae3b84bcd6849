"""Figures: what is drawn is what is stored, and missing tables leave out their figure only."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import xarray as xr

from sampler.analysis.compared import Compared
from sampler.analysis.estimate import Estimate
from sampler.analysis.predictive_quality import (
    PredictiveQuality,
    log_densities,
    probability_of_positive,
    quality,
    wilson_interval,
)
from sampler.analysis.results import open_run
from sampler.analysis.sweeps import SweepResults
from sampler.errors import InputError
from sampler.presentation.figures.draw import draw_figures
from sampler.presentation.figures.order_parameter import draw_order_parameter
from sampler.presentation.figures.predictions import (
    draw_accuracy_against_width,
    draw_predictor,
    draw_reliability,
)
from sampler.storage.results import to_json, write_result
from tests.commands import write_sweep as store_table
from tests.held import UNKNOWN, held

FOUR_PATHS = ("good", "adversarial 1", "denoising", "adversarial 2")
SUBNETWORKS = {"good": 0.93, "good + denoising": 0.95}
CHAINS, DRAWS, TEST_EXAMPLES, COMPONENTS, SHOWN = 4, 200, 300, 100, 6
# The synthetic runs store no energies.
CHAIN_FIGURES = {
    "order_parameter_ranks",
    "function_space_ranks",
    "ess_evolution",
    "autocorrelation",
    "traces",
    "pairs",
}
ALL_RUN_FIGURES = CHAIN_FIGURES | {
    "order_parameter",
    "predictor_mean",
    "kernels",
    "path_kernels",
    "kernel_alignment",
    "accuracy",
    "reliability",
}


def symmetric(upper: list[float], size: int) -> np.ndarray:
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = upper
    return matrix + np.triu(matrix, 1).T


# U_1 of the four-path Markov task at N = 10: mean of weight-space draws and its MCSE.
FOUR_PATH_MEAN = symmetric(
    [14.961, 0.052, -5.991, -0.460, 0.511, -0.141, 0.040, 7.240, 0.077, 0.336], 4
)
FOUR_PATH_MCSE = symmetric(
    [0.129, 0.026, 0.068, 0.019, 0.011, 0.018, 0.005, 0.070, 0.016, 0.007], 4
)


def order_parameter_tables(paths: tuple[str, ...], width: int) -> tuple[np.ndarray, ...]:
    """Mean, MCSE and theory of a U_1 that tends to the identity as the width grows."""
    size = len(paths)
    if size == 4:
        mean, mcse = FOUR_PATH_MEAN, FOUR_PATH_MCSE
    else:
        factor = np.random.default_rng(3).normal(size=(size, size))
        mean, mcse = 4.0 * factor @ factor.T / size, np.full((size, size), 0.05)
    share = 10.0 / width
    mean = share * mean + (1.0 - share) * np.eye(size)
    mcse = np.sqrt(share) * mcse
    theory = mean * (1.0 - 1.0 / width)
    return mean, mcse, theory


def quality_of(mean: np.ndarray, variance: np.ndarray, labelled: bool) -> PredictiveQuality:
    """Theory, samples and GP limit with the same predictor, on labels drawn from it."""
    if not labelled:
        return PredictiveQuality(None, None, None)
    densities = log_densities(mean[:, None], variance[:, None], 0.01)
    chosen = np.random.default_rng(5).random(mean.shape) < probability_of_positive(densities)[:, 0]
    found = quality(densities, np.where(chosen, 1.0, -1.0)[:, None])
    return PredictiveQuality(found, found, found)


def write_run(
    directory: Path,
    *,
    paths: tuple[str, ...] = FOUR_PATHS,
    width: int = 10,
    labelled: bool = True,
    compared: bool = True,
    drawn: bool = True,
    verdict: str = "pass",
    accuracy: float = 0.95,
) -> Path:
    directory.mkdir(parents=True)
    rng = np.random.default_rng(width)
    mean, mcse, theory = order_parameter_tables(paths, width)
    names = list(paths)
    predictor = rng.choice([-1.0, 1.0], TEST_EXAMPLES) + 0.45 * rng.normal(size=TEST_EXAMPLES)
    variance = 0.2 + 0.1 * rng.random(TEST_EXAMPLES)
    decay = np.exp(-np.arange(COMPONENTS) / 6.0)
    alignment = decay * np.abs(rng.normal(size=COMPONENTS))
    gp_alignment = np.abs(rng.normal(size=COMPONENTS)) / 10.0
    scored = accuracy if labelled else np.nan
    examples, shown_paths = ("shown_example", "shown_example_"), names[:4]
    features = rng.normal(size=(SHOWN, len(shown_paths), 3))
    blocks = np.einsum("xpi,yqi->pqxy", features, features)
    kernel = np.einsum("ppxy->xy", blocks)
    table_of_theory = xr.Dataset(
        {
            "order_parameter": (("path", "path_"), theory),
            "predictor_mean": ("test_example", predictor),
            "predictor_variance": ("test_example", variance),
            "kernel_alignment": ("component", alignment / np.linalg.norm(alignment)),
            "gp_kernel_alignment": ("component", gp_alignment / np.linalg.norm(gp_alignment)),
            "kernel": (examples, kernel),
            "gp_kernel": (examples, kernel / 2.0),
            "path_kernels": (("shown_path", "shown_path_", *examples), blocks),
            "labels_shown": (("shown_example", "output"), np.repeat([[1.0], [-1.0]], 3, axis=0)),
            "accuracy_theory": scored,
            "accuracy_gp": 0.826 if labelled else np.nan,
            "accuracy_diagonal_only": scored - 0.06,
            "accuracy_equal_diagonal": np.nan,
            "accuracy_gp_subnetwork": (
                "subnetwork",
                [value if labelled else np.nan for value in SUBNETWORKS.values()],
            ),
        },
        coords={
            "path": names,
            "path_": names,
            "shown_path": shown_paths,
            "subnetwork": list(SUBNETWORKS),
        },
    )
    write_result(directory, "theory.nc", table_of_theory)
    (directory / "recipe.toml").write_text(
        f'name = "synthetic"\ntask.kind = "markov_chain"\n[network]\nwidths = {width}\n'
        '[posterior]\ntemperature = 0.01\n[sampler]\nspace = "weights"\n'
    )
    if compared:
        error = 0.02 + 0.02 * rng.random(TEST_EXAMPLES)
        sampled = {"value": accuracy + 0.004, "mcse": 0.0012, "binomial_error": 0.0125}

        def table(theory: np.ndarray, sampled: np.ndarray, mcse: np.ndarray) -> dict:
            return {
                "theory": theory.tolist(),
                "sampled": sampled.tolist(),
                "mcse": mcse.tolist(),
                "difference_in_mcse": ((sampled - theory) / mcse).tolist(),
                "relative_difference": 0.02,
            }

        noisy = predictor + error * rng.normal(size=TEST_EXAMPLES)
        noisy_variance = 1.03 * variance + 0.1 * error * rng.normal(size=TEST_EXAMPLES)
        content = {
            "accuracy": {
                "theory": accuracy if labelled else None,
                "gp": 0.826 if labelled else None,
                "sampled": sampled if labelled else None,
            },
            "order_parameter": table(theory, mean, mcse),
            "predictor_mean": table(predictor, noisy, error),
            "predictor_variance": table(variance, noisy_variance, 0.1 * error),
            "predictive_quality": to_json(quality_of(predictor, variance, labelled)),
            "diagnostics": {"verdict": verdict},
            "verdict": to_json(UNKNOWN),
            "cost": {"seconds": 1.0},
        }
        (directory / "comparison.json").write_text(json.dumps(content, allow_nan=False))
    if drawn:
        noise = rng.normal(size=(CHAINS, DRAWS, len(names), len(names)))
        posterior = xr.Dataset(
            {"order_parameter": (("chain", "draw", "path", "path_"), mean + 0.5 * noise)},
            coords={
                "chain": range(CHAINS),
                "draw": range(DRAWS),
                "path": names,
                "path_": names,
            },
        )
        columns = {"centred_kernel": kernel, "centred_kernel_mcse": kernel**2}
        groups = {
            "posterior": posterior,
            "kernel": xr.Dataset({name: (examples, one) for name, one in columns.items()}),
            "constant_data": xr.Dataset({"temperature": 0.01}),
        }
        write_result(directory, "draws.nc", xr.DataTree.from_dict(groups))
    return directory


ACCURACY_AT_WIDTH = {10: 0.964, 30: 0.945, 100: 0.911, 300: 0.875, 1000: 0.845}


def write_sweep(directory: Path, rows: list[tuple[str, int]], sampled_up_to: int = 30) -> Path:
    directory.mkdir(parents=True)
    table = []
    for number, (point, width) in enumerate(rows):
        accuracy = ACCURACY_AT_WIDTH[width]
        sampled = width <= sampled_up_to
        write_run(
            directory / f"point-{number}",
            width=width,
            accuracy=accuracy,
            compared=sampled,
            drawn=sampled,
        )
        table.append(
            {
                "point": point,
                "directory": f"point-{number}",
                "width": width,
                "accuracy_theory": accuracy,
                "accuracy_gp": 0.826,
                "accuracy_sampled": accuracy + 0.004 if sampled else np.nan,
                "accuracy_sampled_mcse": 0.0012 if sampled else np.nan,
                "accuracy_sampled_binomial": 0.0062 if sampled else np.nan,
                "sampled_space": "weights" if sampled else "",
                "accuracy_diagonal_only": accuracy - 0.5 * (accuracy - 0.826),
                "accuracy_equal_diagonal": accuracy - 0.02 if width >= 100 else np.nan,
            }
            | {f"gp:{label}": value for label, value in SUBNETWORKS.items()}
        )
    store_table(directory, table, **{"sampler.seed": range(len(table))})
    return directory


def draw_run_figures(directory: Path) -> list[Path]:
    return draw_figures(directory, open_run(directory), svg=True)


def draw_sweep_figures(directory: Path) -> list[Path]:
    return draw_figures(directory, SweepResults(directory), svg=True)


def figure_names(written: list[Path]) -> set[str]:
    stems = {suffix: {p.stem for p in written if p.suffix == suffix} for suffix in (".png", ".svg")}
    assert stems[".png"] == stems[".svg"]
    assert all(path.stat().st_size > 0 for path in written)
    return stems[".png"]


def svg_text(directory: Path, name: str) -> str:
    return (directory / "figures" / f"{name}.svg").read_text(encoding="utf-8")


def shown_widths(svg: str) -> set[int]:
    """The widths named in titles; an SVG repeats each formula's source in a comment."""
    return {int(width) for width in re.findall(r"<!--.*\$N\$ = (\d+)", svg)}


@pytest.mark.heavy
def test_run_has_every_figure_with_names_numbers_and_errors(tmp_path):
    directory = write_run(tmp_path / "run")
    assert figure_names(draw_run_figures(directory)) == ALL_RUN_FIGURES
    received = svg_text(directory, "order_parameter")
    for expected in (*FOUR_PATHS, "14.96", "±0.13", "−5.991", "±0.068", "exact posterior"):
        assert expected in received, expected
    received = svg_text(directory, "accuracy")
    for expected in (
        "95.40",
        "± 0.12",
        "82.6",
        "infinite width, only good + denoising",
        "undefined",
    ):
        assert expected in received, expected


@pytest.mark.heavy
def test_same_tables_give_the_same_bytes(tmp_path):
    first, second = (draw_run_figures(write_run(tmp_path / name)) for name in ("a", "b"))
    for expected, received in zip(first, second, strict=True):
        assert expected.read_bytes() == received.read_bytes(), expected.name


@pytest.mark.usefixtures("undrawn")
def test_caller_settings_are_left_alone(tmp_path):
    expected = dict(matplotlib.rcParams)
    draw_run_figures(write_run(tmp_path / "run"))
    assert dict(matplotlib.rcParams) == expected


@pytest.mark.heavy
@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize(
    ("missing", "left_out"),
    [
        (
            {"compared": False, "drawn": False},
            {"predictor_mean", "reliability", *CHAIN_FIGURES},
        ),
        ({"compared": False}, {"predictor_mean", "reliability"}),
        ({"labelled": False}, {"accuracy", "reliability"}),
    ],
)
def test_missing_table_leaves_out_its_figure_only(tmp_path, missing, left_out):
    directory = write_run(tmp_path / "run", **missing)
    assert figure_names(draw_run_figures(directory)) == ALL_RUN_FIGURES - left_out
    if not missing.get("compared", True):
        assert "exact posterior" not in svg_text(directory, "order_parameter")


@pytest.mark.usefixtures("undrawn")
def test_draws_alone_give_the_figures_of_the_chains(tmp_path):
    directory = write_run(tmp_path / "run", compared=False)
    (directory / "theory.nc").unlink()
    assert figure_names(draw_run_figures(directory)) == CHAIN_FIGURES


@pytest.mark.heavy
@pytest.mark.usefixtures("unpainted")
def test_failed_diagnostics_are_written_into_the_figure(tmp_path):
    directory = write_run(tmp_path / "run", verdict="fail")
    draw_run_figures(directory)
    for name in ("order_parameter", "accuracy", "predictor_mean", "reliability"):
        assert "diagnostics failed" in svg_text(directory, name)


@pytest.mark.heavy
@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize("paths", [("good",), tuple(f"{h}·{k}" for h in "0123" for k in "0123")])
def test_any_number_of_paths(tmp_path, paths):
    directory = write_run(tmp_path / "run", paths=paths)
    left_out = {"pairs"} if len(paths) == 1 else set()  # one element has no other
    assert figure_names(draw_run_figures(directory)) == ALL_RUN_FIGURES - left_out
    received = svg_text(directory, "order_parameter")
    assert all(name in received for name in paths)
    # Numbers, recognised by their errors, only where they fit their cells.
    assert ("±" in received) == (len(paths) == 1)


def test_order_parameter_panels_show_the_stored_matrices():
    theory, sampled = np.array([[2.0, -1.0], [-1.0, 4.0]]), np.array([[2.5, -1.0], [-1.0, 3.0]])
    mcse = np.array([[0.25, 0.1], [0.1, 0.0]])
    figure = draw_order_parameter(
        held(
            xr.Dataset({"order_parameter": (("path", "path_"), theory)}, {"path": ["a", "b"]}),
            order_parameter=Compared(theory, Estimate(sampled, mcse)),
        )
    )
    images = [ax.images[0] for ax in figure.axes if ax.images and ax.get_title()]
    np.testing.assert_array_equal(images[0].get_array(), sampled)
    np.testing.assert_array_equal(images[1].get_array(), theory)
    assert images[0].get_clim() == images[1].get_clim() == (-4.0, 4.0)
    received = np.ma.filled(images[2].get_array(), np.nan)
    np.testing.assert_array_equal(received, [[2.0, 0.0], [0.0, np.nan]])


def test_predictor_error_bars_span_one_mcse():
    theory, sampled, mcse = np.array([0.0, 1.0]), np.array([0.25, 1.5]), np.array([0.125, 0.5])
    figure = draw_predictor(held(predictor_mean=Compared(theory, Estimate(sampled, mcse))))
    (bars,) = figure.axes[0].collections
    expected = [[[0.0, 0.125], [0.0, 0.375]], [[1.0, 1.0], [1.0, 2.0]]]
    np.testing.assert_array_equal(bars.get_segments(), expected)


def test_reliability_shows_every_bin_with_its_wilson_interval():
    rng = np.random.default_rng(2)
    found = quality_of(rng.standard_normal(200), rng.random(200), labelled=True)
    found = replace(found, theory=None)
    figure = draw_reliability(held(predictive_quality=found))
    assert len(figure.axes) == 4  # samples and GP limit, above and below
    (bars,) = figure.axes[0].collections
    for segment, row in zip(bars.get_segments(), found.gp.reliability, strict=True):
        low, high = wilson_interval(round(row.fraction * row.count), row.count)
        expected = [[row.mean_probability, low], [row.mean_probability, high]]
        np.testing.assert_allclose(segment, expected, rtol=0, atol=1e-15)
    heights = [patch.get_height() for patch in figure.axes[2].patches]
    assert heights == [row.count for row in found.gp.reliability]
    assert draw_reliability(held(predictive_quality=PredictiveQuality(None, None, None))) is None


@pytest.mark.heavy
def test_sweep_has_every_figure_and_line(tmp_path):
    rows = [(f"network.widths={width}", width) for width in (1000, 10, 300, 30, 100)]
    directory = write_sweep(tmp_path / "sweep", rows)
    assert figure_names(draw_sweep_figures(directory)) == {
        "accuracy_against_width",
        "order_parameter_against_width",
        "kernel_alignment",
    }
    received = svg_text(directory, "accuracy_against_width")
    for label in ("leading order", "exact posterior, all weights", "infinite width<", "only good<"):
        assert label in received, label
    received = svg_text(directory, "order_parameter_against_width")
    # Drawn at the smallest width, 100 and 1000; sampled only where it was sampled.
    assert received.count("exact posterior") == 1
    assert shown_widths(received) == {10, 100, 1000}
    assert shown_widths(svg_text(directory, "kernel_alignment")) == {10}


@pytest.mark.heavy
@pytest.mark.usefixtures("unpainted")
def test_sweep_over_something_else_stands_side_by_side(tmp_path):
    rows = [
        (f"network.widths={w}, task.seed={s}", w) for w, s in itertools.product((10, 30), (0, 1))
    ]
    directory = write_sweep(tmp_path / "sweep", rows)
    draw_sweep_figures(directory)
    received = svg_text(directory, "accuracy_against_width")
    assert all(f"seed={seed}" in received for seed in range(4))


@pytest.mark.usefixtures("unpainted")
def test_sweep_leaves_out_a_run_that_is_not_there(tmp_path):
    directory = write_sweep(tmp_path / "sweep", [("a", 10), ("b", 30), ("c", 100)])
    (directory / "point-0" / "theory.nc").unlink()
    draw_sweep_figures(directory)
    assert shown_widths(svg_text(directory, "order_parameter_against_width")) == {30, 100}


@pytest.mark.usefixtures("unpainted")
def test_sweep_without_any_theory_that_converged(tmp_path):
    directory = write_sweep(tmp_path / "sweep", [("a", 10), ("b", 30)])
    for path in directory.glob("*/theory.nc"):
        table = xr.load_dataset(path, engine="h5netcdf")
        table["order_parameter"] = table["order_parameter"] * np.nan
        table.to_netcdf(path, engine="h5netcdf")
    draw_sweep_figures(directory)
    received = svg_text(directory, "order_parameter_against_width")
    assert "exact posterior" in received
    assert "leading order" not in received


def test_accuracy_against_width_draws_the_stored_values(tmp_path):
    sampled = [f"accuracy_sampled{of}" for of in ("", "_mcse", "_binomial")]
    first = {"point": "a", "directory": "a", "width": 10, "accuracy_theory": 0.5, "gp:good": None}
    second = {"point": "b", "directory": "b", "width": 100, "accuracy_theory": 0.25}
    numbers = dict(zip(sampled, (0.75, 0.125, 0.25), strict=True))
    store_table(tmp_path, [first | numbers, second])
    figure = draw_accuracy_against_width(SweepResults(tmp_path))
    ax = figure.axes[0]
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(lines["leading order"].get_ydata(), [50.0, 25.0])
    np.testing.assert_array_equal(lines["exact posterior"].get_ydata(), [75.0])
    assert ax.get_xscale() == "log"
    assert not any("infinite" in label for label in lines), "an undefined line must not be named"
    thin, thick = (bars.get_segments()[0][:, 1] for bars in ax.collections)
    np.testing.assert_array_equal(thin, [50.0, 100.0])
    np.testing.assert_array_equal(thick, [62.5, 87.5])


def damage_theory(directory: Path) -> None:
    (directory / "theory.nc").write_bytes(b"not a netCDF file")


def damage_comparison(directory: Path) -> None:
    (directory / "comparison.json").write_text('{"accuracy": ')


def damage_draws(directory: Path) -> None:
    (directory / "draws.nc").write_bytes(b"\x00" * 100)


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (damage_theory, "theory.nc"),
        (damage_comparison, "comparison.json"),
        (damage_draws, "draws.nc"),
    ],
)
def test_damaged_file_is_named(tmp_path, damage, name):
    directory = write_run(tmp_path / "run")
    damage(directory)
    with pytest.raises(InputError, match=name):
        draw_run_figures(directory)
    assert not (directory / "figures").exists()


def test_directory_without_results_is_refused(tmp_path):
    with pytest.raises(InputError, match="neither"):
        draw_run_figures(tmp_path)
    with pytest.raises(InputError, match=r"sweep\.nc"):
        draw_sweep_figures(tmp_path)
