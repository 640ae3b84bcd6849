"""Tables and picture of the page of reference posteriors, from the JSON files of this folder.

python -m runs.references.page
"""

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from runs.studies.tables import Table, cell, markdown
from sampler.presentation import style

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "howto" / "reference_posteriors.md"
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
BINS = np.arange(-6, 6.5, 0.5)


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
    shown = {"order_parameter": "U₁", "predictor_mean": "m", "predictor_variance": "v"}
    heads = [f"{what}, {name}" for name in THEORIES.values() for what in shown.values()]
    lines = [["problem", *heads]]
    for one in found:
        cells = [percent(of_theory(one, each, what)) for each in THEORIES for what in shown]
        if set(cells) != {"—"}:
            lines.append([f"`{one['name']}`", *cells])
    return lines


def samplers(found: list[dict]) -> Table:
    lines = [["problem", "weights", "sampler", "version", "gradients", "for an effective draw",
              "worst R-hat", "means off by", "largest z"]]  # fmt: skip
    for one in found:
        seen = one.get("agreement", {})
        if seen.get("second") == "weights":
            size, library = f"{one['sizes']['weights']:,}", one["info"]["versions"]["numpyro"]
            each = seen["gradients"] / seen["fewest_effective"]
            lines.append([
                f"`{one['name']}`", size, "NumPyro NUTS, ten chains", library,
                f"{seen['gradients']:,}", f"{each:,.0f}",
                cell(seen["worst_r_hat"], 3), "—", cell(seen["largest"], 1),
            ])  # fmt: skip
        for name, seen in one.get("samplers", {}).items():
            label = [f"`{one['name']}`", f"{one['sizes']['weights']:,}", SAMPLERS[name]]
            if "failed" in seen:
                lines.append([*label, "—", f"failed: {seen['failed']}", *["—"] * 4])
                continue
            lines.append([
                *label, seen["version"], f"{seen['gradients']:,}",
                f"{seen['gradients_per_draw']:,.0f}", cell(seen["worst_r_hat"], 3),
                f"{cell(seen['root_mean_square'], 3)} sd", cell(seen["largest"], 1),
            ])  # fmt: skip
    return lines


def draw(found: list[dict]) -> Figure:
    """Relative errors of theories against N and P/N, and z of both methods over all values."""
    figure = style.new_figure(style.WIDTH, 4.0, "Reference posteriors")
    panels = figure.subplots(1, 3)
    for theory, (colour, marker) in LOOKS.items():
        rows = []
        for one in found:
            error, N = of_theory(one, theory, "predictor_variance"), one["sizes"]["N"]
            sampled = one["network"]["temperature_spread"]  # theories are solved at its centre
            if error and N and max(N) <= 1000 and not sampled:
                narrow = float(np.exp(np.mean(np.log(N))))
                rows.append((narrow, one["sizes"]["P"] / narrow, error))
        if rows:
            width, load, error = np.transpose(rows)
            marks = {"color": colour, "marker": marker, "linestyle": "none", "markersize": 5}
            panels[0].plot(width, error, label=THEORIES[theory], **marks)
            panels[1].plot(load, error, **marks)
    for ax, label in zip(panels, ("width $N$ (geometric mean)", "$P/N$"), strict=False):
        ax.set(xscale="log", yscale="log", xlabel=label)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.grid(axis="y", color=style.GRID, linewidth=0.8)
    panels[0].set_ylabel("relative error of the predictor's variance")
    counts = np.sum([one["agreement"]["histogram"] for one in found if not one["open"]], axis=0)
    centres = (BINS[1:] + BINS[:-1]) / 2
    panels[2].bar(centres, counts, 0.45, color=style.SKY_BLUE)
    normal = np.exp(-(centres**2) / 2) / np.sqrt(2 * np.pi) * 0.5 * counts.sum()
    panels[2].plot(centres, normal, color=style.BLACK, linewidth=1.0)
    panels[2].set(xlabel="$z$ of two methods", ylabel="values")
    style.legend_below(figure, panels[0].get_legend_handles_labels())
    return figure


def tables(found: list[dict]) -> dict[str, Table]:
    """The tables of the page by name."""
    return {"problems": problems(found), "theories": theories(found), "samplers": samplers(found)}


def with_tables(text: str, made: dict[str, Table]) -> str:
    """The text of the page with these tables below their comments."""
    for name, table in made.items():
        comment = f"<!-- references: {name} -->\n"
        before, _, after = text.partition(comment)
        rest = after.splitlines(keepends=True)
        while rest and rest[0].startswith("|"):
            rest.pop(0)
        text = before + comment + markdown(table) + "".join(rest)
    return text


def main() -> None:
    found = records()
    text = with_tables(PAGE.read_text(encoding="utf-8"), tables(found))
    PAGE.write_text(text, encoding="utf-8")
    with style.figure_style():
        print("figure:", *style.save_figure(draw(found), FOLDER, "figure"))


if __name__ == "__main__":
    main()
