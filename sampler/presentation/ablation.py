"""Which heads a model needs, for the terminal and notebooks."""

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from sampler.analysis.estimate import RankCorrelation
from sampler.analysis.head_ablation import (
    PREDICTIONS,
    REMOVED,
    REMOVED_EXACT,
    REMOVED_NEXT,
    HeadAblation,
)
from sampler.presentation.summary import interval, two_digits
from sampler.presentation.terminal import Column, table_lines, wrapped

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

# Columns of the table of heads, beside what was measured.
SHOWN = {
    REMOVED: "leading\norder",
    REMOVED_NEXT: "next\norder",
    REMOVED_EXACT: "exact\nposterior",
    "taylor": "\nTaylor",
    "patching": "attribution\npatching",
}
MEASURED = {
    "zero_loss": "loss,\nzero",
    "zero_accuracy": "accuracy,\nzero",
    "mean_loss": "loss,\nmean",
    "mean_accuracy": "accuracy,\nmean",
}


@dataclass(frozen=True)
class AblatedHeads:
    """What removing each head costs and what predicts it; prints as tables."""

    result: HeadAblation

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each head, by layer from 1 and number from 0; `<name>_error` beside a number.

        What was measured has the keys zero_loss, zero_accuracy, mean_loss, mean_accuracy; then
        every prediction.
        """
        import pandas

        found = self.result
        columns: dict[str, tuple[float, ...]] = {}
        predicted = {key: (one.values, one.errors) for key, one in found.predicted.items()}
        for key, (values, errors) in {**found.measured, **predicted}.items():
            columns |= {key: values, f"{key}_error": errors}
        index = pandas.MultiIndex.from_tuples(
            [(one.layer, one.head) for one in found.heads], names=["layer", "head"]
        )
        return pandas.DataFrame(columns, index)

    def correlations(self) -> "pandas.DataFrame":
        """Spearman's ρ of each prediction with each measure, and both 95 % intervals."""
        import pandas

        rows = [
            {
                "prediction": key, "measured": measure, "spearman": rho.value,
                "heads_low": rho.interval_over_heads[0], "heads_high": rho.interval_over_heads[1],
                "examples_low": rho.interval_over_examples[0],
                "examples_high": rho.interval_over_examples[1],
            }
            for key, one in self.result.predicted.items()
            for measure, rho in one.spearman.items()
        ]  # fmt: skip
        return pandas.DataFrame(rows).set_index(["prediction", "measured"])

    def plot(self) -> "Figure":
        """What removal costs against what the theory and practitioners' scores predict."""
        from sampler.presentation.figures.ablation import draw_ablation
        from sampler.presentation.style import figure_style

        with figure_style():
            return draw_ablation(self.result)

    def __repr__(self) -> str:
        return ablation_text(self.result)

    def _repr_html_(self) -> str:
        tables = self.to_dataframe(), self.correlations()
        return "".join(one.to_html(na_rep="", float_format="{:.3g}".format) for one in tables)


def ablation_text(found: HeadAblation) -> str:
    """A row for each head, costliest first, and the correlations of every prediction."""
    whole = [f"{key} {value:.3f} ± {error:.3f}" for key, (value, error) in found.unpruned.items()]
    order = np.argsort(found.measured["zero_loss"][0])[::-1].tolist()
    columns = [
        Column(MEASURED[key], [with_error(key, *found.measured[key], head) for head in order])
        for key in ("zero_loss", "mean_loss")
    ]
    columns += [
        Column(
            header,
            [with_error(key, one.values, one.errors, head) for head in order],
            place,
        )
        for place, (key, header) in enumerate(SHOWN.items())
        if (one := found.predicted.get(key)) is not None
    ]
    heads = table_lines([found.heads[head].label for head in order], columns)
    names = list(found.predicted)
    rho = table_lines(
        [PREDICTIONS[name] for name in names],
        [
            Column(
                MEASURED[key],
                [correlation(found.predicted[name].spearman[key]) for name in names],
                place,
            )
            for place, key in enumerate(found.measured)
        ],
    )
    return "\n".join(
        [
            wrapped(
                f"the model on {found.examples_test} test examples: {', '.join(whole)}; "
                f"predictions from {found.examples_validation} validation examples"
            ),
            "",
            wrapped(
                f"without one head: {found.loss} loss gained, ±1σ (all columns in to_dataframe):"
            ),
            *filter(None, chain(*heads)),
            "",
            wrapped("Spearman ρ with what removal costs, 95 % over heads:"),
            *filter(None, chain(*rho)),
        ]
    )


def with_error(key: str, values: tuple[float, ...], errors: tuple[float, ...], head: int) -> str:
    """A number of a head; accuracies in percentage points."""
    if not np.isfinite(values[head]):
        return "–"
    if key.endswith("accuracy"):
        return f"{100 * values[head]:.1f} ± {100 * errors[head]:.1f}"
    return f"{values[head]:.3f} ± {errors[head]:.3f}"


def correlation(rho: RankCorrelation) -> str:
    """ρ with its interval over heads."""
    if not np.isfinite(rho.value):
        return "–"
    return f"{two_digits(rho.value)} ({interval(rho.interval_over_heads)})"
