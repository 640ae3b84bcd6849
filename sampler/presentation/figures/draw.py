"""The figures of a run and of a sweep, from stored results."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sampler.analysis.comparison import off_diagonal_cosine
from sampler.presentation.figures.accuracy import (
    DIAGONAL_ONLY,
    EQUAL_DIAGONAL,
    AccuracyCurves,
    AccuracyRow,
    SampledAccuracy,
    draw_accuracy,
    draw_accuracy_against_width,
    subnetwork_colour,
)
from sampler.presentation.figures.alignment import draw_alignment
from sampler.presentation.figures.chains import (
    draw_autocorrelation,
    draw_energy,
    draw_ess_evolution,
    draw_predictor_ranks,
    draw_ranks,
    draw_series_ranks,
    read_function_space,
)
from sampler.presentation.figures.finite_size import draw_finite_size
from sampler.presentation.figures.order_parameter import (
    MatrixPanel,
    draw_order_parameter,
    draw_order_parameter_grid,
)
from sampler.presentation.figures.predictor import (
    ComparedPredictor,
    draw_predictor,
    draw_sampled_predictor,
)
from sampler.presentation.figures.reliability import draw_reliability
from sampler.presentation.figures.temperature_choice import draw_temperature_choice
from sampler.presentation.figures.variant_comparison import draw_form_comparison
from sampler.presentation.style import (
    GAUSSIAN_PROCESS,
    GREY,
    PURPLE,
    SAMPLED,
    THEORY,
    figure_style,
    save_figure,
)
from sampler.storage.results import RunResults, open_run
from sampler.storage.sweeps import SweepResults, SweepTable

RANKED_EXAMPLES = 6  # whose ranks are shown where no order parameter is sampled
SHOWN_WIDTHS = (100, 1000)  # whose order parameters a sweep shows beside its smallest width's


def draw_run_figures(directory: Path, run: RunResults | None = None) -> list[Path]:
    """Draw the figures of one run into `directory/figures`; return the files written.

    Reads `theory.nc`, `comparison.json`, `draws.nc` and `recipe.toml` as far as they exist, and
    draws what they allow; `run` is what they hold, where that was read already. Raises InputError
    if there is nothing to draw or a file is damaged.
    """
    run = run or open_run(Path(directory))
    with figure_style():
        figures = {
            "order_parameter": _order_parameter(run),
            "order_parameter_trained": _beside_trained(run),
            "predictor_mean": _predictor(run),
            "kernel_alignment": _alignment(run),
            "accuracy": _accuracy(run),
            "reliability": _reliability(run),
            "order_parameter_ranks": _ranks(run),
            "predictor_sampled": _predictor_alone(run),
            "predictor_ranks": _predictor_ranks(run),
        } | _of_chains(Path(directory), run.setting)
        return _save(figures, Path(directory) / "figures")


def draw_sweep_figures(directory: Path) -> list[Path]:
    """Draw the figures of a sweep into `directory/figures`; return the files written.

    Reads `sweep.csv` and the run directories it names; a run that is not there is left out.
    """
    results = SweepResults(Path(directory))
    sweep = results.table
    runs = results.runs
    solved = next((run for run in runs if run is not None and run.theory is not None), None)
    with figure_style():
        chosen = draw_temperature_choice(Path(directory), None if solved is None else solved.theory)
        figures = {
            "accuracy_against_width": None if chosen else _sweep_accuracy(sweep, runs),
            "accuracy_at_chosen_temperatures": chosen,
            "order_parameter_against_width": _sweep_order_parameters(sweep, runs),
            "kernel_alignment": None if solved is None else _alignment(solved),
            "finite_size": _finite_size(results.finite_size, solved),
            "form_comparison": draw_form_comparison(Path(directory)),
        }
        return _save(figures, Path(directory) / "figures")


def _finite_size(found: dict | None, solved: RunResults | None) -> Figure | None:
    if found is None:
        return None
    temperature = None if solved is None else solved.temperature
    setting = "" if temperature is None else rf"$\mathcal{{T}}$ = {temperature:g}"
    return draw_finite_size(found, setting)


def _save(figures: dict[str, Figure | None], folder: Path) -> list[Path]:
    written: list[Path] = []
    for name, figure in figures.items():
        if figure is not None:
            written += save_figure(figure, folder, name)
    return written


def _order_parameter(run: RunResults) -> Figure | None:
    theory = run.theory_values("order_parameter")
    if theory is None:
        return None
    compared = run.compared("order_parameter") or {}
    return draw_order_parameter(
        run.path_names,
        theory,
        compared.get("sampled"),
        compared.get("mcse"),
        run.sampled_label,
        run.setting,
    )


def _beside_trained(run: RunResults) -> Figure | None:
    """U_1 of theory, samples and the network that gradient descent trained."""
    theory, trained = map(run.theory_values, ("order_parameter", "order_parameter_trained"))
    if theory is None or trained is None:
        return None
    compared = run.compared("order_parameter")
    cosines = (run.comparison or {}).get("off_diagonal_cosine") or {
        "theory_trained": {"value": float(off_diagonal_cosine(theory, trained))}
    }
    panels = [MatrixPanel("theory", theory), None, MatrixPanel("gradient descent", trained)]
    if compared:
        panels[1] = MatrixPanel(run.sampled_label, compared["sampled"], compared["mcse"])
    shown = [[panel] for panel in panels if panel is not None]
    title = f"Order parameter $U_1$, {run.setting}\n{cosine_text(cosines)}"
    return draw_order_parameter_grid(run.path_names, shown, title)


def cosine_text(cosines: dict) -> str:
    """Cosines between elements off the diagonal, in words."""
    said = {"theory": "theory", "trained": "gradient descent", "sampled": "samples"}
    parts = []
    for pair, found in cosines.items():
        if found["value"] is None:
            continue
        one, other = (said[name] for name in pair.split("_"))
        error = "" if found.get("mcse") is None else f" ± {found['mcse']:.3f}"
        parts.append(f"{one} · {other} {found['value']:.3f}{error}".replace("-", "−"))
    return "cosine off the diagonal: " + ", ".join(parts)


def _predictor(run: RunResults) -> Figure | None:
    symbols = {"predictor_mean": "mean $m(x)$", "predictor_variance": "variance $v(x)$"}
    tables = {name: run.compared(name) for name in symbols}
    quantities = [
        ComparedPredictor(symbols[name], **table) for name, table in tables.items() if table
    ]
    return draw_predictor(quantities, run.sampled_label, run.setting) if quantities else None


def _alignment(run: RunResults) -> Figure | None:
    theory = run.theory_values("kernel_alignment")
    if theory is None:
        return None
    return draw_alignment(theory, run.theory_values("gp_kernel_alignment"), run.setting)


def _ranks(run: RunResults) -> Figure | None:
    draws = run.order_parameter_draws
    if draws is None:
        return None
    names = [str(name) for name in draws["path"].values]
    return draw_ranks(draws.values, names, run.setting)


def _predictor_alone(run: RunResults) -> Figure | None:
    """Mean and deviation of f where there is no theory to hold them against."""
    tables = [(run.comparison or {}).get(f"predictor_{name}") for name in ("mean", "variance")]
    if run.theory is not None or not all(tables):
        return None
    mean, variance = (np.array(table["sampled"], dtype=np.float64) for table in tables)
    return draw_sampled_predictor(mean, variance, run.labels_test, run.sampled_label, run.setting)


def _predictor_ranks(run: RunResults) -> Figure | None:
    """Ranks of f at a few test examples, where no order parameter is sampled."""
    if run.order_parameter_draws is not None or run.predictor_draws is None:
        return None
    values = run.predictor_draws.values
    flat = values.reshape(*values.shape[:2], -1)
    chosen = np.unique(np.linspace(0, flat.shape[2] - 1, RANKED_EXAMPLES).astype(int))
    names = [f"test {place}" for place in chosen // (flat.shape[2] // values.shape[2])]
    return draw_predictor_ranks(flat[:, :, chosen], names, run.setting)


def _of_chains(directory: Path, setting: str) -> dict[str, Figure | None]:
    """How the chains moved, in the numbers of function space that moved the slowest."""
    draws = read_function_space(directory)
    if draws is None:
        return {}
    return {
        "function_space_ranks": draw_series_ranks(draws.series, setting),
        "ess_evolution": draw_ess_evolution(draws.series, setting),
        "autocorrelation": draw_autocorrelation(draws.series, setting),
        "energy": None if draws.energy is None else draw_energy(draws.energy, setting),
    }


def _reliability(run: RunResults) -> Figure | None:
    quality = (run.comparison or {}).get("predictive_quality") or {}
    return draw_reliability(quality, run.sampled_label, run.setting)


def _accuracy(run: RunResults) -> Figure | None:
    theory = run.theory_values("accuracy_theory")
    if run.theory is not None and theory is None:
        return None
    rows = [] if theory is None else [AccuracyRow("theory", float(theory), THEORY)]
    sampled = ((run.comparison or {}).get("accuracy") or {}).get("sampled")
    if sampled and sampled.get("value") is not None:
        errors = {name: sampled.get(name) for name in ("mcse", "binomial_error")}
        rows.append(AccuracyRow(run.sampled_label, sampled["value"], SAMPLED, **errors))
    gaussian_process = run.theory_values("accuracy_gp")
    if gaussian_process is not None:
        rows.append(AccuracyRow("GP, all paths", float(gaussian_process), GAUSSIAN_PROCESS))
    if run.theory is None:
        return draw_accuracy(rows, run.setting) if rows else None
    if "accuracy_gp_subnetwork" in run.theory:
        limits = run.theory["accuracy_gp_subnetwork"]
        for place, label in enumerate(limits["subnetwork"].values):
            value, colour = float(limits.values[place]), subnetwork_colour(place)
            rows.append(AccuracyRow(f"GP, {label}", value, colour))
    variants = {
        "accuracy_diagonal_only": (DIAGONAL_ONLY, GREY),
        "accuracy_equal_diagonal": (EQUAL_DIAGONAL, PURPLE),
    }
    for name, (label, colour) in variants.items():
        if name in run.theory:
            rows.append(AccuracyRow(label, float(run.theory[name]), colour))
    return draw_accuracy(rows, run.setting)


def _sweep_accuracy(sweep: SweepTable, runs: list[RunResults | None]) -> Figure | None:
    theory = sweep.values("accuracy_theory")
    known = (theory, sweep.values("accuracy_sampled"))
    if not any(np.isfinite(accuracy).any() for accuracy in known):
        return None
    curves = AccuracyCurves(
        theory=theory,
        gaussian_process=sweep.values("accuracy_gp"),
        subnetworks={label: sweep.subnetwork_accuracy(label) for label in sweep.subnetworks},
        diagonal_only=sweep.values("accuracy_diagonal_only"),
        equal_diagonal=sweep.values("accuracy_equal_diagonal"),
        sampled=_sampled_accuracies(sweep, runs),
    )
    temperatures = {run.temperature for run in runs if run is not None}
    shared = temperatures.pop() if len(temperatures) == 1 else None
    setting = "" if shared is None else rf"$\mathcal{{T}}$ = {shared:g}"
    return draw_accuracy_against_width(curves, sweep.widths, sweep.points, setting)


def _sampled_accuracies(sweep: SweepTable, runs: list[RunResults | None]) -> list[SampledAccuracy]:
    accuracy = sweep.values("accuracy_sampled")
    spaces = np.array(sweep.columns.get("sampled_space", ("",) * len(runs)))
    passed = np.array([run is None or run.diagnostics_passed for run in runs])
    return [
        SampledAccuracy(
            label=f"sampled {space.replace('_', ' ')}".strip(),
            accuracy=np.where(spaces == space, accuracy, np.nan),
            mcse=sweep.values("accuracy_sampled_mcse"),
            binomial_error=sweep.values("accuracy_sampled_binomial"),
            diagnostics_passed=passed,
        )
        for space in dict.fromkeys(spaces[np.isfinite(accuracy)])
    ]


def _sweep_order_parameters(sweep: SweepTable, runs: list[RunResults | None]) -> Figure | None:
    solved = [row for row, run in enumerate(runs) if run is not None and run.theory is not None]
    if not solved:
        return None
    if sweep.widths is None:
        shown = sorted({solved[0], solved[len(solved) // 2], solved[-1]})
    else:
        shown = [r for r in solved if r == solved[0] or sweep.widths[r] in SHOWN_WIDTHS]
    names = runs[shown[0]].path_names
    # A sweep may change the heads; only matrices over the same paths can share a grid.
    shown = [row for row in shown if runs[row].path_names == names]
    sampled = any(runs[row].compared("order_parameter") for row in shown)
    columns = [_matrix_column(runs[row], sweep, row)[: 2 if sampled else 1] for row in shown]
    if not any(panel is not None for column in columns for panel in column):
        return None
    return draw_order_parameter_grid(names, columns)


def _matrix_column(run: RunResults, sweep: SweepTable, row: int) -> list[MatrixPanel | None]:
    name = sweep.points[row] if sweep.widths is None else f"$N$ = {sweep.widths[row]:g}"
    theory = run.theory_values("order_parameter")
    column = [None if theory is None else MatrixPanel(f"theory, {name}", theory), None]
    compared = run.compared("order_parameter")
    if compared:
        title = f"{run.sampled_label}, {name}"
        column[1] = MatrixPanel(title, compared["sampled"], compared["mcse"])
    return column
