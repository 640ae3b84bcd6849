"""How fast both orders of the theory approach the exact posterior.

The saddle point has an error of order 1/N, the theory at next order one of order 1/N². Both are
held against the exact posterior of U₁: two outputs while widths and examples grow together, where
the orders show, and a single example, where they need not. That posterior is known from weighted
importance draws, as many as bring their noise below a fifth of what is left of the difference.
Beyond their reach, and with ten outputs, chains draw it. Data grow as copies of one small problem,
each copy in channels of its own, so that nothing but the size changes.

    python -m runs.studies.next_order.study [FOLDER [MOST_DRAWS [DRAWS]]]

3,000,000 weighted draws at most, and chains of 1,500.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from scipy.special import chdtrc

import sampler
from runs.studies.next_order.power_law import fit_power_law
from runs.studies.scripts import Study, estimate
from sampler.analysis.difference import DIFFERS, NOT_TRUSTED, RESOLVED, difference_of
from sampler.analysis.estimates import Estimate
from sampler.presentation import style
from theory import LearningProblem, solve_next_order, solve_saddle_point

BLOCK = 200_000
TEMPERATURE, PATHS, CHANNELS = 0.1, 2, 4
ORDERS = {
    "leading": (style.LEADING, style.THEORY, "o"),
    "next": (style.NEXT, style.NEXT_ORDER, "s"),
}
Data = tuple[np.ndarray, np.ndarray]  # attended inputs and labels


# --- data


def base(examples: int, outputs: int) -> Data:
    """Two paths, one of them weaker; outputs are signs of linear functions of the other one."""
    rng = np.random.default_rng(1)
    attended = rng.standard_normal((examples, PATHS, CHANNELS)) * np.array([1.0, 0.6])[:, None]
    return attended, np.sign(attended[:, 0] @ rng.standard_normal((CHANNELS, outputs)))


def copied(data: Data, copies: int) -> Data:
    """The data several times, each copy in channels of its own: the energy is multiplied."""
    attended, labels = data
    examples = len(attended)
    spread = np.zeros((copies, examples, PATHS, copies, CHANNELS))
    for copy in range(copies):
        spread[copy, :, :, copy] = np.sqrt(copies) * attended
    shape = copies * examples, PATHS, copies * CHANNELS
    return spread.reshape(shape), np.tile(labels, (copies, 1))


def recipe_of(data: Data, width: int, temperature: float = TEMPERATURE) -> sampler.Recipe:
    """A network of this width that learns these data."""
    attended, labels = data
    return sampler.Recipe(
        task=sampler.Arrays(
            attended=attended,
            labels=labels,
            heads=[attended.shape[1]],
            attended_test=attended[:1],
        ),
        network={"widths": width},
        posterior={"temperature": temperature},
    )


# --- the exact posterior by weighted draws


def exact(
    problem, predictions: list[np.ndarray], most_draws: int, stream: tuple[int, ...] = ()
) -> Estimate:
    """Posterior mean of U₁ with the covariance of its error.

    Draws until the noise is below a fifth of the smallest difference from the predictions. Means of
    different streams are independent.
    """
    space = problem.space("order_parameters")

    def overlap(point):
        factor = space.factors(space.unflatten(point))[0]
        return (factor @ factor.T).reshape(-1)

    overlaps = jax.jit(jax.vmap(overlap))
    total, moments, squares, of_weights, draws, first = 0.0, 0.0, 0.0, 0.0, 0, None
    while draws < most_draws:
        # Around the mode alone: its heavy tails bound the weights of so many draws.
        block = sampler.weighted_draws(
            problem, min(BLOCK, most_draws), [draws + 1, *stream], adapted=False
        )
        if not block.trusted:
            raise SystemExit(block.explain())
        values = np.asarray(overlaps(jnp.asarray(block.points)))
        first = block.log_evidence if first is None else first
        weights = block.weights * np.exp(block.log_evidence - first)
        total, moments = total + weights.sum(), moments + weights @ values
        of_weights += weights @ weights
        mean = moments / total
        away = weights[:, None] * (values - mean)
        squares = squares + away.T @ away
        draws += len(values)
        noise = squares / total**2
        gaps = [np.sum((mean - one.reshape(-1)) ** 2) for one in predictions]
        if min(gaps) > 26.0 * np.trace(noise):
            break
    sizes, directions = np.linalg.eigh(noise)
    rows = np.sqrt(np.maximum(sizes, 0.0))[:, None] * directions.T
    return Estimate(mean, np.sqrt(np.diag(noise)), rows, int(total**2 / of_weights) - 1)


def by_weighted_draws(data: Data, width: int, temperature: float, most_draws: int) -> dict:
    """Relative difference of U₁ of both orders, with its error."""
    problem = sampler.make_problem(recipe_of(data, width, temperature))
    learning: LearningProblem = problem.learning
    saddle = solve_saddle_point(learning)
    beyond = solve_next_order(learning, saddle, evidence=False)
    predictions = [np.asarray(saddle.order_parameters.matrices[0]), beyond.order_parameters[0]]
    sampled = exact(problem, predictions, most_draws)
    found = [difference_of(one.reshape(-1), sampled) for one in predictions]
    return dict(zip(ORDERS, map(row_of, found), strict=True))


def row_of(one: Mapping) -> list:
    """Size, error, whether there is a difference, and what it is below."""
    # Near zero the square is known, not its root.
    error, below = one["difference_error"], one["below"]
    error = error if one["state"] == RESOLVED else np.fmin(error, below)
    return [one["difference"], float(error), one["state"] in (RESOLVED, DIFFERS), below]


def by_chains(data: Data, width: int, draws: int) -> dict:
    """The same by chains, without what cannot be trusted."""
    recipe = recipe_of(data, width)
    theory = sampler.solve(recipe)
    if not theory.attrs["converged"]:
        raise SystemExit(theory.attrs["explanation"])
    compared = sampler.compare(theory, sampler.sample(recipe, draws=draws, progress=False))
    fine = theory.attrs["next_order_status"] == "fine"
    found = {
        order: compared.rows["order_parameter", order]
        for order in (ORDERS if fine else ["leading"])
    }
    return {order: row_of(one) for order, one in found.items() if one["state"] != NOT_TRUSTED}


# --- all widths together


def two_paths(width: int, draws: int) -> dict:
    """What the next order leaves of U₁ of the two paths of finite_size.toml, on the good path.

    square, freedom: δᵀ Σ⁻¹ δ of all elements, which is χ² where the next order is exact.
    """
    recipe = sampler.Recipe(
        task=sampler.MarkovChain(perpendicular_noise=5.0, seed=8),
        attention={"heads": [["good", "uniform"], ["uniform"]]},
        network={"widths": width},
    )
    problem = sampler.make_problem(recipe)
    saddle = solve_saddle_point(problem.learning)
    beyond = solve_next_order(problem.learning, saddle, evidence=False).order_parameters[0]
    sampled = exact(problem, [beyond], draws, stream=(width,))
    upper = np.flatnonzero(np.triu(np.ones(beyond.shape)))
    gap, rows = (sampled.value - beyond.reshape(-1))[upper], sampled.deviations[:, upper]
    noise = rows.T @ rows
    return {
        "exact": estimate(sampled.value[0], sampled.mcse[0], "MCSE"),
        "next order": beyond[0, 0],
        "difference": estimate(gap[0], sampled.mcse[0], "MCSE"),
        "square": gap @ np.linalg.solve(noise, gap),
        "freedom": len(gap),
    }


def together(rows: dict[str, dict]) -> dict:
    """Whether the next order differs at any width: one test of all widths, whose draws differ."""
    square, freedom = (sum(row[key] for row in rows.values()) for key in ("square", "freedom"))
    return {"square": square, "freedom": freedom, "p": chdtrc(freedom, square)}


# --- power laws

Points = dict[int, Callable[[], dict]]


def summary(found: dict[int, dict]) -> dict[str, dict]:
    """Differences by width of both orders, and the exponent of their power law."""
    orders = {}
    for order in ORDERS:
        rows = {width: one[order] for width, one in found.items() if order in one}
        widths, table = np.array(list(rows)), np.array(list(rows.values())).reshape(-1, 4)
        law = fit_power_law(widths, table[:, 0], table[:, 1])
        orders[order] = {
            "slope": estimate(law.slope, law.slope_error, "of the fit"),
            "difference": {
                str(width): estimate(value, error, "MCSE") | {"differs": differs, "below": below}
                for width, (value, error, differs, below) in rows.items()
            },
        }
    return orders


def draw_order(ax: Axes, order: str, found: dict) -> None:
    """Draw the differences of an order against the width, with their power law.

    Hollow triangles are what a difference that is not seen is below.
    """
    label, colour, marker = ORDERS[order]
    widths = np.array([*map(float, found["difference"])])
    values, errors, bounds = (
        100 * np.array([one[key] for one in found["difference"].values()])
        for key in ("value", "error", "below")
    )
    clear = np.array([one["differs"] for one in found["difference"].values()])
    marks = {"color": colour, "markersize": 6, "linestyle": "none"}
    ax.errorbar(widths[clear], values[clear], errors[clear], marker=marker, label=label, **marks)
    if not clear.all():
        marks |= {"marker": "v", "fillstyle": "none", "label": f"{label}: unresolved, below"}
        ax.plot(widths[~clear], bounds[~clear], **marks)
    law = fit_power_law(widths, values, errors)
    if not np.isfinite(law.slope):
        return
    line = {"color": colour, "linewidth": 1.0, "label": f"{label}: power law"}
    ax.plot(widths, law.prefactor * widths**law.slope, "--", **line)
    # At the middle of the line: above it to the right, or below it to the left.
    place = np.exp(np.log(widths).mean())
    text = style.minus_signs(f"$N^{{{law.slope:.2f} ± {law.slope_error:.2f}}}$")
    above = {"xytext": (8, 4)} if order == "leading" else {"xytext": (-6, -14), "ha": "right"}
    beside = {"textcoords": "offset points", "color": colour, **above}
    ax.annotate(text, (place, law.prefactor * place**law.slope), **beside)


def draw(studies: dict[str, dict]) -> Figure:
    """Draw the error of both orders against the width, a panel for each kind of data."""
    title = "Error of the theory: relative difference of $U_1$"
    figure = style.new_figure(style.WIDTH, 4.4, title)
    panels = figure.subplots(1, len(studies), sharey=True)
    for ax, (name, orders) in zip(panels, studies.items(), strict=True):
        for order in ORDERS:
            draw_order(ax, order, orders[order])
        widths = [*map(int, orders["leading"]["difference"])]
        ax.set(xscale="log", yscale="log", xlabel="width $N$", title=name)
        ax.set_xticks(widths, map(str, widths))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.margins(x=0.15)
        ax.grid(axis="y", color=style.GRID, linewidth=0.8)
    panels[0].set_ylabel("difference from the exact posterior (%)")
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    shown = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in panels]
    entries = {label: handle for panel in shown for handle, label in panel}
    style.legend_below(figure, ([*entries.values()], [*entries]))
    return figure


def write_chains(study: Study, of_chains: dict[str, dict]) -> None:
    """Put differences of the leading order into the table of all widths."""
    found = [orders["leading"]["difference"] for orders in of_chains.values()]
    widths = sorted({width for of in found for width in of}, key=int)
    rows = {width: {str(at): of.get(width) for at, of in enumerate(found)} for width in widths}
    columns = {name: (str(at), 4) for at, name in enumerate(of_chains)}
    study.table("chains", "N", rows, columns)


if __name__ == "__main__":
    study = Study(__file__)
    most_draws, draws = study.size(0, 3_000_000), study.size(1, 1500)
    two, ten = base(8, 2), base(6, 10)
    single_example = np.ones((1, 1, 1)), np.ones((1, 1))
    weighted = {
        "two outputs, P = N": {8 * c: (copied(two, c), TEMPERATURE) for c in (1, 2, 3)},
        "one example": dict.fromkeys((2, 4, 8, 16), (single_example, 0.3)),
    }
    chains = {
        "two outputs, P = N": {8 * c: copied(two, c) for c in (1, 2, 4, 8, 16)},
        "ten outputs, P = 3N/8": {16 * c: copied(ten, c) for c in (1, 2, 4)},
        "two outputs, P = 16": {width: copied(two, 2) for width in (16, 32, 64)},
    }
    numbers = {
        name: summary(
            {
                width: study.once(
                    f"{name}, {width}", by_weighted_draws, data, width, temperature, most_draws
                )
                for width, (data, temperature) in points.items()
            }
        )
        for name, points in weighted.items()
    }
    of_chains = {
        name: summary(
            {
                width: study.once(f"chains, {name}, {width}", by_chains, data, width, draws)
                for width, data in points.items()
            }
        )
        for name, points in chains.items()
    }
    of_paths = {
        str(width): study.once(f"two paths, {width}", two_paths, width, min(most_draws, 300_000))
        for width in (10, 30, 100, 300, 1000)
    }
    joint = {"two paths": of_paths, "all widths of them": together(of_paths)}
    study.record(numbers | {"chains": of_chains} | joint)
    columns = {
        "exact": ("exact", 4),
        "next order": ("next order", 4),
        "exact − next order": ("difference", 4),
    }
    study.table("two-paths", "N", of_paths, columns)
    write_chains(study, of_chains)
    with style.figure_style():
        study.draw(draw(numbers))
