"""Reference problems as a folder in the layout of posteriordb, which NumPy alone can use.

    python -m runs.references.export FOLDER [NAME …]

Each problem becomes a posterior: its data as zipped JSON, the log density of all weights as model
code in NumPy, and of the reference posterior the statistics of functionals with their errors. A
problem without weights (of infinite width, where attention is fixed) is left out; an open one has
no reference posterior.
"""

import argparse
import json
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

import sampler
from sampler.api.references import FOLDER, Reference, plain_density

MODEL, VERSION = "attention_network", "1"
BY = {"added_by": "attention-posterior"}
STATISTICS = {
    "mean": "means",
    "sd": "standard deviations",
    "moments": "second to fourth moments about the mean",
    "quantiles": "quantiles of 5, 25, 50, 75 and 95 %",
}


def write(path: Path, content: dict) -> None:
    """JSON, zipped where the name says so: the same bytes each time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False)
    if path.suffix != ".zip":
        path.write_text(text + "\n", encoding="utf-8")
        return
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        entry = zipfile.ZipInfo(path.stem, date_time=(1980, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        file.writestr(entry, text)


def data_of(one: Reference) -> dict:
    """What the density needs; of test examples only those that values are stored for."""
    chosen, arrays = one.record["test_inputs"], dict(one.plain["arrays"])
    for name in arrays:
        if "_test" in name:
            arrays[name] = arrays[name][chosen]
    return {
        "network": one.record["network"],
        "test_inputs": list(range(len(chosen))),
        "checks": one.record["checks"],
        "arrays": {name: np.asarray(array).tolist() for name, array in arrays.items()},
    }


def statistic_of(one: Reference, what: str) -> dict:
    """A statistic of all functionals, and its errors, element by element."""
    names, values, errors = [], [], []
    for group, stored in one.values.items():
        if what in stored:
            names += [f"{group}[{n + 1}]" for n in range(len(stored[what]))]
            values += stored[what]
            errors += stored["mcse"][what]
    return {"names": names, what: values, f"mcse_{what}": errors}


def export(one: Reference, folder: Path) -> None:
    """The files of one problem."""
    shapes = plain_density().shapes(one.plain)
    posterior, info = f"{one.name}-{MODEL}", one.record.get("info")
    added = BY | ({"added_date": info["added_date"]} if info else {})
    beside = {"title": one.record["title"], "keywords": one.tags, **added}
    write(folder / f"posteriors/{posterior}.json", {
        "name": posterior, "keywords": one.tags, "model_name": MODEL, "data_name": one.name,
        "reference_posterior_name": posterior if info and not one.open else None,
        "dimensions": {name: int(np.prod(shape)) for name, shape in shapes.items()}, **added,
    })  # fmt: skip
    write(folder / f"data/data/{one.name}.json.zip", data_of(one))
    described = {"description": one.open or "", "data_file": f"data/data/{one.name}.json"}
    write(folder / f"data/info/{one.name}.info.json", beside | described)
    if info is None or one.open:
        return
    statistics = folder / "reference_posteriors/summary_statistics"
    # Element by element what "slowest" is the sum of: these times the elements of this name.
    slowest = {"slowest": one.record["directions"]} if one.record.get("directions") else {}
    for what, words in STATISTICS.items():
        write(statistics / what / what / f"{posterior}.json", statistic_of(one, what))
        said = {"name": posterior, "comments": f"{words} of functionals, not of weights"}
        write(statistics / what / "info" / f"{posterior}.info.json", info | said | slowest)


def export_all(folder: Path | str, names: Sequence[str] = ()) -> list[str]:
    """Write the folder, of these problems or of all; the names of those that have weights."""
    folder = Path(folder)
    every = map(sampler.reference, names or sampler.references())
    found = [one for one in every if one.record["checks"]]
    for one in found:
        export(one, folder)
    code = folder / f"models/numpy/{MODEL}.py"
    code.parent.mkdir(parents=True, exist_ok=True)
    code.write_bytes((FOLDER / "density.py").read_bytes())
    write(folder / f"models/info/{MODEL}.info.json", {
        "name": MODEL, "title": "All weights of a deep multi-head attention network",
        "description": "log_density(of_data(JSON of the data), vector of all weights)",
        "keywords": [], "model_code": {"numpy": f"models/numpy/{MODEL}.py"}, **BY,
    })  # fmt: skip
    written = [one.name for one in found]
    versions = {"version": VERSION, "attention-posterior": version("attention-posterior")}
    write(folder / "version.json", versions | {"posteriors": written})
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="problems; all by default")
    given = parser.parse_args()
    print(f"{len(export_all(given.folder, given.names))} posteriors in {given.folder}")


if __name__ == "__main__":
    main()
