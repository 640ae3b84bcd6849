"""How many examples does it take to find the attention that made the labels?

Two learned heads on short hidden Markov chains. First a teacher: labels drawn from a network of
the prior, its attention included, so that what is learned of attention is the most that anyone
can learn (Nishimori's identity). Then the task's own labels: does the posterior find the head
that a person would choose, and what does it gain over attention that is fixed?

    python -m runs.studies.teacher_student.study     an hour and a half of two cores
"""

from pathlib import Path

from matplotlib.figure import Figure

from runs.studies.numbers import mean_over
from runs.studies.study import Study
from runs.studies.tables import Table, table
from runs.studies.teacher_student.posteriors import FIXED, measure
from sampler.presentation import style

# Labels, width, examples: data sets and particles, fewer where a gradient takes milliseconds.
POINTS = {
    **{
        ("teacher", width, examples): (5, 128)
        for width in (10, "infinite")
        for examples in (50, 150)
    },
    **{("teacher", width, 500): (2, 64) for width in (10, "infinite")},
    **{("own", 10, examples): (5, 128) for examples in (20, 50)},
    ("own", 10, 150): (3, 128),
}
SMALL = {("teacher", 10, 50): (2, 16), ("own", 10, 20): (1, 16)}
OF_TEACHER = {
    "overlap with the teacher": ("overlap with the teacher",),
    "overlap of two draws": ("overlap of two draws",),
    "of the prior with the teacher": ("overlap without data",),
    "squared error of f, share": ("error of f",),
}
OF_GAIN = {
    "accuracy (%), learned": ("accuracy", None, 100),
    **{name: (f"{name}: accuracy", None, 100) for name in FIXED},
    "ln p(y) above good": ("good: evidence below learned",),
    "above random": ("random: evidence below learned",),
}
OF_HEADS = {
    "distance from the good head": ("distance from good",),
    "of the prior": ("distance from good, prior",),
    "trace of U₁": ("trace of U_1",),
    "of its leading order on the same attention": ("trace of U_1, theory",),
}


def numbers(rows: dict[str, dict]) -> dict:
    """Means over data sets, by labels, width and number of examples."""
    found: dict[str, dict] = {"teacher": {}, "own": {}}
    for point, row in rows.items():
        kind, place = point.split(" | ", 1)
        sets = row["data sets"]
        found[kind][place] = {
            key: mean_over([one[key] for one in sets], "data sets") for key in sets[0]
        }
    return found


def draw(teacher: dict[str, dict]) -> Figure:
    """Draw overlaps of attention and the error of f against the number of examples."""
    title = "Attention that is learned from its own labels"
    figure = style.new_figure(style.WIDTH, 3.4, title)
    axes, fit = figure.subplots(1, 2)
    for width, colour in (("N = 10", style.VERMILLION), ("N = infinite", style.BLUE)):
        rows = {int(of.split(" | ")[1]): row for of, row in teacher.items() if of.startswith(width)}
        for ax, key, marker in (
            (axes, "overlap with the teacher", "o"),
            (axes, "overlap of two draws", "x"),
            (fit, "error of f", "o"),
        ):
            values, errors = (
                [row[key][part] for row in rows.values()] for part in ("value", "error")
            )
            label = f"{width}, two draws" if marker == "x" else width
            ax.errorbar([*rows], values, errors, fmt=f"{marker}-", color=colour, label=label)
    axes.set(ylabel="overlap of attention", ylim=(0.0, 1.5))
    fit.set_ylabel("error of f / mean square of f")
    for ax in (axes, fit):
        ax.set(xscale="log", xlabel="examples $P$")
    axes.legend(fontsize="small", loc="upper left")
    return figure


def points(small: bool, folder: Path) -> dict[str, tuple]:
    """Labels, width and number of examples."""
    every = (SMALL if small else POINTS).items()
    return {f"{of[0]} | N = {of[1]} | {of[2]}": (measure, *of, *sizes) for of, sizes in every}


def tables(numbers: dict) -> dict[str, Table]:
    """Overlaps with the teacher; accuracy, evidence and attention with own labels."""
    own = {place.split(" | ")[1]: row for place, row in numbers["own"].items()}
    return {
        "teacher": table("width | P", numbers["teacher"], OF_TEACHER),
        "gain": table("P", own, OF_GAIN),
        "heads": table("P", own, OF_HEADS),
    }


STUDY = Study(
    __file__,
    points,
    numbers,
    tables,
    figures=lambda rows, numbers: {"figure": draw(numbers["teacher"])},
)

if __name__ == "__main__":
    STUDY.run()
