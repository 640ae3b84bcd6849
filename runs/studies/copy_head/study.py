"""When does a head learn to copy?

One head whose logits of positions are sampled, T tokens of six symbols, and labels that are the
token before the last: attention either copies nothing, all weights being 1/T, or stands on that
token. Softmax attention passes from one to the other by a jump (two minima of the free energy,
a first-order transition), linear attention smoothly. Sampled by tempered particles, from all
modes and from the prior alone, over data sets, beside the free energy of `CopyHead`.

    python -m runs.studies.copy_head.study     five data sets, half an hour
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import sampler
from runs.studies.copy_head.mathematics import CopyHead, sampled_weight
from runs.studies.numbers import mean_over
from runs.studies.study import Study
from runs.studies.tables import Table, table
from sampler.presentation import style

SYMBOLS, TEMPERATURE = 6, 0.2
MEANS = ("copied", "prior minus modes", "share")
TASK = (SYMBOLS, TEMPERATURE)
# Of a series, its free energy (tokens, scale of the logits, width) and numbers of examples.
SERIES = {
    "T = 24": (CopyHead(24, *TASK, 0.3), (4, 6, 8, 10, 15)),
    "T = 48": (CopyHead(48, *TASK, 0.15), (20, 24, 27, 30, 35)),
    "T = 96": (CopyHead(96, *TASK, 0.15), (30, 36, 42, 50, 65)),
    "T = 48, N = 10": (CopyHead(48, *TASK, 0.15, width=10), (20, 27, 35)),
    "T = 48, N = 30": (CopyHead(48, *TASK, 0.15, width=30), (20, 27, 35)),
    "T = 48, N = 100": (CopyHead(48, *TASK, 0.15, width=100), (20, 27, 35)),
    "T = 48, linear": (CopyHead(48, *TASK, 0.15, form="linear"), (20, 35, 100)),
}
SMALL = {"T = 24": (8,), "T = 48, linear": (20,)}
# Series of both panels, and the numbers of examples between which they are drawn.
PANELS = (
    (("T = 24", "T = 48", "T = 96", "T = 48, linear"), (3, 110)),
    (("T = 48", "T = 48, N = 100", "T = 48, N = 30", "T = 48, N = 10"), (15, 45)),
)
COLOURS = (style.BLUE, style.VERMILLION, style.GREEN, style.ORANGE)
RANGES = {"second minimum from": "first", "equally deep": "equal", "alone from": "last"}
WEIGHTS = {
    "weight m, theory": ("theory", 3),
    "sampled": ("copied",),
    "data sets missed from the prior": ("missed by the prior start", 0),
    "ln p(y) from the prior − from the modes": ("prior minus modes", 2),
}
HUMPS = {"weight of the copying hump": ("share",), "by F": ("share by theory", 2)}


def measure(name: str, examples: int, data_sets: int, particles: int) -> dict:
    """Weight on the copied token in the posterior, and its evidence, of every data set."""
    head, rows = SERIES[name][0], []
    for seed in range(data_sets):
        recipe = sampler.Recipe(
            task=sampler.Copy(
                tokens=head.tokens, symbols=SYMBOLS, examples_train=examples, examples_test=2,
                examples_validation=0, seed=seed,
            ),
            attention={
                "heads": [["learned"]], "inverse_temperature": head.logit_scale,
                "form": {"kind": "softmax" if head.form == "softmax" else "first_order"},
            },
            network={"widths": "infinite" if np.isinf(head.width) else head.width},
            posterior={"temperature": TEMPERATURE},
        )  # fmt: skip
        settings = {"algorithm": "tempered", "particles": particles, "until": "draws"}
        draws = sampler.sample(recipe, repetitions=4, seed=seed, **settings)
        rows.append(sampled_weight(head, draws, examples))
    return {"data sets": rows}


def of_size(head: CopyHead, examples: int, rows: list[dict]) -> dict:
    """Means over data sets beside the theory, at one number of examples."""
    minima = head.minima(examples)
    known = [key for key in MEANS if rows[0][key] is not None]
    means = {key: mean_over([row[key] for row in rows], "data sets") for key in known}
    return dict.fromkeys(MEANS) | means | {
        "theory": min(minima, key=lambda one: one.free_energy).copied,
        "missed by the prior start": sum(row["missed"] for row in rows),
        "share by theory": head.copying_share(examples) if len(minima) > 1 else None,
    }  # fmt: skip


def numbers(rows: dict[str, dict]) -> dict:
    """Between which numbers of examples both minima exist, and means over data sets."""
    found: dict = {"ranges": {}, "sizes": {}}
    for point, row in rows.items():
        name, examples = point.split(" | ")
        head = SERIES[name][0]
        if name not in found["ranges"] and (both := head.coexistence()):
            found["ranges"][name] = vars(both)
        found["sizes"][point] = of_size(head, int(examples), row["data sets"])
    return found


def draw_series(axes: Axes, name: str, colour: str, rows: dict, ends: tuple[int, int]) -> None:
    """Weight on the copied token against examples: minima of the theory, and every data set."""
    for size in np.geomspace(*ends, 200):
        minima = sorted(SERIES[name][0].minima(size), key=lambda one: one.free_energy)
        alphas = [1.0, 0.3][: len(minima)]
        copied = [one.copied for one in minima]
        axes.scatter([size] * len(minima), copied, color=colour, s=3.0, alpha=alphas)
    found = {size: rows.get(f"{name} | {size}", {"data sets": ()}) for size in SERIES[name][-1]}
    shown = [(size, row["copied"]) for size, of in found.items() for row in of["data sets"]]
    axes.scatter(*zip(*shown, strict=True), edgecolors=colour, facecolors="none", label=name)


def draw(rows: dict[str, dict]) -> Figure:
    """Draw lengths of sequences above, widths below."""
    title = "Attention on the copied token: posterior by data set (rings), minima of F (dots)"
    figure = style.new_figure(style.WIDTH, 6.4, title)
    measured = {point.split(" | ")[0] for point in rows}
    for axes, (names, ends) in zip(figure.subplots(2, 1), PANELS, strict=True):
        for name, colour in zip(names, COLOURS, strict=True):
            if name in measured:
                draw_series(axes, name, colour, rows, ends)
                axes.legend(fontsize="small")
        axes.set(xscale="log", xlabel="examples $P$", ylabel="weight on the copied token")
    return figure


def tables(numbers: dict) -> dict[str, Table]:
    """Where two minima are, the weight on the copied token, and that of the copying hump."""
    sizes = numbers["sizes"]
    # Elsewhere all data sets have all of their weight, or none, in the copying hump.
    shares = {name: one["share"] for name, one in sizes.items() if one["share"]}
    humps = {name: sizes[name] for name, share in shares.items() if (share["error"] or 0) > 1e-6}
    return {
        "ranges": table("series", numbers["ranges"], {key: (of, 1) for key, of in RANGES.items()}),
        "weights": table("series | P", sizes, WEIGHTS),
        "humps": table("series | P", humps, HUMPS),
    }


def points(small: bool, folder: object) -> dict[str, tuple]:
    """Series and numbers of examples, with data sets and particles."""
    sizes = SMALL if small else {name: of for name, (*_, of) in SERIES.items()}
    limits = (2, 16) if small else (5, 256)
    every = [(name, examples) for name, of in sizes.items() for examples in of]
    return {" | ".join(map(str, point)): (measure, *point, *limits) for point in every}


STUDY = Study(__file__, points, numbers, tables, lambda rows, numbers: {"figure": draw(rows)})

if __name__ == "__main__":
    STUDY.run()
