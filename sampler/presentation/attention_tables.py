"""Tables of attention that was sampled: its heads, and U₁ with paths in matched order."""

import numpy as np

from sampler.analysis.attention_found import AttentionFound
from sampler.analysis.names import head_label
from sampler.presentation.table import Column, Table

MOST_PATHS = 15


def attention_tables(found: AttentionFound | None) -> list[Table]:
    """Return the tables of sampled attention; none where it was not sampled."""
    if found is None:
        return []
    return [heads_table(found), matched_overlap_table(found)]


def heads_table(found: AttentionFound) -> Table:
    """Entropy, distances and overlaps of every learned head, beside what they are a priori."""
    rows = [
        [
            f"{head_label(one.layer, one.head, one.name)}: {one.quantity}",
            (one.value, one.error),
            one.prior,
            one.prior_deviation,
            one.r_hat,
        ]
        for one in found.numbers
    ]
    caption = (
        "Heads of all draws in matched order; distance: total variation, overlap: Σ ΩΩ'/Σ Ω'² with "
        f"the other head's Ω', entropy in nats. Errors: {found.kind_of_errors}. Draws of the prior "
        "are matched in the same way, and their spread is that of single draws."
    )
    columns = (
        Column("head"),
        Column("exact posterior", "sampled", "error"),
        Column("prior", meaning="mean over draws of the prior"),
        Column("spread of prior", digits=2, meaning="standard deviation of a draw of the prior"),
        Column("R-hat", digits=4),
    )
    return Table("Heads", columns, rows, caption)


def matched_overlap_table(found: AttentionFound) -> Table:
    """Elements of U₁ whose paths are in matched order; the diagonal alone where there are many."""
    columns = (Column("paths"), Column("exact posterior", "sampled", "error"))
    title = "U₁, paths in matched order"
    overlap = found.order_parameter
    if overlap is None:
        return Table(title, columns, [])
    names, count = found.path_names, len(overlap.value)
    pairs = [(i, j) for i in range(count) for j in range(i, count)]
    if len(pairs) > MOST_PATHS:
        pairs = [(i, i) for i in range(min(count, MOST_PATHS))]
    rows = [
        [
            names[i] if i == j else f"{names[i]} × {names[j]}",
            (float(np.asarray(overlap.value)[i, j]), float(np.asarray(overlap.mcse)[i, j])),
        ]
        for i, j in pairs
    ]
    caption = f"Mean over the draws that attention was measured in. Errors: {found.kind_of_errors}."
    if len(pairs) < count * (count + 1) // 2:
        caption += f" {len(pairs)} of {count} elements of the diagonal."
    return Table(title, columns, rows, caption)
