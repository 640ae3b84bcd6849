"""What the terminal and notebooks show of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np
import xarray as xr

from sampler.errors import InputError
from sampler.storage.results import RunResults, read_comparison
from sampler.storage.run_directory import plain, write_json

MOST_ROWS = 15
# What `comparison.json` has of every compared element, and the scores of predicted probabilities.
COLUMNS = ("theory", "sampled", "mcse", "difference_in_mcse", "relative_difference")
SCORES = ("log_predictive_density", "expected_calibration_error")


def theory_text(table: xr.Dataset) -> str:
    """How the saddle point was found, and its accuracy beside the GP limit's."""
    lines = [f"theory: {table.attrs['explanation']}"]
    accuracy, gp = float(table["accuracy_theory"]), float(table["accuracy_gp"])
    if np.isfinite(gp):
        lines.append(f"accuracy: theory {accuracy:.3f}, infinite width (GP) {gp:.3f}")
    others = {"trained": "the trained network", "nearest_neighbour": "pixel nearest neighbour"}
    found = [
        f"{label} {float(table[f'accuracy_{name}']):.3f}"
        for name, label in others.items()
        if f"accuracy_{name}" in table
    ]
    if found:
        lines.append(f"  beside it: {', '.join(found)}")
    for name in table["subnetwork"].values if "subnetwork" in table.coords else ():
        value = float(table["accuracy_gp_subnetwork"].sel(subnetwork=name))
        if np.isfinite(value):
            lines.append(f"  GP with only {name}: {value:.3f}")
    return "\n".join(lines)


def diagnostics_text(diagnostics: dict) -> str:
    """Verdict first, then its reasons, remarks and the worst numbers."""
    verdict = "the samples can be trusted" if diagnostics["verdict"] == "pass" else "FAILED"
    lines = [f"diagnostics: {verdict}"]
    lines += [f"  failed: {reason}" for reason in diagnostics["reasons"]]
    lines += [f"  note: {remark}" for remark in diagnostics["remarks"]]
    judged = diagnostics["quantities"].values()
    if judged:
        parts = [
            f"worst R-hat {max(q['r_hat'] for q in judged):.4f}",
            f"bulk ESS {min(q['ess_bulk'] for q in judged):.0f}",
            f"tail ESS {min(q['ess_tail'] for q in judged):.0f}",
        ]
        if diagnostics.get("bfmi"):
            steps = diagnostics["leapfrog_steps_per_draw"]
            parts.append(f"BFMI {min(diagnostics['bfmi']):.2f}")
            parts.append(f"{steps:.0f} leapfrog steps per draw")
        elif "bfmi" in diagnostics:
            parts.append("independent draws")
        counts = f"{diagnostics['chains']} chains of {diagnostics['draws']} draws"
        lines.append(f"  {counts}: {', '.join(parts)}")
    return "\n".join(lines)


def comparison_text(directory: Path) -> str:
    """Theory against samples as `comparison.json` has them."""
    run = RunResults(directory)
    comparison = read_comparison(directory)
    if run.theory is None:
        return "\n".join(
            [
                "comparison: no theory stored in this directory",
                *sampled_accuracy_rows(comparison["accuracy"]["sampled"]),
                *evidence_rows(comparison.get("log_evidence") or {}),
                *hyper_parameter_rows(comparison.get("hyper_parameters") or {}),
            ]
        )
    return comparison_lines(comparison, run.path_names)


def comparison_lines(comparison: dict, names: list[str]) -> str:
    """Theory against samples, with errors: U_1 element by element, predictors, their quality."""
    lines = ["", f"{'':30}{'theory':>10}{'sampled':>11}{'± MCSE':>9}{'diff/MCSE':>11}{'diff':>9}"]
    lines += order_parameter_rows(comparison["order_parameter"], names)
    lines += [predictor_row(f"predictor {k}", comparison[f"predictor_{k}"])
              for k in ("mean", "variance")]  # fmt: skip
    lines += accuracy_rows(comparison["accuracy"])
    lines += quality_rows(comparison.get("predictive_quality") or {})
    lines += evidence_rows(comparison.get("log_evidence") or {})
    lines += hyper_parameter_rows(comparison.get("hyper_parameters") or {})
    lines.append(
        "\nTheory and exact posterior differ by O(1/N) at finite width; samples converge to the "
        "posterior, not to the theory."
    )
    return "\n".join(lines)


def order_parameter_rows(table: dict, names: list[str]) -> list[str]:
    """Elements of U_1: the upper triangle, or the diagonal where that is too much."""
    values = {key: np.array(table[key], dtype=float) for key in table}
    pairs = list(zip(*np.triu_indices(len(names)), strict=True))
    left_out = ""
    if len(pairs) > MOST_ROWS:
        pairs = [(i, i) for i in range(min(len(names), MOST_ROWS))]
        left_out = "  (more elements in comparison.json)"
    rows = []
    for i, j in pairs:
        rows.append(row(f"U₁ {pair_name(names, i, j)}", *(values[k][i, j] for k in COLUMNS)))
    return rows + ([left_out] if left_out else [])


def pair_name(names: Sequence[str], one: SupportsIndex, other: SupportsIndex) -> str:
    """An element of a matrix over paths in words: one path, or two."""
    return names[one] if one == other else f"{names[one]} × {names[other]}"


def row(name, theory, sampled, mcse, in_mcse, relative) -> str:
    short = name if len(name) <= 30 else name[:29] + "…"
    return f"{short:30}{theory:10.4f}{sampled:11.4f}{mcse:9.4f}{in_mcse:11.1f}{relative:9.1%}"


def predictor_row(name: str, table: dict) -> str:
    """Root mean square over the test set of values, errors and differences."""
    theory, sampled, mcse = (np.array(table[k], dtype=float) for k in ("theory", "sampled", "mcse"))
    size = np.sqrt(np.mean(sampled**2))
    return row(
        f"{name}, rms",
        np.sqrt(np.mean(theory**2)),
        size,
        np.sqrt(np.mean(mcse**2)),
        np.sqrt(np.mean(((sampled - theory) / mcse) ** 2)),
        np.sqrt(np.mean((sampled - theory) ** 2)) / size,
    )


def accuracy_rows(accuracy: dict) -> list[str]:
    """Accuracy with both of its errors: Monte Carlo, and that of a finite test set."""
    sampled = accuracy["sampled"]
    if sampled is None or accuracy["theory"] is None:
        return []
    return [
        f"{'accuracy':30}{accuracy['theory']:10.4f}{sampled['value']:11.4f}{sampled['mcse']:9.4f}"
        f"   (test set: ± {sampled['binomial_error']:.4f}; GP: {accuracy['gp']:.4f})"
    ]


def sampled_accuracy_rows(sampled: dict | None) -> list[str]:
    """Accuracy of the samples alone, with both of its errors."""
    if sampled is None:
        return []
    return [
        f"accuracy: sampled {sampled['value']:.4f} ± {sampled['mcse']:.4f} "
        f"(test set: ± {sampled['binomial_error']:.4f})"
    ]


def quality_rows(quality: dict) -> list[str]:
    """Log predictive density and calibration error, with the same two errors."""
    if any(quality.get(name) is None for name in ("theory", "gp", "sampled")):
        return []
    rows = []
    for score in SCORES:
        theory, gp, sampled = (quality[name][score] for name in ("theory", "gp", "sampled"))
        rows.append(
            f"{score.replace('_', ' '):30}{theory['value']:10.4f}{sampled['value']:11.4f}"
            f"{sampled['mcse']:9.4f}   (test set: ± {sampled['error']:.4f}; GP: {gp['value']:.4f})"
        )
    return rows


def evidence_rows(evidence: dict) -> list[str]:
    """ln p(y), where samples know it, with Laplace's form at the saddle point beside it."""
    sampled = evidence.get("sampled")
    if sampled is None:
        return []
    theory, gp = (
        f"{evidence[name]:10.3f}" if evidence.get(name) is not None else f"{'–':>10}"
        for name in ("theory", "gp")
    )
    doubt = "" if sampled["trusted"] else ", NOT to be trusted"
    return [
        f"{'log evidence':30}{theory}{sampled['value']:11.3f}{sampled['mcse']:9.4f}"
        f"   ({sampled['method']}{doubt}; GP: {gp.strip()})"
    ]


def hyper_parameter_rows(found: dict) -> list[str]:
    """Temperature and prior variances that were sampled, beside the values the theory is given."""
    rows = []
    for name, given, sampled, mcse, deviation in named_hyper_parameters(found):
        short = f"{name}, prior median and sampled"
        rows.append(
            f"{short:40}{given:10.4g}{sampled:11.4g} ± {mcse:.2g}   (spread {deviation:.2g})"
        )
    return ["", *rows] if rows else []


def named_hyper_parameters(found: dict) -> list[tuple[str, float, float, float, float]]:
    """Name, prior median, posterior mean, MCSE, standard deviation of each that was sampled."""
    parts = ("prior_median", "sampled", "mcse", "standard_deviation")
    rows = []
    if "temperature" in found:
        rows.append(("temperature", *(float(found["temperature"][part]) for part in parts)))
    if "prior_variances" in found:
        table = found["prior_variances"]
        columns = zip(table["of"], *(table[part] for part in parts), strict=True)
        rows += [(f"variance of {name}", *map(float, numbers)) for name, *numbers in columns]
    return rows


if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Comparison:
    """Theory against draws; prints as `compare` does.

    content     what `comparison.json` holds: diagnostics, cost, every compared quantity
    table       its arrays with their axes: theory, sampled, MCSE and differences
    path_names  names along the axis of U_1
    """

    content: dict
    table: xr.Dataset
    path_names: tuple[str, ...]

    @property
    def trusted(self) -> bool:
        """Whether the draws passed their diagnostics."""
        return self.content["diagnostics"]["verdict"] == "pass"

    def to_dataset(self) -> xr.Dataset:
        """Theory, sampled, MCSE and differences of every compared quantity, with its axes."""
        return self.table

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each element of U_1 and each score, with its error.

        `difference_in_mcse` is (sampled − theory)/MCSE, `relative_difference` is in units of
        |sampled|. `test_error` is the error by the finite test set, of the sampled number.
        """
        import pandas

        rows = self._order_parameter_rows() | self._score_rows()
        columns = [*COLUMNS, "gp", "test_error"]
        return pandas.DataFrame(list(rows.values()), list(rows), columns, dtype=float)

    def save(self, path: str | Path) -> None:
        """Write strict JSON, the content of `comparison.json`."""
        write_json(Path(path), self.content)

    def __repr__(self) -> str:
        content = plain(self.content)
        lines = comparison_lines(content, list(self.path_names))
        return f"{diagnostics_text(content['diagnostics'])}\n{lines}"

    def _repr_html_(self) -> str:
        verdict = diagnostics_text(plain(self.content)["diagnostics"])
        return f"<pre>{escape(verdict)}</pre>{self.to_dataframe().to_html(na_rep='')}"

    def _order_parameter_rows(self) -> dict[str, dict]:
        table = {key: np.asarray(self.content["order_parameter"][key]) for key in COLUMNS}
        names, rows = self.path_names, {}
        for i, j in zip(*np.triu_indices(len(names)), strict=True):
            rows[f"U₁ {pair_name(names, i, j)}"] = {
                key: values[i, j] for key, values in table.items()
            }
        return rows

    def _score_rows(self) -> dict[str, dict]:
        accuracy, quality = self.content["accuracy"], self.content["predictive_quality"]
        rows = {}
        if accuracy["sampled"] is not None:
            sampled = accuracy["sampled"]
            rows["accuracy"] = score_row(
                accuracy["theory"], accuracy["gp"], sampled, sampled["binomial_error"]
            )
        if quality["sampled"] is not None:
            for score in SCORES:
                sampled = quality["sampled"][score]
                theory, gp = (
                    np.nan if quality[name] is None else quality[name][score]["value"]
                    for name in ("theory", "gp")
                )
                rows[score.replace("_", " ")] = score_row(theory, gp, sampled, sampled["error"])
        evidence = self.content["log_evidence"]
        if evidence["sampled"] is not None:
            theory, gp = (
                np.nan if evidence[name] is None else evidence[name] for name in ("theory", "gp")
            )
            rows["log evidence"] = score_row(theory, gp, evidence["sampled"], np.nan)
        return rows


def score_row(theory: float, gp: float, sampled: dict, test_error: float) -> dict:
    """A number beside U_1: theory, GP limit and samples, with both errors of the latter."""
    difference, mcse = sampled["value"] - theory, sampled["mcse"]
    return {
        "theory": theory,
        "sampled": sampled["value"],
        "mcse": mcse,
        "difference_in_mcse": difference / mcse if mcse else np.nan,
        "relative_difference": difference / abs(sampled["value"]) if sampled["value"] else np.nan,
        "gp": gp,
        "test_error": test_error,
    }


def refuse_strangers(theory: xr.Dataset, draws: xr.DataTree) -> None:
    """Raise InputError unless theory and draws belong to the same paths, test set, temperature."""
    if not isinstance(theory, xr.Dataset) or "order_parameter" not in theory:
        raise InputError("theory", type(theory).__name__, "give what solve(task, network) returns")
    if not isinstance(draws, xr.DataTree) or "posterior" not in draws.children:
        raise InputError("draws", type(draws).__name__, "give what sample(task, network) returns")
    posterior = draws["posterior"].to_dataset()
    for axis in ("path", "test_example"):
        expected, received = (
            [str(name) for name in table[axis].values] if axis in table.coords else None
            for table in (theory, posterior)
        )
        if received is not None and received != expected:
            raise InputError("draws", received, f"these are not the {axis}s of the theory")
    expected, received = (
        theory.attrs["temperature"],
        float(draws["constant_data"]["temperature"]),
    )
    if received != expected:
        raise InputError(
            "draws.temperature", received, f"compare with a theory at it, not at {expected}"
        )
