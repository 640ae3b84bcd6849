# %% [markdown]
# # Several outputs: does the theory's 1/N hold?
#
# Theory against exact posterior while widths and examples are doubled together. The data are copies
# of one small problem, each copy in channels of its own, so that nothing but the size changes. At a
# fixed number of examples the difference falls faster than 1/N.
#
#     python runs/several_outputs.py [FOLDER] [DRAWS]
#
# by default into runs/results/several_outputs, with four chains of 1500 draws.

# %%
import sys
from pathlib import Path

import numpy as np
from renew import estimate, record

import sampler
from sampler.analysis.difference import NOT_TRUSTED, Difference
from sampler.analysis.finite_size import fit_power_law
from sampler.presentation.style import figure_style, new_figure, save_figure

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/several_outputs")
DRAWS = int(sys.argv[2]) if len(sys.argv) > 2 else 1500
TEMPERATURE = 0.1
PATHS, CHANNELS = 2, 4


# %%
def base(examples: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Two paths, one of them weaker; outputs are signs of linear functions of the other one."""
    rng = np.random.default_rng(1)
    attended = rng.standard_normal((examples, PATHS, CHANNELS)) * np.array([1.0, 0.6])[:, None]
    labels = np.sign(attended[:, 0] @ rng.standard_normal((CHANNELS, outputs)))
    return attended, labels


def copied(attended: np.ndarray, labels: np.ndarray, copies: int) -> tuple[np.ndarray, np.ndarray]:
    """The data several times, each copy in channels of its own: the energy is multiplied."""
    examples = len(attended)
    found = np.zeros((copies, examples, PATHS, copies, CHANNELS))
    for copy in range(copies):
        found[copy, :, :, copy] = np.sqrt(copies) * attended
    shape = (copies * examples, PATHS, copies * CHANNELS)
    return found.reshape(shape), np.tile(labels, (copies, 1))


ORDERS = {"leading order": "leading", "next order": "next"}


def differences(attended: np.ndarray, labels: np.ndarray, width: int) -> dict[str, Difference]:
    """Of U_1, all elements together, relative to that of the exact posterior, of every order.

    Without the next order where the expansion is not to be trusted.
    """
    task = sampler.arrays_task(
        attended_train=attended, labels_train=labels, heads=[PATHS], attended_test=attended[:1]
    )
    network = sampler.make_network(widths=width, temperature=TEMPERATURE)
    theory = sampler.solve(task, network)
    if not theory.attrs["converged"]:
        raise SystemExit(theory.attrs["explanation"])
    draws = sampler.sample(task, network, draws=DRAWS, progress=False)
    compared = sampler.compare(theory, draws)
    fine = theory.attrs["next_order_status"] == "fine"
    kept = ORDERS if fine else ["leading order"]
    return {order: compared.difference("order_parameter", ORDERS[order]) for order in kept}


numbers: dict[str, dict] = {}


def study(name: str, points: list[tuple[int, np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    """Order → rows of width, difference and its error, printed as they come."""
    print(f"{name}: relative difference of U₁, theory against exact posterior", flush=True)
    rows = {order: [] for order in ORDERS}
    for width, attended, labels in points:
        for order, one in differences(attended, labels, width).items():
            if one.state != NOT_TRUSTED:
                rows[order].append((width, one.value, one.error))
            size = f"{one.value:.4f} ± {one.error:.4f}, {one.state}"
            print(f"  N = {width:3}, P = {len(labels):3}, {order}: {size}", flush=True)
    tables = {order: np.array(found).reshape(-1, 3).T for order, found in rows.items()}
    for order, (widths, sizes, errors) in tables.items():
        law = fit_power_law(widths, sizes, errors, smallest_width=0)
        numbers.setdefault(name, {})[order] = {
            "difference": {
                str(int(width)): estimate(size, error, "MCSE")
                for width, size, error in zip(widths, sizes, errors, strict=True)
            },
            "slope": estimate(law.slope, law.slope_error, "of the fit"),
        }
        if np.isfinite(law.slope):
            print(f"  {order}: N^({law.slope:.2f} ± {law.slope_error:.2f})", flush=True)
    return tables


# %%
two, ten = base(8, 2), base(6, 10)
STUDIES = {
    "two outputs, P = N": [(8 * c, *copied(*two, c)) for c in (1, 2, 4, 8, 16)],
    "two outputs, P = 16": [(width, *copied(*two, 2)) for width in (16, 32, 64)],
    "ten outputs, P = 3N/8": [(16 * c, *copied(*ten, c)) for c in (1, 2, 4)],
}
found = {name: study(name, points) for name, points in STUDIES.items()}

# %%
with figure_style():
    figure = new_figure(6.4, 3.6)
    axes = figure.subplots()
    for place, (name, tables) in enumerate(found.items()):
        for order, (widths, sizes, errors) in tables.items():
            line = "-" if order == "leading order" else ":"
            marks = {"color": f"C{place}", "linestyle": line, "marker": "o", "capsize": 2}
            axes.errorbar(widths, sizes, errors, label=f"{name}, {order}", **marks)
    axes.set(xscale="log", yscale="log", xlabel="width N", ylabel="relative difference of $U_1$")
    axes.legend(bbox_to_anchor=(1.0, 1.0), loc="upper left", fontsize=8.0)
    written = save_figure(figure, folder, "several_outputs")
print("figure:", *written)
record(folder, "several_outputs", numbers, made_by="python runs/several_outputs.py")
