"""Which heads of a trained model matter: what removing each costs, and what predicts it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from sampler.api.keywords import in_python
from sampler.api.models import (
    STARTS,
    LabelledExamples,
    RunOfModel,
    SeenOfModel,
    chosen_loss,
    heads_of_model,
    theory_of_heads,
)
from sampler.api.results import ChosenNetwork
from sampler.errors import InputError
from sampler.runtime import jax_settings

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from sampler.heads.removal import RemovedHeads


@dataclass(frozen=True)
class AblatedHeads:
    """Costs of removing heads, and numbers that predict them; prints as tables.

    result  every number, as `prune` stores it
    """

    result: "RemovedHeads"

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each head, by layer from 1 and number from 0; `<name>_error` beside a number.

        What was measured has the keys zero_loss, zero_accuracy, mean_loss, mean_accuracy; then
        every prediction.
        """
        import pandas

        from sampler.heads.shown import numbers_of, order_shown, removal_table

        found = self.result
        frame = removal_table(found).to_dataframe()
        places = [found.heads[at] for at in order_shown(found)]
        frame.index = pandas.MultiIndex.from_tuples(places, names=["layer", "head"])
        frame = frame.sort_index()
        # What is known exactly has errors of 0 here, and none in a table.
        return frame.assign(**{f"{k}_error": one.errors for k, one in numbers_of(found).items()})

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

    def plot(self, figure: Literal["costs", "scores"] = "costs") -> "Figure":
        """Draw costs against predictions, or scores beside costs."""
        from sampler.heads.shown import draw_costs, draw_head_scores
        from sampler.presentation.style import figure_style

        drawings = {"costs": draw_costs, "scores": draw_head_scores}
        if figure not in drawings:
            raise InputError("figure", figure, 'must be "costs" or "scores"')
        with figure_style():
            return drawings[figure](self.result)

    def __repr__(self) -> str:
        from sampler.heads.shown import removal_text

        return removal_text(self.result)

    def _repr_html_(self) -> str:
        from sampler.heads.shown import tables_of, whole_text

        first, *others = (table._repr_html_() for table in tables_of(self.result).values())
        said = [f"<p>{escape(note)}</p>" for note in self.result.notes]
        return "".join([f"<p>{escape(whole_text(self.result))}</p>", first, *said, *others])


@in_python
def ablate_heads(
    model: Any,
    network: ChosenNetwork,
    *,
    train: LabelledExamples | None = None,
    validation: LabelledExamples | None = None,
    test: LabelledExamples | None = None,
    loss: Literal["auto", "squared", "likelihood"] = "auto",
    layers: tuple[int, int] | None = None,
    heads: Mapping[int, Sequence[int]] | None = None,
    paths: Literal["products", "single"] = "products",
    mlps: bool = False,
    residual: bool | None = None,
    forward: Any = None,
    projection: str | None = None,
    batch_size: int = 64,
    starts: int = STARTS,
    solve_again: bool = True,
    progress: bool = True,
) -> AblatedHeads:
    """Remove every head of a trained model on unseen examples, and say what predicts the cost.

    model    a PyTorch module that `export_attention` takes; or what `one_shot_task` or
             `trained_series_task` returns, with the network that `train` made
    network  of the theory: widths, temperature, and the token that is read out. Without a
             temperature it is the one of five from 0.01 to 1, times the mean square label, at which
             the theory has the least squared loss on the validation examples
    train, validation, test
             of a PyTorch module: pairs of inputs and labels, as for `export_attention`, or with the
             number of the token that is read for each example behind them. The theory learns from
             the first split, predictions are made on the second, removal is measured on the third
    loss     of the model: "squared", or "likelihood" of its outputs as logits; "auto": the latter
             for a PyTorch module whose labels are classes
    layers, heads, paths, mlps
             of a PyTorch module: what the theory sees of it, as for `export_attention`; heads that
             it does not see are not removed
    residual a head in each layer stands for the residual connection of a PyTorch module; by default
             so, but for single paths
    forward  runs a PyTorch module on a batch, `forward(model, batch)`, and returns its outputs
             [example] or [example, output]
    projection
             end of the names of the modules that are given all heads of a layer side by side, as in
             "attention.dense"; by default they are found, and where there are none, the products of
             attention with values
    batch_size
             examples in a PyTorch module at a time
    starts   starting points of the theory, as for `solve`
    solve_again
             solve the theory once more without each head, too: with many paths the longest part
    progress on stderr, or in one line of a notebook: how far it is, and the time left

    A head is replaced by its mean over examples, padding left out, and by 0. Predicted is that by
    the head score, by the loss of the theory with the head removed, with its rows of U₁ zeroed and
    solved again, by Taylor importance (the mean of |∂loss/∂gate|) and by magnitude. Layers are
    numbered over the whole model, from 1, one that runs several times as several, and heads from 0.
    Ctrl-C, once heads are being removed, ends with what is done. Raises InputError for what cannot
    be used.
    """
    from sampler.jobs.ablation import Asked, ablated

    seen = SeenOfModel(layers, heads or {}, paths, mlps, residual)
    runs = RunOfModel(forward, projection, batch_size)
    chosen = heads_of_model(
        model, {"train": train, "validation": validation, "test": test}, seen, runs
    )
    kind = chosen_loss(chosen.labels, chosen.gated["validation"], loss, likely=not chosen.is_task)
    asked = Asked(kind, solve_again)
    theory = theory_of_heads(chosen, network, starts, progress)
    with jax_settings():
        return AblatedHeads(
            ablated(
                theory.problem(), chosen.gated, chosen.numbering, asked, theory.table,
                progress, theory.notes,
            )
        )  # fmt: skip
