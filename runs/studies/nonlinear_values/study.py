"""At which width and depth do theories of nonlinear values stop being right?

Networks whose values pass a ReLU, and linear ones beside them: the exact posterior is sampled,
in hidden weights and in order parameters, and held against the network of infinite width, an
approximation of finite width (by heads: order parameters of all of them), and for linear values
against the theory of attention paths. A difference is that of the mean predictors on test
examples, |theory − posterior mean|/|posterior mean|, without the bias of Monte Carlo noise; so is
that of the overlaps U_1, for which the weights of some draws are kept.

    python -m runs.studies.nonlinear_values.study [FOLDER [WIDEST [SEEDS]]]

3 data seeds: an hour and a half on two cores. Where chains of one data seed do not pass their
diagnostics in time, such networks are not sampled with further seeds.
"""

from itertools import product

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.nonlinear_values.mathematics import by_heads
from runs.studies.scripts import Study, mean_over
from sampler.analysis.difference import UNDECIDED, difference_of
from sampler.analysis.estimates import OF_CHAINS
from sampler.network import path_weights
from sampler.presentation import style
from sampler.runtime import jax_settings
from theory import Architecture

WIDTHS = (5, 15, 30, 100)
EXAMPLES, TESTS, TEMPERATURE, DEPTHS, VALUES = 40, 200, 0.1, (1, 2), ("relu", "linear")
HEADS = {
    "markov": {1: [["good", "uniform"]], 2: [["good", "random"], ["uniform", "random"]]},
    "digits": {1: [["similar", "near"]], 2: [["similar", "near"], ["similar", "near"]]},
}
# Minutes of sampling at most, where chains do not pass their diagnostics before.
MINUTES = 4.0


def recipe_of(kind: str, depth: int, width: int, values: str, seed: int) -> sampler.Recipe:
    """Data of a seed: hidden Markov chains of 8 tokens, or threes and eights in 4 patches."""
    sizes = {"examples_train": EXAMPLES, "examples_test": TESTS, "seed": seed}
    if kind == "markov":
        task, readout = sampler.MarkovChain(tokens=7, features=10, **sizes), "last"
    else:
        task, readout = sampler.Digits(classes=[3, 8], patch=4, **sizes), "mean"
    return sampler.Recipe(
        task=task,
        attention={"heads": HEADS[kind][depth]},
        network={"widths": width, "values": values, "readout": readout},
        posterior={"temperature": TEMPERATURE},
    )


def relative(predicted: np.ndarray, sampled) -> list[float] | None:
    """Relative difference and its error; None where nothing can be said."""
    found = difference_of(predicted, sampled, symmetric=True)
    if not found or found["state"] in UNDECIDED:
        return None
    return [found["difference"], found["difference_error"], found["below"]]


def overlaps_of(draws, depth: int, width: int) -> np.ndarray:
    """U_1 [chain, draw, path, path] of kept weights."""
    stored = draws["posterior_weights"]
    weights = {name: np.asarray(stored[name]) for name in stored if name in ("a", "V_1", "V_2")}
    arch = Architecture((2,) * depth, (width,) * (depth + 1), (1.0,) * (depth + 2), 1,
                        weights["a"].shape[-2])  # fmt: skip
    chains, count = weights["a"].shape[:2]
    found = np.empty((chains, count), dtype=object)
    for place in np.ndindex(chains, count):
        rows = np.asarray(path_weights({n: w[place] for n, w in weights.items()}, arch)[0])
        found[place] = rows @ rows.T / width
    return np.array(found.tolist())


def measure(kind: str, depth: int, width: int, values: str, seed: int) -> dict:
    """How far every theory is from the sampled posterior of one network."""
    recipe = recipe_of(kind, depth, width, values, seed)
    theory = sampler.solve(recipe)
    kept = values == "relu" and width <= 30
    draws = sampler.sample(
        recipe, max_minutes=MINUTES, weight_draws=400 if kept else 0, seed=seed,
        progress=False,
        **({"space": "hidden_weights"} if values == "relu" else {}),
    )  # fmt: skip
    own = {}
    if values != "linear":
        with jax_settings():
            of_heads = by_heads(sampler.make_problem(recipe))
        own = {} if of_heads is None else {"by heads": of_heads[0]}
    found = sampler.compare(theory, draws, own=own)
    of_chains = found.diagnostics
    of_mean = found.table().loc["predictor_mean"].query("state != '' and state not in @UNDECIDED")
    columns = ["difference", "difference_error", "below"]
    differences = {found.names[name]: list(row) for name, row in of_mean[columns].iterrows()}
    row = {
        "trusted": bool(of_chains.passed),
        "r_hat": max(one.r_hat for one in of_chains.quantities.values()),
        "seconds": float(draws["posterior"].attrs["seconds"]),
        "differences": differences,
    }
    if kept and of_heads is not None:
        sampled = OF_CHAINS.mean(overlaps_of(draws, depth, width))
        row["overlaps"] = relative(of_heads[1], sampled)
    return row


Networks = dict[tuple, dict]  # by task, depth, width, values and data seed


def sampled_networks(study: Study, widths: list[int], seeds: range) -> Networks:
    """All networks; where a data seed did not pass its diagnostics, further ones are left out."""
    rows: Networks = {}
    for seed, width, depth, kind, values in product(seeds, widths, DEPTHS, HEADS, VALUES):
        point = kind, depth, width, values, seed
        if all(row["trusted"] for other, row in rows.items() if other[:-1] == point[:-1]):
            rows[point] = study.once("_".join(map(str, point)), measure, *point)
        else:
            rows[point] = {"trusted": False, "differences": {}}
    return rows


# --- differences over data seeds, by task, depth, width, values and theory

# By what the comparison calls them.
THEORIES = {
    "relu": {"infinite width": "infinite width", "by heads": "by heads"},
    "linear": {"infinite width": "infinite width", "theory": "leading order"},
}


def over_data_sets(values: list[float]) -> dict | None:
    """Their mean and its error; None for fewer than two."""
    return mean_over(values, "data sets") if len(values) > 1 else None


def summary(rows: Networks, widths: list[int], seeds: range) -> dict:
    """Means over data sets, and how many networks were sampled and can be trusted."""
    sampled = [row for row in rows.values() if "r_hat" in row]
    numbers: dict = {
        "networks": len(rows),
        "sampled": len(sampled),
        "trusted": sum(row["trusted"] for row in sampled),
        "minutes": round(sum(row["seconds"] for row in sampled) / 60),
    }
    for kind, depth, width in product(HEADS, DEPTHS, widths):
        of_width = numbers.setdefault(f"{kind}, {depth}", {})
        point = of_width[str(width)] = {}
        for values, theories in THEORIES.items():
            mine = [rows[kind, depth, width, values, seed] for seed in seeds]
            point[values] = {
                theory: over_data_sets(
                    [one["differences"][name][0] for one in mine if name in one["differences"]]
                )
                for theory, name in theories.items()
            }
        overlaps = [rows[kind, depth, width, "relu", seed].get("overlaps") for seed in seeds]
        point["overlaps by heads"] = over_data_sets([one[0] for one in overlaps if one])
    return numbers


DRAWN = (
    ("relu", "infinite width", style.GREY, "-"),
    ("relu", "by heads", style.THEORY, "-"),
    ("linear", "infinite width", style.GREY, ":"),
    ("linear", "theory", style.THEORY, ":"),
)


def draw(numbers: dict, widths: list[int]) -> Figure:
    """Draw the difference of the mean predictor against the width, a panel a task and depth."""
    figure = style.new_figure(style.WIDTH, 5.4)
    figure.suptitle("Where theories of nonlinear values stop being right")
    panels = figure.subplots(len(DEPTHS), len(HEADS), sharex=True, sharey=True)
    for (kind, depth), ax in zip(product(HEADS, DEPTHS), panels.T.flat, strict=True):
        for values, theory, colour, line in DRAWN:
            found = {n: numbers[f"{kind}, {depth}"][str(n)][values][theory] for n in widths}
            found = {n: one for n, one in found.items() if one is not None}
            means, errors = ([one[key] for one in found.values()] for key in ("value", "error"))
            marks = {"color": colour, "linestyle": line, "marker": "o", "markersize": 3}
            label = f"{'ReLU' if values == 'relu' else values}: {theory}"
            ax.errorbar([*found], means, errors, label=label, **marks)
        ax.set(xscale="log", yscale="log", xlim=(widths[0] / 1.3, widths[-1] * 1.3))
        ax.set_xticks(widths, map(str, widths))
        ax.minorticks_off()
        ax.set_title(f"{kind}, {depth} layer{'s' * (depth > 1)}", fontsize=9)
    for lower, left in zip(panels[-1], panels[:, 0], strict=True):
        lower.set_xlabel("width N")
        left.set_ylabel("difference of the\nmean predictor")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


if __name__ == "__main__":
    study = Study(__file__)
    widths = [width for width in WIDTHS if width <= study.size(0, WIDTHS[-1])]
    seeds = range(study.size(1, 3))
    numbers = summary(sampled_networks(study, widths, seeds), widths, seeds)
    study.record(numbers, seeds=list(seeds))
    with style.figure_style():
        study.draw(draw(numbers, widths))
