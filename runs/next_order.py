# %% [markdown]
# # How far the next order goes
#
# The saddle point has an error of order 1/N, the theory at next order one of order 1/N². Here both
# are held against the exact posterior: two outputs while widths and examples grow together, where
# the orders show, and a single example, where they need not. The posterior is known from weighted
# importance draws, as many as bring their noise below a fifth of what is left of the difference.
#
#     python runs/next_order.py [FOLDER] [MOST_DRAWS]
#
# by default into runs/results/next_order, with at most 3,000,000 draws a point.

# %%
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from renew import estimate, record

from sampler.analysis.estimates import RESOLVED_MCSE
from sampler.analysis.finite_size import fit_power_law
from sampler.posterior.importance import BatchedDensity, draw_weighted, single
from sampler.presentation import style
from sampler.problem import Problem
from theory import Architecture, LearningProblem, solve_next_order, solve_saddle_point

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/next_order")
MOST_DRAWS = int(sys.argv[2]) if len(sys.argv) > 2 else 3_000_000
BLOCK = 200_000
ORDERS = {
    "leading": (style.LEADING, style.THEORY, "o"),
    "next": (style.NEXT, style.NEXT_ORDER, "s"),
}
jax.config.update("jax_enable_x64", True)


# %%
def two_outputs(copies: int) -> LearningProblem:
    """Two paths, two outputs, N = P = 8 in every copy of the data, each in channels of its own."""
    rng = np.random.default_rng(1)
    attended = rng.standard_normal((8, 2, 4)) * np.array([1.0, 0.6])[:, None]
    labels = np.sign(attended[:, 0] @ rng.standard_normal((4, 2)))
    spread = np.zeros((copies, 8, 2, copies, 4))
    for copy in range(copies):
        spread[copy, :, :, copy] = np.sqrt(copies) * attended
    return learning(
        spread.reshape(8 * copies, 2, 4 * copies), np.tile(labels, (copies, 1)), 0.1, 8 * copies
    )


def one_example(width: int) -> LearningProblem:
    """A single example with the label 1: the likelihood does not grow with the width."""
    return learning(np.ones((1, 1, 1)), np.ones((1, 1)), 0.3, width)


def learning(attended, labels, temperature: float, width: int) -> LearningProblem:
    _, paths, channels = attended.shape
    architecture = Architecture.uniform((paths,), width, channels, labels.shape[1])
    arrays = (jnp.asarray(attended), jnp.asarray(labels))
    return LearningProblem(architecture, *arrays, temperature)


def exact(problem: LearningProblem, predictions: list[np.ndarray]) -> tuple:
    """Posterior mean of U_1, covariance of its error, and the number of draws.

    Draws until the noise is below a fifth of the smallest difference from the predictions.
    """
    space = Problem(problem, problem.attended[:1], None, (), ()).space("order_parameters")
    # Around the mode alone: its heavy tails bound the weights of so many draws.
    proposal, log_density = single(space.mode.gaussian), BatchedDensity.of(space)

    @jax.jit
    def overlaps(points):
        def one(point):
            factor = space.factors(space.unflatten(point))[0]
            return (factor @ factor.T).reshape(-1)

        return jax.vmap(one)(points)

    total, moments, squares, draws, first = 0.0, 0.0, 0.0, 0, None
    while draws < MOST_DRAWS:
        rng = np.random.default_rng(draws + 1)
        block = draw_weighted(proposal, log_density, min(BLOCK, MOST_DRAWS), rng)
        if not block.trusted:
            raise SystemExit(block.explain())
        values = np.asarray(overlaps(jnp.asarray(block.points)))
        first = block.log_evidence if first is None else first
        weights = block.weights * np.exp(block.log_evidence - first)
        total, moments = total + weights.sum(), moments + weights @ values
        mean = moments / total
        away = weights[:, None] * (values - mean)
        squares = squares + away.T @ away
        draws += len(values)
        noise = squares / total**2
        gaps = [np.sum((mean - one.reshape(-1)) ** 2) for one in predictions]
        if min(gaps) > 26.0 * np.trace(noise):
            break
    return mean, noise, draws


def differences(problem: LearningProblem) -> tuple[list[tuple[float, float]], str, int]:
    """Relative difference of U_1 of both orders with its error, the status, and the draws made."""
    saddle = solve_saddle_point(problem)
    beyond = solve_next_order(problem, saddle, evidence=False)
    predictions = [np.asarray(saddle.order_parameters.matrices[0]), beyond.order_parameters[0]]
    mean, noise, draws = exact(problem, predictions)
    found, size = [], np.linalg.norm(mean)
    for one in predictions:
        gap = mean - one.reshape(-1)
        difference = np.sqrt(max(gap @ gap - np.trace(noise), 0.0))
        error = np.sqrt(2.0 * np.sum(noise**2) + 4.0 * gap @ noise @ gap)
        # Near zero the square is known, not its root.
        error = min(error / (2.0 * difference), np.sqrt(error)) if difference else np.sqrt(error)
        found.append((difference / size, error / size))
    return found, beyond.status.value, draws


def study(name: str, problems: dict[int, LearningProblem]) -> dict:
    """Slope and differences by width of both orders, printed as they come."""
    print(f"{name}: relative difference of U₁ from the exact posterior", flush=True)
    rows = []
    for width, problem in problems.items():
        found, status, draws = differences(problem)
        leading, beyond = (f"{100 * value:.3f} ± {100 * error:.3f} %" for value, error in found)
        print(
            f"  N = {width:3}: leading {leading}, next {beyond} ({status}; {draws} draws)",
            flush=True,
        )
        rows.append(found)
    widths, table, orders = np.array(list(problems)), np.array(rows), {}
    for order, label in enumerate(ORDERS):
        law = fit_power_law(widths, table[:, order, 0], table[:, order, 1], smallest_width=0)
        print(f"  {label} order: N^({law.slope:.2f} ± {law.slope_error:.2f})", flush=True)
        orders[label] = {
            "slope": estimate(law.slope, law.slope_error, "of the fit"),
            "difference": {
                str(width): estimate(value, error, "MCSE")
                for width, (value, error) in zip(widths, table[:, order], strict=True)
            },
        }
    return orders


# %%
def draw_orders(studies: dict[str, dict]) -> Figure:
    """Draw the error of both orders against the width, and their power laws, study by study.

    Hollow triangles are what a difference that is not resolved is below.

    studies: the numbers of `next_order.json`, by the names of the studies.
    """
    title = "Error of the theory: relative difference of $U_1$"
    figure = style.new_figure(style.WIDTH, 4.4, title)
    panels = figure.subplots(1, len(studies), sharey=True)
    for ax, (name, orders) in zip(panels, studies.items(), strict=True):
        for order, (label, colour, marker) in ORDERS.items():
            found = orders[order]
            widths = np.array([*map(float, found["difference"])])
            values, errors = (
                100 * np.array([one[key] for one in found["difference"].values()])
                for key in ("value", "error")
            )
            clear = values > RESOLVED_MCSE * errors
            marks = {"color": colour, "markersize": 6, "linestyle": "none"}
            shown = widths[clear], values[clear], errors[clear]
            ax.errorbar(*shown, marker=marker, label=label, **marks)
            limits = (values + RESOLVED_MCSE * errors)[~clear]
            if limits.size:
                marks |= {
                    "marker": "v",
                    "fillstyle": "none",
                    "label": f"{label}: unresolved, below",
                }
                ax.plot(widths[~clear], limits, **marks)
            law = fit_power_law(widths, values, errors, smallest_width=0)
            if not np.isfinite(law.slope):
                continue
            line = {"color": colour, "linewidth": 1.0, "label": f"{label}: power law"}
            ax.plot(widths, law.prefactor * widths**law.slope, "--", **line)
            # At the middle of the line: above it to the right, or below it to the left.
            place = np.exp(np.log(widths).mean())
            text = style.minus_signs(f"$N^{{{law.slope:.2f} ± {law.slope_error:.2f}}}$")
            above = (
                {"xytext": (8, 4)} if order == "leading" else {"xytext": (-6, -14), "ha": "right"}
            )
            beside = {"textcoords": "offset points", "color": colour, **above}
            ax.annotate(text, (place, law.prefactor * place**law.slope), **beside)
        ax.set(xscale="log", yscale="log", xlabel="width $N$", title=name)
        ax.set_xticks(widths, [f"{width:g}" for width in widths])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.margins(x=0.15)
        ax.grid(axis="y", color=style.GRID, linewidth=0.8)
    panels[0].set_ylabel("difference from the exact posterior (%)")
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    shown = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in panels]
    entries = {label: handle for panel in shown for handle, label in panel}
    style.legend_below(figure, ([*entries.values()], [*entries]))
    return figure


# %%
STUDIES = {
    "two outputs, P = N": {8 * copies: two_outputs(copies) for copies in (1, 2, 3)},
    "one example": {width: one_example(width) for width in (2, 4, 8, 16)},
}
found = {name: study(name, problems) for name, problems in STUDIES.items()}
record(folder, "next_order", found, made_by="python runs/next_order.py")

# %%
with style.figure_style():
    written = style.save_figure(draw_orders(found), folder, "next_order")
print("figure:", *written)
