"""Tables and pictures of reference posteriors, from the JSON files of this folder.

python -m runs.references.page
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from runs.studies.tables import Table, cell, markdown
from sampler.presentation import style

FOLDER = Path(__file__).parent
PAGES = (FOLDER / "README.md", FOLDER.parents[1] / "docs" / "howto" / "reference_posteriors.md")
THEORIES = {
    "leading": "leading order",
    "next": "next order",
    "laplace": "Laplace",
    "infinite": "infinite width",
}
LOOKS = {
    "leading": (style.BLUE, "o"), "next": (style.GREEN, "s"),
    "laplace": (style.PURPLE, "^"), "infinite": (style.ORANGE, "D"),
}  # fmt: skip
SAMPLERS = {
    "numpyro_nuts": "NumPyro NUTS", "blackjax_nuts": "BlackJAX NUTS",
    "blackjax_mclmc": "BlackJAX MCLMC", "nutpie_nuts": "nutpie NUTS",
}  # fmt: skip
SHOWN = {"order_parameter": "U₁", "predictor_mean": "m", "predictor_variance": "v"}
BINS = np.arange(-6, 6.5, 0.5)
# Of chains that are judged to mix.
BAD_R_HAT = 1.01
MOST_FAILURES, MOST_CHAINS = 6, 3
WIDTHS, MOST_WIDTH = (4, 8, 16, 32, 64), 1000


def records() -> list[dict]:
    """All problems, those with an outside truth first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")]
    return sorted(found, key=lambda one: ("outside truth" not in one["tags"], one["name"]))


def number(value: float | None) -> str:
    """A number in few letters."""
    return "—" if value is None else f"{value:.2g}".replace("e-0", "e-").replace("-", "−")


def percent(value: float | None, digits: int = 2) -> str:
    """A share or a relative error; large ones to the percent."""
    if value is None:
        return "—"
    number = 100 * value
    if number >= 10:
        return f"{number:.{digits - 2}f} %"
    return "0 %" if number < 1e-4 else f"{number:.{digits}g} %".replace("e-0", "e−")


def of_theory(one: dict, theory: str, functional: str) -> float | None:
    """Relative error, where the reference knows it: else None."""
    found = one.get("theories", {}).get(theory, {}).get(functional)
    return None if found is None else found["error"]


def width_of(one: dict) -> str:
    widths = one["sizes"]["N"]
    if not widths:
        return "∞"
    return f"{widths[0]:,}" if len(set(widths)) == 1 else ", ".join(map(str, widths))


def problems(found: list[dict]) -> Table:
    lines = [["problem", "N", "P", "depth", "paths", "outputs", "𝒯", "weights", "held against",
              "values", "z within 2", "largest z", "ln p(y)"]]  # fmt: skip
    for one in found:
        sizes, known = one["sizes"], one.get("log_evidence")
        seen = one.get("agreement", {"second": "—"})
        error = f" ± {number(known['mcse'])}" if known and known["mcse"] else ""
        evidence = f"{cell(known['value'], 3)}{error}" if known else "—"
        temperature = number(sizes["temperature"])
        if one["network"]["temperature_spread"]:
            temperature += ", sampled"
        lines.append([
            f"`{one['name']}`" + (" (open)" if one["open"] else ""), width_of(one),
            *(str(sizes[key]) for key in ("P", "depth", "paths", "outputs")), temperature,
            f"{sizes['weights']:,}" if "weights" in sizes else "—", seen["second"],
            str(seen.get("values", "—")), percent(seen.get("within_2"), 3),
            cell(seen.get("largest"), 1), evidence,
        ])  # fmt: skip
    return lines


def theories(found: list[dict]) -> Table:
    heads = [f"{what}, {name}" for name in THEORIES.values() for what in SHOWN.values()]
    lines = [["problem", *heads]]
    for one in found:
        cells = [percent(of_theory(one, each, what)) for each in THEORIES for what in SHOWN]
        if set(cells) != {"—"}:
            lines.append([f"`{one['name']}`", *cells])
    return lines


def samplers(found: list[dict]) -> Table:
    lines = [["sampler", "version", "problems", "failed", "R-hat above 1.01",
              "gradients for an effective draw", "means off by", "z within 2",
              "largest z"]]  # fmt: skip
    for name, label in SAMPLERS.items():
        tried = [one["samplers"][name] for one in found if name in one.get("samplers", {})]
        scores = [score for score in tried if "failed" not in score]
        if not scores:
            continue
        each, errors, within = (
            np.median([score[key] for score in scores])
            for key in ("gradients_per_draw", "root_mean_square", "within_2")
        )
        lines.append([
            label, ", ".join(sorted({score["version"] for score in scores})), str(len(tried)),
            str(len(tried) - len(scores)),
            str(sum(score["worst_r_hat"] > BAD_R_HAT for score in scores)),
            f"{each:,.0f}", f"{cell(float(errors), 3)} sd", percent(float(within), 3),
            cell(max(score["largest"] for score in scores), 1),
        ])  # fmt: skip
    return lines


def costs(found: list[dict]) -> Table:
    """Gradients for an effective draw of the slowest functional, problem by problem."""
    lines = [["problem", "weights", *SAMPLERS.values(), "NumPyro NUTS, ten chains"]]
    for one in found:
        seen, agreement = one.get("samplers", {}), one.get("agreement", {})
        ten_chains = None
        if agreement.get("second") == "weights":
            each = agreement["gradients"] / agreement["fewest_effective"]
            ten_chains = {"gradients_per_draw": each, "worst_r_hat": agreement["worst_r_hat"]}
        cells = [cost(score) for score in (*map(seen.get, SAMPLERS), ten_chains)]
        if set(cells) != {"—"}:
            lines.append([f"`{one['name']}`", f"{one['sizes']['weights']:,}", *cells])
    return lines


def cost(score: dict | None) -> str:
    """Gradients for an effective draw, with the worst R-hat where that is too large."""
    if score is None:
        return "—"
    if "failed" in score:
        return f"failed: {score['failed']}"
    number = f"{score['gradients_per_draw']:,.0f}"
    worst = score["worst_r_hat"]
    return number if worst <= BAD_R_HAT else f"{number} (R-hat {cell(worst, 3)})"


def family_of(one: dict) -> str | None:
    """Depth and paths, of the problems that differ in nothing else than width and P = N."""
    sizes = one["sizes"]
    if not one["name"].startswith("markov_") or set(sizes["N"]) != {sizes["P"]}:
        return None
    layers = f"{sizes['depth']} layer" + "s" * (sizes["depth"] > 1)
    return f"{layers}, {sizes['paths']} path" + "s" * (sizes["paths"] > 1)


def families(found: list[dict]) -> dict[str, list[dict]]:
    """Problems of each depth and number of paths, by width."""
    known: dict[str, list[dict]] = {}
    for one in sorted(found, key=lambda one: (one["sizes"]["depth"], one["sizes"]["N"])):
        name = family_of(one)
        if name is not None and "theories" in one and not one["open"]:
            known.setdefault(name, []).append(one)
    return {name: known[name] for name in known if len(known[name]) > 2}


def width(one: dict) -> float:
    """N, the geometric mean over layers."""
    return float(np.exp(np.mean(np.log(one["sizes"]["N"]))))


def fluctuation(one: dict) -> float:
    """The standard deviation of tr U₁ in the posterior, relative to its mean."""
    first = one["values"].get("trace", one["values"]["order_parameter"])
    return first["sd"][0] / first["mean"][0]


def resolved(
    members: list[dict], theory: str, functional: str, against: Callable[[dict], float] = width
) -> np.ndarray:
    """Widths and relative errors that are more than twice those of the reference, [2, problem].

    against  what stands in place of the width
    """
    rows = []
    for one in members:
        score = one["theories"].get(theory, {}).get(functional)
        if score and score["error"] > 2 * score["reference_error"]:
            rows.append((against(one), score["error"]))
    return np.array(rows).reshape(-1, 2).T


def expanded(found: list[dict]) -> list[dict]:
    """References of finite width whose theory is an expansion about the right temperature."""
    return [
        one
        for one in found
        if "next" in one.get("theories", {})
        and not one["open"]
        and not one["network"]["temperature_spread"]
        and max(one["sizes"]["N"]) <= MOST_WIDTH
    ]


def exponent(groups: list[np.ndarray]) -> tuple[float, float] | None:
    """s of error = c_g N^s, a prefactor for each group, and its standard error by the scatter."""
    logs = [np.log(group) for group in groups if group.shape[1] > 1]
    points = sum(group.shape[1] for group in logs)
    if points - len(logs) < 2:
        return None
    along, error = (
        np.concatenate([group[row] - group[row].mean() for group in logs]) for row in (0, 1)
    )
    slope = (along @ error) / (along @ along)
    rest = error - slope * along
    return slope, np.sqrt(rest @ rest / (points - len(logs) - 1) / (along @ along))


def exponents(found: list[dict]) -> Table:
    """Exponents of both orders: in N, of each family and of all, and in the fluctuation of U₁."""
    known, every = families(found), expanded(found)
    rows = [(f"N, {name}", [members], width) for name, members in known.items()]
    rows.append(("N, all of these", list(known.values()), width))
    rows.append(("s, all problems", [every], fluctuation))
    lines = [["against", *(f"{what}, {THEORIES[each]}" for each in ("leading", "next")
                           for what in SHOWN.values())]]  # fmt: skip
    for name, groups, against in rows:
        cells = []
        for theory in ("leading", "next"):
            for what in SHOWN:
                fit = exponent([resolved(one, theory, what, against) for one in groups])
                cells.append("—" if fit is None else f"{cell(fit[0], 2)} ± {number(fit[1])}")
        lines.append([name, *cells])
    return lines


def totals(found: list[dict]) -> Table:
    """What the folder is, and how both methods agree, over all references."""
    known = [one for one in found if not one["open"]]
    counts = [one["agreement"]["values"] for one in known]
    beyond = {
        limit: np.average(
            [1 - one["agreement"][f"within_{limit}"] for one in known], weights=counts
        )
        for limit in (2, 3)
    }
    size = sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) / 1e6
    return [
        ["references", "open", "repeated with another seed", "values with a verdict", "beyond 2",
         "beyond 3", "largest z", "hours", "size of the folder"],
        [str(len(known)), str(len(found) - len(known)), str(sum("repeated" in o for o in found)),
         f"{sum(counts):,}", percent(beyond[2]),
         percent(beyond[3]), cell(max(one["agreement"]["largest"] for one in known), 1),
         cell(sum(one["minutes"] for one in known) / 60, 1), f"{size:.1f} MB"],
    ]  # fmt: skip


def failures(found: list[dict]) -> Table:
    """Where next order is furthest off: the largest relative errors of any functional."""
    rows = []
    for one in expanded(found):
        scores = one["theories"]["next"]
        worst = max(SHOWN, key=lambda name: scores[name]["error"])
        rows.append((scores[worst]["error"], worst, one))
    lines = [["problem", "N", "rows of U₁", "P", "furthest off", "next order", "leading order",
              "s"]]  # fmt: skip
    for error, worst, one in sorted(rows, key=lambda row: -row[0])[:MOST_FAILURES]:
        sizes = one["sizes"]
        lines.append([
            f"`{one['name']}`", width_of(one), str(sizes["paths"] * sizes["outputs"]),
            str(sizes["P"]), SHOWN[worst], percent(error),
            percent(of_theory(one, "leading", worst)), cell(fluctuation(one), 2),
        ])  # fmt: skip
    return lines


def draw(found: list[dict]) -> Figure:
    """Errors of both orders against N at P = N, against P/N, and z of both methods."""
    figure = style.new_figure(style.WIDTH, 5.6, "Reference posteriors")
    panels = figure.subplots(2, 2)
    known = families(found)
    for ax, theory in zip(panels[0], ("leading", "next"), strict=True):
        for (name, members), colour, marker in zip(
            known.items(), style.CHAINS, "osD^v*", strict=False
        ):
            widths, error = resolved(members, theory, "predictor_variance")
            ax.plot(widths, error, color=colour, marker=marker, markersize=4, label=name)
        ax.set(xscale="log", yscale="log", title=f"{THEORIES[theory]}, $P = N$")
        ax.set(xlabel="width $N$")
    loads = panels[1, 0]
    for theory, (colour, marker) in LOOKS.items():
        points = [
            (one["sizes"]["P"] / width(one), of_theory(one, theory, "predictor_variance"))
            for one in expanded(found)
        ]
        load, error = np.transpose([point for point in points if point[1]] or [(np.nan, np.nan)])
        marks = {"color": colour, "marker": marker, "linestyle": "none", "markersize": 4}
        loads.plot(load, error, label=THEORIES[theory], **marks)
    loads.set(xscale="log", yscale="log", xlabel="$P/N$, all problems")
    for ax in panels.flat[:3]:
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_minor_formatter(NullFormatter())
        ax.grid(axis="y", color=style.GRID, linewidth=0.8)
    for ax in panels[:, 0]:
        ax.set_ylabel("relative error of $v$")
    both = [limit for ax in panels[0] for limit in ax.get_ylim()]
    for ax in panels[0]:
        ax.set(ylim=(min(both), max(both)), xticks=WIDTHS)
    counts = np.sum([one["agreement"]["histogram"] for one in found if not one["open"]], axis=0)
    centres = (BINS[1:] + BINS[:-1]) / 2
    panels[1, 1].bar(centres, counts, 0.45, color=style.SKY_BLUE)
    normal = np.exp(-(centres**2) / 2) / np.sqrt(2 * np.pi) * 0.5 * counts.sum()
    panels[1, 1].plot(centres, normal, color=style.BLACK, linewidth=1.0)
    panels[1, 1].set(xlabel="$z$ of two methods", ylabel="values")
    entries = zip(panels[0, 0].get_legend_handles_labels(), loads.get_legend_handles_labels(),
                  strict=True)  # fmt: skip
    style.legend_below(figure, tuple(first + second for first, second in entries), columns=3)
    return figure


def draw_chains(found: list[dict]) -> Figure | None:
    """The slowest functional of samplers in all weights where they mix worst."""
    stored = [
        (one, name, seen)
        for one in found
        for name, seen in one.get("samplers", {}).items()
        if "slowest" in seen
    ]
    stored.sort(key=lambda each: -each[2]["worst_r_hat"])
    if not stored:
        return None
    figure = style.new_figure(style.WIDTH, 4.2, "Samplers in all weights, where they mix worst")
    panels = figure.subplots(min(len(stored), MOST_CHAINS), 1, squeeze=False)[:, 0]
    for ax, (one, name, score) in zip(panels, stored, strict=False):
        seen = score["slowest"]
        group, element = seen["name"], seen["element"]
        known = one["values"][group]
        for chain, colour in zip(seen["chains"], style.CHAINS, strict=False):
            ax.plot(seen["draws"], chain, color=colour, linewidth=0.8)
        if "quantiles" in known:
            low, high = known["quantiles"][element][0], known["quantiles"][element][-1]
            ax.axhspan(low, high, color=style.UNDEFINED_CELL, zorder=0)
        title = f"{SAMPLERS[name]}, {one['name']}: {group.replace('_', ' ')} [{element}]"
        ax.set_title(title, fontsize="small")
    panels[-1].set_xlabel("draw")
    return figure


def tables(found: list[dict]) -> dict[str, Table]:
    """The tables of both pages by name."""
    return {
        "totals": totals(found), "problems": problems(found), "theories": theories(found),
        "exponents": exponents(found), "failures": failures(found), "samplers": samplers(found),
        "costs": costs(found),
    }  # fmt: skip


def with_tables(text: str, made: dict[str, Table]) -> str:
    """The text of a page with these tables below their comments, as far as it has them."""
    for name, table in made.items():
        comment = f"<!-- references: {name} -->\n"
        before, there, after = text.partition(comment)
        if not there:
            continue
        rest = after.splitlines(keepends=True)
        while rest and rest[0].startswith("|"):
            rest.pop(0)
        text = before + comment + markdown(table) + "".join(rest)
    return text


def main() -> None:
    found = records()
    for page in PAGES:
        text = with_tables(page.read_text(encoding="utf-8"), tables(found))
        page.write_text(text, encoding="utf-8")
    with style.figure_style():
        print("figure:", *style.save_figure(draw(found), FOLDER, "figure"))
        chains = draw_chains(found)
        if chains is not None:
            print("figure:", *style.save_figure(chains, FOLDER, "chains"))


if __name__ == "__main__":
    main()
