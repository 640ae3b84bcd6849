"""Theory against draws as one object: printed as text, or taken as a table or labelled arrays."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from sampler.errors import InputError
from sampler.presentation.summary import (
    COLUMNS,
    SCORES,
    comparison_lines,
    diagnostics_text,
    pair_name,
)
from sampler.storage.json_file import plain, write_json

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
