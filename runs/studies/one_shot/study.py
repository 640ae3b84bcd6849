"""One-shot images: the same questions to eight trainings.

Trainings A to E have two layers of four heads, F to H three layers of three. Of each: accuracy of
the trained network, of the theory and of infinite width, each at its own best temperature by
validation and both at 𝒯 = 0.5; how well numbers of the theory order the heads by what their removal
costs the trained network; and how like U₁ is to the one that gradient descent found. Of A to E
also wider networks, other test sets, and heads that were never trained; of A and B the exact
posterior at N = 10.

    python -m runs.studies.one_shot.study [--small]     an hour

The weights are those in runs/trained; where NAME has none it is trained. Omniglot's files are
looked for in runs/omniglot, clothes of Fashion-MNIST where Debian puts them. Other figures of A are
those of its run, in runs/results/one_shot/A.
"""

from pathlib import Path

from matplotlib.figure import Figure

from runs.studies.numbers import mean_over
from runs.studies.one_shot.drawing import draw_task, draw_trainings_and_widths
from runs.studies.one_shot.mathematics import (
    FEW_PATHS,
    HEADS,
    NAMES,
    OMNIGLOT,
    WIDTHS,
    heads_of,
    measure,
    trained,
)
from runs.studies.study import Study
from runs.studies.tables import Table, table

# What is asked of some trainings alone, and by which name it is kept.
OF_SOME = ("posterior", "wider", "other sets", "untrained heads")
COLUMNS = {
    "trained network": ("same episodes", 3),
    "theory, N = 10": ("widths/10/accuracy", 3),
    "infinite width": ("widths/infinite/accuracy", 3),
    "cosine of U₁, theory and trained": ("cosine with the trained", 2),
}
OF_HEADS = {
    "head score": ("spearman/score/zero_loss/rho", 2),
    "U₁ zeroed": ("spearman/zeroed/zero_loss/rho", 2),
    "solved again": ("spearman/solved_again/zero_loss/rho", 2),
    "magnitude": ("spearman/magnitude/zero_loss/rho", 2),
    "dearest head": ("dearest", 1, 100),
    "cheapest head": ("cheapest", 1, 100),
}
OF_SETS = {
    "theory": ("theory", 3),
    "infinite width": ("infinite", 3),
    "trained network": ("trained", 3),
    "pixel nearest neighbour": ("pixels/value", 3),
}


def points(small: bool, folder: Path) -> dict[str, tuple]:
    """All trainings; of small size the first, with few episodes and draws."""
    if small:
        return {"A": (measure, "A", folder, 50, 50)}
    examples = {name: 600 if name in FEW_PATHS else 300 for name in NAMES}
    return {name: (measure, name, folder, examples[name], None) for name in NAMES}


def over_trainings(values: list) -> dict | None:
    """Mean of numbers over trainings, entry by entry of nested results that several have."""
    first = values[0]
    if not isinstance(first, dict):
        return mean_over(values, "trainings")
    if "value" in first:
        return over_trainings([one["value"] for one in values])
    found = {key: [one[key] for one in values if key in one] for key in first}
    return {key: over_trainings(those) for key, those in found.items() if len(those) == len(values)}


def numbers(rows: dict[str, dict]) -> dict[str, dict]:
    """What is known of every training, of some, and means over those with as many heads."""
    found = {
        "trainings": {
            name: {key: value for key, value in row.items() if key not in OF_SOME}
            for name, row in rows.items()
        }
    }
    for key in OF_SOME:
        found[key] = {name: row[key] for name, row in rows.items() if key in row}
    found["means"] = {}
    for heads in HEADS.values():
        those = [one for name, one in found["trainings"].items() if heads_of(name) == heads]
        if those:
            found["means"]["·".join(map(str, heads))] = over_trainings(those)
    for key in OF_SOME[1:]:
        found["means"][key] = over_trainings([*found[key].values()])
    return found


def tables(numbers: dict) -> dict[str, Table]:
    """Accuracies and heads of all trainings with their means, widths, and other test sets."""
    means = numbers["means"]
    rows = {}
    for heads in HEADS.values():
        those = [name for name in numbers["trainings"] if heads_of(name) == heads]
        words = ", ".join(map(str, heads))
        rows |= {f"{name} | {words}": numbers["trainings"][name] for name in those}
        key = "·".join(map(str, heads))
        rows |= {f"{key} | mean": means[key]} if those else {}
    widths = means["4·4"]["widths"] | means["wider"]
    by_width = {width: widths[width] for width in (*map(str, WIDTHS), "infinite")}
    both = {"at its best 𝒯": ("accuracy", 3), "at 𝒯 = 0.5": ("equal", 3)}
    return {
        "accuracy": table("training | heads", rows, COLUMNS),
        "heads": table("training | heads", rows, OF_HEADS),
        "widths": table("N", by_width, both),
        "other sets": table("test set", means["other sets"], OF_SETS),
    }


def figures(rows: dict[str, dict], numbers: dict) -> dict[str, Figure]:
    """Accuracies, and two episodes."""
    return {
        "trainings": draw_trainings_and_widths(numbers["trainings"], numbers["means"]),
        "task": draw_task(trained("A"), OMNIGLOT),
    }


STUDY = Study(__file__, points, numbers, tables, figures)

if __name__ == "__main__":
    STUDY.run()
