"""Renew findings: run a recipe or script anew, keep its numbers and figures, rewrite the texts.

    python runs/renew.py NAME …      runs/studies/NAME/study.py, runs/NAME.py or runs/NAME.toml from
                                     nothing
    python runs/renew.py --kept DIR NAME
                                     the numbers of a run that is there
    python runs/renew.py             only put the kept numbers into the texts

A recipe or script leaves runs/numbers/NAME.json: its numbers, each with its error and the kind of
the error, the hash of the recipe, versions, seeds and date. Texts quote them as literal numbers
with a marker behind, `0.969<!--= markov_four_paths[10].accuracy.theory -->`; a comment before a
table, `<!--table … | name[{0}].key | … -->`, has a key for every column, where {0} is the first
cell of the row, {1} the second and {h} the head of the column; `key; key` where a cell quotes two
numbers. A test compares every one with its file.
"""

import argparse
import csv
import hashlib
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

RUNS = Path(__file__).resolve().parent
ROOT, KEPT = RUNS.parent, RUNS / "numbers"
PACKAGES = ("jax", "jaxlib", "numpyro", "numpy", "scipy")
# Longer arrays are no numbers that a text quotes.
MOST_ENTRIES = 40
# Of what is compared, what no text quotes.
DROPPED = {
    "reliability", "square", "interval", "elements", "name", "state", "unit", "statement",
    "median_in_mcse", "difference_in_mcse", "tests", "degrees", "relative_difference",
    "off_diagonal_cosine",
}  # fmt: skip
# Of the kernel, of which the alignment is kept.
COMPONENTS = 5
# Results of a script that has other results as well: the script, and what it is called with; series
# are looked for in runs/JapaneseVowels.
CALLS = {
    "trained_variants_motions": "trained_variants --problem BasicMotions --labelled 3",
}
# Of each of more points than this, what is kept.
MOST_POINTS, BRIEFLY = 10, ("accuracy", "order_parameter", "log_evidence", "diagnostics")
# What a training says of its network.
TRAINED = "training_summary.json"
# Means over the seeds of a sweep, instead of all its points.
AVERAGES = "seed_averages.csv"
# Sweeps of which the theory is shown, and nothing sampled.
SOLVED = ("attention_variants_markov", "attention_variants_time_series")
# What the program draws, by the name under which a text shows it.
FIGURES = {
    "markov_four_paths": {
        "markov_four_paths": "accuracy_against_width",
        "markov_alignment": "kernel_alignment",
        "markov_order_parameters": "finite_size",
    },
    "markov_two_paths": {"markov_two_paths": "accuracy_against_width"},
    "temperature": {"temperature": "against_temperature"},
    "finite_size": {"finite_size": "finite_size"},
}


# --------------------------------------------------------------------------------------------
# What a run found
# --------------------------------------------------------------------------------------------


def of_run(directory: Path) -> dict:
    """Numbers of a run or training, or of every point of a sweep by the values of its settings."""
    if (directory / TRAINED).is_file():
        return shortened(json.loads((directory / TRAINED).read_text(encoding="utf-8")))
    table = directory / "sweep.csv"
    if not table.is_file():
        return of_point(directory)
    from sampler import open_results

    if (directory / AVERAGES).is_file():
        return averages(directory / AVERAGES)
    found = {}
    with table.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            values = [setting.split("=", 1)[1] for setting in row["point"].split(",")]
            numbers = {key: number(text) for key, text in row.items() if number(text) is not None}
            point = directory / row["directory"]
            found[",".join(values)] = {"row": numbers, **of_point(point)}
    if len(found) > MOST_POINTS:
        found = {at: {key: of[key] for key in BRIEFLY if key in of} for at, of in found.items()}
    sweep = open_results(directory)
    if sweep.finite_size is not None:
        found["finite_size"] = {
            predictor: dict(zip(sweep.finite_size.paths, map(slope_of, laws), strict=True))
            for predictor in ("leading", "next")
            if (laws := sweep.finite_size.power_laws(predictor))
        }
    if sweep.selection is not None:
        found["selection"] = shortened(sweep.selection)
    return found


def averages(table: Path) -> dict:
    """Means over seeds of every column, by the settings that were swept beside the seed."""
    from sampler.settings.labels import FORM, name_of_form

    found = {}
    with table.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            key, _, value = row["settings"].partition("=")
            known = {name: number(text) for name, text in row.items()}
            named = name_of_form(tomllib.loads(f"form = {value}")["form"]) if key == FORM else value
            found[named.replace("; ", ", ")] = {
                name: estimate(mean, known[f"{name}_error"], f"over {row['points']} data seeds")
                for name, mean in known.items()
                if mean is not None and known.get(f"{name}_error") is not None
            }
    return found


def slope_of(law) -> dict:
    """The exponent of a power law with its error; nothing where none could be fitted."""
    if not math.isfinite(law.slope):
        return {}
    return estimate(law.slope, law.slope_error, "of the fit")


def of_point(directory: Path) -> dict:
    """Numbers of one run: of its comparison, and the diagnostics of its draws."""
    import xarray as xr

    path = directory / "comparison.json"
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    numbers: dict[str, dict] = {}
    for quantity, predictors in content["summary"].items():
        numbers[quantity] = {name: of_cell(cell) for name, cell in predictors.items()}
    numbers["differences"] = {
        quantity: {
            name: estimate(cell["difference"], cell["difference_error"], "MCSE")
            | {"below": cell["below"]}
            for name, cell in predictors.items()
            if cell["difference_error"] is not None
        }
        for quantity, predictors in content["summary"].items()
    }
    with xr.open_dataset(directory / "theory.nc") as theory:
        temperatures = theory["temperature"]
        numbers["temperature"] = dict(
            zip(map(str, temperatures["predictor"].values), map(float, temperatures), strict=True)
        )
    with xr.open_datatree(directory / "comparison.nc") as tree:
        for quantity, node in tree["elements"].children.items():
            if node.to_dataset()["sampled"].size <= MOST_ENTRIES:
                numbers[quantity] = of_elements(node.to_dataset())
        if "kernel_alignment" in tree["elements"].children:
            components = tree["elements/kernel_alignment"].to_dataset()
            numbers["kernel_alignment"] = of_alignments(components)
    diagnostics = content["diagnostics"]
    worst = diagnostics["quantities"].values()
    numbers["diagnostics"] = {
        "verdict": diagnostics["verdict"],
        "r_hat": max((each["r_hat"] for each in worst if each["r_hat"]), default=None),
        "ess": min((each["ess_bulk"] for each in worst if each["ess_bulk"]), default=None),
        "chains": diagnostics["chains"],
        "draws": diagnostics["draws"],
        "divergences": diagnostics.get("divergences"),
        "steps": diagnostics.get("leapfrog_steps_per_draw"),
    }
    return shortened(numbers)


def of_cell(cell: dict) -> dict | float | None:
    """A number of the summary, with its Monte Carlo error or else that of the test examples."""
    for error, kind in (("error", "MCSE"), ("test_error", "over test examples")):
        if cell["value"] is not None and cell[error] is not None:
            return estimate(cell["value"], cell[error], kind)
    return cell["value"]


def of_elements(table) -> dict:
    """Predictor → the elements of a quantity; of the draws with their errors."""
    predictors = map(str, table["predictor"].values)
    values = dict(zip(predictors, table["predicted"].values.tolist(), strict=True))
    sampled = {"value": table["sampled"].values.tolist(), "error": table["error"].values.tolist()}
    return values | {"sampled": sampled | {"kind": "MCSE"}}


def of_alignments(table) -> dict:
    """Alignments of the labels with the first principal components of the kernel, from 1 on."""
    first = table.isel(component=slice(COMPONENTS))
    numbers: dict[str, dict] = {"share of them": {}}
    for predictor in map(str, table["predictor"].values):
        values = first["predicted"].sel(predictor=predictor).values
        # Shares of |y|² that the first components hold together.
        numbers["share of them"][predictor] = float((values**2).sum())
        for component, value in enumerate(values, 1):
            numbers.setdefault(str(component), {})[predictor] = float(value)
    sampled = zip(first["sampled"].values, first["error"].values, strict=True)
    for component, (value, error) in enumerate(sampled, 1):
        numbers[str(component)]["sampled"] = estimate(value, error, "MCSE")
    return numbers


def shortened(content: object) -> object:
    """Content without long arrays, texts, and what is no number."""
    if isinstance(content, dict):
        parts = {key: shortened(value) for key, value in content.items() if key not in DROPPED}
        return {key: value for key, value in parts.items() if value not in (None, {}, [])}
    if isinstance(content, list):
        if len(content) > MOST_ENTRIES:
            return None
        return [shortened(value) for value in content]
    if isinstance(content, float):
        return float(f"{content:.7g}") if math.isfinite(content) else None
    return None if isinstance(content, str) and len(content) > 30 else content


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def estimate(value: float, error: float, kind: str) -> dict:
    """A number with its error and the kind of the error, as `record` keeps it."""
    return {"value": float(value), "error": float(error), "kind": kind}


def mean_over(values: Sequence[float], what: str) -> dict:
    """Mean of some values with its standard error over so many data sets, trainings, ….

    what  the values are of, in the plural
    """
    numbers = list(map(float, values))
    error = statistics.stdev(numbers) / math.sqrt(len(numbers))
    return estimate(statistics.fmean(numbers), error, f"over {len(numbers)} {what}")


def record(folder: Path | str, name: str, numbers: dict, *, made_by: str, **known: object) -> None:
    """Write NAME.json into a folder.

    numbers  by name: a number, nested dicts and lists of them, or a dict of a value, its error and
             the kind of the error ("MCSE", "over seeds", "binomial", "over test examples", …)
    known    what else determines them: recipe_hash, seeds
    """
    content = {
        "made_by": made_by,
        "made": date.today().isoformat(),
        "versions": {package: version(package) for package in PACKAGES},
        **known,
        "numbers": shortened(numbers),
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(in_lines(content) + "\n", encoding="utf-8")


def in_lines(content: object, depth: int = 0) -> str:
    """JSON with a line for everything that is short enough."""
    line = json.dumps(content, ensure_ascii=False)
    if len(line) + depth <= 110 or not isinstance(content, dict):
        return line
    pad = " " * (depth + 1)
    inner = (f'{pad}"{key}": {in_lines(value, depth + 1)}' for key, value in content.items())
    return "{\n" + ",\n".join(inner) + f"\n{' ' * depth}}}"


def hash_of(recipe: Path) -> str:
    """Hash of the settings of a recipe as they are written, wherever it stands."""
    settings = tomllib.loads(recipe.read_text(encoding="utf-8"))
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def record_run(directory: Path, name: str) -> None:
    """Keep the numbers of a run or sweep in runs/numbers, and its figures in runs/figures."""
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    record(
        KEPT, name, of_run(directory),
        made_by=f"attention-posterior {command_of(name)} runs/{name}.toml",
        recipe_hash=hash_of(RUNS / f"{name}.toml"), seeds=manifest["seeds"],
    )  # fmt: skip
    for shown, drawn in FIGURES.get(name, {}).items():
        shutil.copy(directory / "figures" / f"{drawn}.png", RUNS / "figures" / f"{shown}.png")


def command_of(name: str) -> str:
    """The command that carries out a recipe of the gallery."""
    if "training" in tomllib.loads((RUNS / f"{name}.toml").read_text(encoding="utf-8")):
        return "train"
    return "solve" if name in SOLVED else "run"


def call_of(script: str) -> list[str]:
    """How Python runs a study or script from the folder above runs/; empty for anything else."""
    if (RUNS / "studies" / script / "study.py").is_file():
        return ["-m", f"runs.studies.{script}.study"]
    return [f"runs/{script}.py"] if (RUNS / f"{script}.py").is_file() else []


def renew(name: str) -> None:
    """Run a recipe or a script from nothing, and keep its numbers and figures."""
    with tempfile.TemporaryDirectory() as folder:
        script, *options = CALLS.get(name, name).split()
        if call := call_of(script):
            subprocess.run([sys.executable, *call, folder, *options], cwd=ROOT, check=True)
            shutil.copy(Path(folder) / f"{name}.json", KEPT)
            for drawn in Path(folder).glob("*.png"):
                if (RUNS / "figures" / drawn.name).is_file():
                    shutil.copy(drawn, RUNS / "figures")
        else:
            made = Path(folder) / "run"
            command = command_of(name)
            program = [sys.executable, "-m", "sampler", command, RUNS / f"{name}.toml"]
            code = subprocess.run([*program, "--out", made], cwd=ROOT, check=False).returncode
            if code not in (0, 3):  # 3: draws that fail their diagnostics, and are marked
                raise SystemExit(f"run of {name} ended with {code}")
            record_run(made, name)


# --------------------------------------------------------------------------------------------
# What texts say of it
# --------------------------------------------------------------------------------------------

# A number as the texts write it, with its error where one is given.
ONE = r"[−+-]?\d+(?:,\d{3})*(?:\.\d+)?(?:·10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?"
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
LITERAL = rf"\(?{ONE}(?: ± {ONE})?"
INLINE = re.compile(rf"(?P<literal>{LITERAL})(?P<marker><!--= (?P<key>[^>]*?) -->)")
TABLE = re.compile(r"<!--table (?P<keys>[^>]*?)-->\n(?P<rows>(?:\|.*\n?)+)")


def texts() -> list[Path]:
    """The texts that may quote numbers."""
    pages = [ROOT / "README.md", *RUNS.glob("**/README.md"), *(ROOT / "docs").glob("**/*.md")]
    return [page for page in pages if "_build" not in page.parts]


def numbers_of(name: str) -> dict:
    """The kept numbers of a recipe or script."""
    return json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))["numbers"]


def element(content: object, step: str) -> object:
    """An entry of a table, a list, or a list of values that have errors."""
    if isinstance(content, dict) and isinstance(content.get("value"), list) and step.isdigit():
        return content | {key: element(content[key], step) for key in ("value", "error")}
    return content[int(step) if isinstance(content, list) else step]


def found(expression: str) -> tuple[float, float | None]:
    """Value and error of an expression: sums, differences and multiples of `name[point].key[i]`.

    A key in brackets may have dots and signs.
    """

    def part(term: str) -> tuple[float, float | None]:
        factor = 1.0
        if "*" in term:
            term, by = term.split("*")
            factor = float(by)
        name, *steps = re.findall(r"(?<=\[)[^\]]+|[^\[\].]+", term.strip())
        content = numbers_of(name)
        for step in steps:
            content = element(content, step)
        if isinstance(content, dict):
            error = content.get("error")
            return factor * content["value"], None if error is None else abs(factor) * error
        return factor * content, None

    terms = re.split(r" ([+-]) (?![^\[]*\])", expression)
    value, error = part(terms[0])
    for sign, term in zip(terms[1::2], terms[2::2], strict=True):
        more, its = part(term)
        value += more if sign == "+" else -more
        error = None if error is None else (error**2 + (its or 0.0) ** 2) ** 0.5
    return value, error


def written(literal: str, expression: str) -> str:
    """The literal with the kept value in its place, to as many digits as it had."""
    value, error = found(expression)
    bracket = "(" if literal.startswith("(") else ""
    parts = literal.removeprefix("(").split(" ± ")
    if len(parts) == 2 and error is None:
        raise SystemExit(f"{expression} has no error, and {literal!r} quotes one")
    shown = [like(parts[0], value)] + ([like(parts[1], error)] if len(parts) == 2 else [])
    return bracket + " ± ".join(shown)


def like(literal: str, value: float) -> str:
    """A number with the decimals, the sign and the separators of a literal."""
    if "·10" in literal:
        digits = len(literal.partition("·")[0].partition(".")[2])
        mantissa, exponent = f"{value:.{digits}e}".split("e")
        raised = {after: before for before, after in RAISED.items()}
        return f"{mantissa.replace('-', '−')}·10{str(int(exponent)).translate(raised)}"
    digits = len(literal.partition(".")[2])
    text = f"{abs(value):{',' if ',' in literal else ''}.{digits}f}"
    if value < 0 and float(text.replace(",", "")) != 0:
        return f"−{text}"
    return f"+{text}" if literal.startswith("+") else text


def renewed(text: str) -> str:
    """A text with every marked number as it is kept."""
    text = INLINE.sub(lambda m: written(m["literal"], m["key"]) + m["marker"], text)

    def table(match: re.Match) -> str:
        keys = [key.strip() for key in match["keys"].split("|")]
        head, rule, *rows = match["rows"].splitlines()
        rows = [renewed_row(row, keys, cells_of(head)) for row in rows]
        return f"<!--table {match['keys']}-->\n" + "\n".join([head, rule, *rows]) + "\n"

    return TABLE.sub(table, text)


def cells_of(row: str) -> list[str]:
    return row.strip().strip("|").split("|")


def renewed_row(row: str, keys: list[str], head: list[str]) -> str:
    """A row of a table with the kept numbers, each where its column has a key."""
    cells = cells_of(row)
    if len(cells) != len(keys):
        raise SystemExit(f"{len(keys)} keys for {len(cells)} cells: {row}")
    labels = {"{h}": "", "{0}": plain(cells[0]), "{1}": plain(cells[1])}
    for place, several in enumerate(keys):
        labels["{h}"] = plain(head[place])
        cells[place] = renewed_cell(cells[place], [*filter(None, several.split("; "))], labels)
    return f"|{'|'.join(cells)}|"


def renewed_cell(cell: str, keys: list[str], labels: dict[str, str]) -> str:
    """A cell whose first numbers are those of the keys, in their order."""

    def kept(literal: re.Match) -> str:
        key = keys.pop(0)
        for label, text in labels.items():
            key = key.replace(label, text)
        return written(literal[0], key)

    return re.sub(LITERAL, kept, cell, count=len(keys)) if keys else cell


def plain(cell: str) -> str:
    """The first cell of a row as a point is called: 10⁴ is 10000."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", cell.strip())
    power = re.fullmatch(r"10([⁰¹²³⁴⁵⁶⁷⁸⁹]+)", text)
    return str(10 ** int(power[1].translate(RAISED))) if power else text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--kept", type=Path, metavar="DIR", help="a run that is there")
    arguments = parser.parse_args()
    for name in arguments.names:
        if arguments.kept:
            record_run(arguments.kept, name)
        else:
            renew(name)
    for path in texts():
        old = path.read_text(encoding="utf-8")
        if (new := renewed(old)) != old:
            path.write_text(new, encoding="utf-8")
            print("rewritten:", path.relative_to(ROOT))


if __name__ == "__main__":
    main()
