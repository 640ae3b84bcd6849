"""Results under the names of `tests/reference/golden*.json`, how they are compared, and their data.

`entries_of`, and the functions below it up to the comparison, know how the program gives results.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import arviz_stats
import numpy as np
import xarray as xr
from scipy.stats import norm

from sampler.data.make import build_task
from sampler.jobs.plan import make_plan
from sampler.problem import build_problem
from sampler.settings.recipe import load_recipe
from sampler.transformer.trained_transformer import read_model
from theory.observables import accuracy

Entries = dict[str, Any]
# Numbers of a predictor that are compared, in C order over [test_example, output].
FEW = 12

# Predictor → its variables of `theory.nc` that are compared, under their names there.
THEORY = {
    "leading": (
        "order_parameter", "readout_order_parameter", "log_evidence", "head_score",
        "kernel_alignment", "predictor_mean", "predictor_variance", "accuracy", "elpd",
    ),
    "next": (
        "order_parameter", "log_evidence", "kernel_alignment", "predictor_mean", "accuracy",
    ),
    "infinite": (
        "predictor_mean", "predictor_variance", "log_evidence", "kernel_alignment", "accuracy",
        "elpd",
    ),
    "infinite_tuned": ("temperature", "predictor_mean", "log_evidence", "accuracy", "elpd"),
}  # fmt: skip
# The same of variables with other names, or without predictors.
FURTHER = {
    ("leading", "action"): "action",
    ("leading", "validation_score"): "validation_log_predictive_density",
    ("infinite", "accuracy_of_sub_networks"): "accuracy_of_sub_network",
}
OF_UPPER_LAYER = re.compile(r"order_parameter_layer_[0-9]+")
# Variables of draws that are compared, by the group they are in.
DRAWS = {
    "posterior": re.compile(r"(readout_)?order_parameter(_layer_[0-9]+)?|temperature"),
    "predictions": re.compile("predictor(_mean)?"),
}


def entries_of(directory: Path, cuts: bool = False) -> Entries:
    """Everything that is compared of what a run directory holds, or that of a sweep.

    cuts  whether accuracies at a U_1 that is cut are made, too
    """
    points = {p.name: entries_of(p) for p in directory.iterdir() if (p / "theory.nc").is_file()}
    if points:
        chosen = sorted(name for name, one in points.items() if "exact" in one)
        return {"points": points, "sampled_points": chosen}
    found: Entries = {}
    if (directory / "theory.nc").is_file():
        table = xr.load_dataset(directory / "theory.nc", engine="h5netcdf")
        found["examples"] = table.sizes["test_example"]
        for predictor in map(str, table["predictor"].values):
            found[predictor] = entries_of_predictor(table, predictor)
        found["outputs"] = table.sizes.get("output", 1)
        if cuts:
            overlap = table["order_parameter"].sel(predictor="leading").values
            found["leading"] |= accuracies_of_cuts(directory / "recipe.toml", overlap)
    if (directory / "draws.nc").is_file():
        with xr.open_datatree(directory / "draws.nc", engine="h5netcdf") as tree:
            found["exact"] = entries_of_draws(tree) | density_of_mixture(tree)
    if (directory / "comparison.json").is_file():
        compared = json.loads((directory / "comparison.json").read_text(encoding="utf-8"))
        found["exact"] = entries_of_comparison(compared["summary"]) | found["exact"]
        with xr.open_datatree(directory / "comparison.nc", engine="h5netcdf") as tree:
            found["exact"] |= entries_of_elements(tree)
    return found


def entries_of_predictor(table: xr.Dataset, predictor: str) -> Entries:
    """Everything that is compared of what one predictor says."""
    names = {name: name for name in THEORY[predictor]}
    names |= {name: at for (of, name), at in FURTHER.items() if of == predictor}
    names |= {str(n): str(n) for n in table if OF_UPPER_LAYER.fullmatch(str(n))}
    entries = {}
    for name, at in names.items():
        if at in table:
            values = table[at]
            values = values.sel(predictor=predictor) if "predictor" in values.dims else values
            entries[name] = few(name, values.values)
    return entries


def entries_of_comparison(summary: Mapping) -> Entries:
    """Quantities of the posterior that are no means over draws, with their errors."""
    cells = {name: summary.get(name, {}) for name in ("elpd", "log_predictive_density")}
    return {
        name: {"mean": cell["sampled"]["value"], "mcse": cell["sampled"]["error"]}
        for name, cell in cells.items()
        if "sampled" in cell
    }


def density_of_mixture(tree: xr.DataTree) -> Entries:
    """Mean over test labels of ln ⟨N(y; m, v + 𝒯)⟩, over draws that know their own m and v.

    Recorded as their log predictive density, where the program has that of one Gaussian.
    """
    if "predictor_variance" not in tree.get("predictions", ()):
        return {}
    drawn = tree["predictions"].to_dataset()
    labels = tree["predictions_constant_data"]["labels_test"].values
    noise = tree["constant_data"]["temperature"]
    if "temperature" in tree["posterior"]:
        noise = tree["posterior"]["temperature"].sel(draw=drawn["draw"])
    scale = np.sqrt(drawn["predictor_variance"].astype(np.float64) + noise)
    shape = (*scale.shape[:2], *labels.shape)
    mean, scale = drawn["predictor_mean"].values.reshape(shape), scale.values.reshape(shape)
    density, logs = norm.pdf(labels, mean, scale), evidence_of_repetitions(tree)
    middle = mean_and_error(density, logs)["mean"]
    error = mean_and_error((density / middle).mean(axis=(2, 3)), logs)["mcse"]
    return {"log_predictive_density": {"mean": np.log(middle).mean(), "mcse": error}}


def entries_of_elements(tree: xr.DataTree) -> Entries:
    """Head scores of the posterior with their errors."""
    elements = tree.children.get("elements")
    if elements is None or "head_score" not in elements.children:
        return {}
    scores = elements["head_score"]
    return {"head_score": {"mean": scores["sampled"].values, "mcse": scores["error"].values}}


def few(name: str, values: np.ndarray) -> np.ndarray:
    return values.reshape(-1)[:FEW] if name.startswith("predictor") else values


def accuracies_of_cuts(recipe_file: Path, overlap: np.ndarray) -> Entries:
    """Accuracies at U_1 without its off-diagonal entries, and with all diagonal ones the first."""
    recipe = load_recipe(recipe_file)
    problem = build_problem(recipe, build_task(recipe))
    equal = overlap + np.diag(overlap[0, 0] - np.diag(overlap))
    found = {}
    for name, cut in (("diagonal_only", np.diag(np.diag(overlap))), ("equal_diagonal", equal)):
        mean = problem.predictions_at(cut)["predictor_mean"].reshape(problem.labels_test.shape)
        found[f"accuracy_{name}"] = accuracy(mean, problem.labels_test)
    return found


def entries_of_draws(tree: xr.DataTree) -> Entries:
    """Means over draws with their errors, and the evidence with its."""
    logs = evidence_of_repetitions(tree)
    found: Entries = {}
    for group, names in DRAWS.items():
        for name, drawn in (tree[group].data_vars if group in tree.children else {}).items():
            if names.fullmatch(str(name)):
                draws = drawn.values.astype(np.float64).reshape(*drawn.shape[:2], -1)
                draws = draws[..., :FEW] if group == "predictions" else draws
                found[str(name)] = mean_and_error(draws, logs)
    if "posterior_weights" in tree.children:
        found["mean_square_of_weights"] = {
            str(name): mean_and_error(
                (drawn.values**2).mean(axis=tuple(range(2, drawn.ndim))), logs
            )
            for name, drawn in tree["posterior_weights"].data_vars.items()
        }
    known = tree["posterior"].attrs
    return found | {n: known[n] for n in ("log_evidence", "log_evidence_error") if n in known}


def evidence_of_repetitions(tree: xr.DataTree) -> np.ndarray | None:
    """Log evidence of each repetition; None of Markov chains."""
    logs = tree["sample_stats"].to_dataset().get("log_evidence")
    return None if logs is None else logs.values[:, 0]


def mean_and_error(draws: np.ndarray, logs: np.ndarray | None = None) -> Entries:
    """Mean of draws [chain, draw, …] and its Monte Carlo standard error, without constant draws.

    logs  log evidences of repetitions, which are weighed by them; errors are then of the ratio of
          two means over repetitions
    """
    if logs is None:
        error = arviz_stats.mcse(xr.DataArray(draws, dims=axes(draws)).to_dataset(name="x"))["x"]
        return {"mean": draws.mean(axis=(0, 1)), "mcse": error.values}
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    means = draws.mean(axis=1)
    mean, count = np.tensordot(weights, means, 1), len(weights)
    deviations = weights.reshape(-1, *[1] * (means.ndim - 1)) * (means - mean)
    return {"mean": mean, "mcse": np.sqrt((deviations**2).sum(0) * count / (count - 1))}


def axes(draws: np.ndarray) -> list[str]:
    return ["chain", "draw", *(f"axis_{k}" for k in range(draws.ndim - 2))]


def method_of(recipe_file: Path) -> Entries:
    """Space, algorithm and steps of warm-up that a recipe is given, as `check` names them.

    Of a few examples to validate and test, which have no part in the choice and cost its time.
    """
    task = load_recipe(recipe_file).task
    others = (f"examples_{name}" for name in ("validation", "test"))
    recipe = load_recipe(recipe_file, [f"task.{one}=8" for one in others if getattr(task, one, 0)])
    plan = make_plan("run", recipe)
    plan = (plan.points or (plan,))[0]
    settings = plan.recipe.sampler
    return {"space": settings.space, "algorithm": settings.algorithm,
            "warmup": settings.warmup_steps}  # fmt: skip


def entries_of_user_theory(comparison: Any, name: str) -> Entries:
    """By how much a theory of the user's own is off, relative to each quantity, with the error."""
    quantities = ("order_parameter", "predictor_mean", "predictor_variance", "head_score")
    rows = comparison.table().xs(name, level="predictor").loc[[*quantities]].query("state != ''")
    columns = {"difference": "mean", "difference_error": "mcse"}
    return {"exact": rows.rename(columns=columns)[[*columns.values()]].to_dict("index")}


def entries_of_training(directory: Path) -> Entries:
    """Last losses, sizes of the weights, and shares of right examples of every split."""
    summary = json.loads((directory / "training_summary.json").read_text(encoding="utf-8"))
    curve = np.genfromtxt(directory / "learning_curve.csv", delimiter=",", names=True)
    last = {str(name): float(curve[name].reshape(-1)[-1]) for name in curve.dtype.names}
    parameters = read_model(directory).parameters
    sizes = {name: float(np.mean(np.abs(values))) for name, values in parameters.items()}
    return {
        "curve": last,
        "sizes": sizes,
        "accuracy": {n: s["network"] for n, s in summary["splits"].items()},
    }


def accuracies_of_trained(recipe_file: Path) -> Entries:
    """The share of test episodes that a trained network has right."""
    recipe = load_recipe(recipe_file)
    problem = build_problem(recipe, build_task(recipe))
    mean = problem.trained.predictor(problem.attended_test)
    return {"network": accuracy(np.asarray(mean), problem.labels_test)}


def entries_of_pruning(directory: Path) -> Entries:
    """Costs of removing each head, and numbers of heads."""
    found = json.loads((directory / "pruning.json").read_text(encoding="utf-8"))["data_vars"]
    names = {name: name for name in ("zero_loss", "theory_loss", "taylor", "magnitude")}
    return {key: found[at]["data"] for key, at in (names | {"score": "head_score"}).items()}


def entries_of_ablation(ablated: Any) -> Entries:
    """Costs of removing each head of a PyTorch model, and its Taylor importance."""
    table = ablated.to_dataframe()
    return {name: table[name].to_numpy() for name in ("zero_loss", "mean_loss", "taylor")}


def checksums_of_task(recipe_file: Path) -> dict[str, str]:
    """SHA-256 of every array of a task, of its numbers rounded to six decimals.

    Exponentials of libraries may end in another last bit.
    """
    task = build_task(load_recipe(recipe_file))
    found = {}
    for name, split in task.named_splits.items():
        inputs = "inputs" if split.path_heads is None else "attended"
        arrays = {inputs: split.inputs, "labels": split.labels, "lengths": split.lengths}
        layers = enumerate(split.attention, start=1)
        arrays |= {f"attention_{layer}": one for layer, one in layers}
        for key, values in arrays.items():
            if values is not None:
                rounded = np.round(np.asarray(values, dtype=np.float64), 6) + 0.0
                found[f"{key}_{name}"] = (
                    f"{rounded.shape} {hashlib.sha256(rounded.tobytes()).hexdigest()[:16]}"
                )
    return found


# --- comparison


def differences(received: Mapping, expected: Mapping) -> list[str]:
    """A line for every recorded number that did not come out again."""
    return [line for group in expected for line in lines_of(group, received, expected[group])]


def lines_of(group: str, received: Mapping, expected: Any) -> Iterator[str]:
    if group not in received:
        yield f"{group}: nothing"
    elif group == "points":
        for point, value in expected.items():
            yield from (f"{point}: {one}" for one in differences(received[group][point], value))
    elif group == "sampled_points":
        if received[group] != expected:
            yield f"sampled {received[group]} instead of {expected}"
    else:
        for name, value in expected.items():
            if name != "log_evidence_error":
                yield from lines_of_entry(group, name, received, expected, value)


def lines_of_entry(
    group: str, name: str, received: Mapping, expected: Mapping, value: Any
) -> Iterator[str]:
    title, given = f"{group}.{name}", received[group].get(name)
    if given is None:
        yield f"{title}: nothing"
    elif group == "exact":
        errors = received[group].get(f"{name}_error"), expected.get(f"{name}_error")
        yield from of_draws(title, given, value, errors)
    elif name.startswith("accuracy"):
        yield from of_shares(title, given, value, received["examples"])
    else:
        if group == "infinite" and name == "kernel_alignment":
            given, value = (of_each_eigenvalue(one, received["outputs"]) for one in (given, value))
        yield from of_theory(title, given, value, tolerance(group, name))


def of_each_eigenvalue(alignment: Any, outputs: int) -> np.ndarray:
    """Alignment with all eigenvectors of an eigenvalue: at infinite width outputs share them."""
    each = np.asarray(alignment, dtype=np.float64).reshape(-1, outputs)
    return np.sqrt((each**2).sum(axis=1))


def lines_of_numbers(received: Mapping, expected: Mapping, limit: float) -> list[str]:
    """A line for every array that is not the recorded one, relative to its largest entry."""
    return [
        line for name in expected for line in of_theory(name, received[name], expected[name], limit)
    ]


def tolerance(group: str, name: str) -> float:
    """Relative to the largest entry of an array."""
    if name == "elpd":
        return 1e-5 if group == "infinite_tuned" else 1e-6
    if group == "infinite_tuned" and name != "log_evidence":
        return 1e-5
    return 1e-6 if group == "next" else 1e-8


def of_theory(name: str, given, value, limit: float) -> Iterator[str]:
    given, value = (np.asarray(x, dtype=np.float64) for x in (given, value))
    if name.endswith("elpd"):  # stored in single precision
        given, value = given.sum(), value.sum()
    if given.shape != value.shape or np.any(np.isnan(given) != np.isnan(value)):
        yield f"{name}: {given} instead of {value}"
        return
    scale = np.max(np.abs(np.nan_to_num(value)), initial=0.0)
    apart = np.max(np.abs(np.nan_to_num(given - value)), initial=0.0)
    if apart > limit * scale:
        yield f"{name}: off by {apart / scale:.2g} of its largest entry (limit {limit:.0e})"


def of_shares(name: str, given, value, examples: int) -> Iterator[str]:
    apart = np.max(np.abs(np.asarray(given, dtype=float) - np.asarray(value, dtype=float)))
    if not apart < 1.5 / examples:
        yield f"{name}: {given} instead of {value} of {examples} examples"


def of_draws(name: str, given, value, errors=(None, None), limit: float = 4.5) -> Iterator[str]:
    """Means within so many combined errors."""
    if isinstance(value, Mapping) and "mcse" not in value:
        for part in value:
            yield from of_draws(f"{name}.{part}", given[part], value[part])
        return
    if isinstance(value, Mapping):
        errors = given["mcse"], value["mcse"]
        given, value = given["mean"], value["mean"]
    given, value, *errors = (np.asarray(x, dtype=np.float64).reshape(-1) for x in
                             (given, value, *errors))  # fmt: skip
    if given.shape != value.shape:
        yield f"{name}: {given.shape} instead of {value.shape}"
        return
    apart, error = np.abs(given - value), np.hypot(*errors)
    # What does not vary has no error, and its last bit is none of the draws'.
    same = apart <= limit * np.nan_to_num(error) + 1e-12 * np.abs(value)
    wrong = ~same & ~(np.isnan(given) & np.isnan(value))
    if np.any(wrong):
        yield f"{name}: {given[wrong]} instead of {value[wrong]}, error {error[wrong]}"


# --- arrays of one's own, drawn anew for each test


def write_arrays(file: Path) -> None:
    """Write the arrays of a recipe whose path has this name: padded or attended."""
    np.savez(file, **{"padded": padded_arrays, "attended": attended_arrays}[file.stem]())


def padded_arrays() -> dict[str, np.ndarray]:
    """Sequences of 2 to 6 tokens, two heads and one; labels by the sign of the first token."""
    generator, found = np.random.default_rng(5), {}
    for split, count in (("train", 40), ("test", 30), ("validation", 20)):
        inputs = generator.standard_normal((count, 6, 5))
        lengths = generator.integers(2, 7, count)
        there = np.arange(6) < lengths[:, None]
        found |= {f"inputs_{split}": inputs, f"lengths_{split}": lengths}
        found[f"labels_{split}"] = np.sign(inputs[:, 0, 0])
        for layer, heads in enumerate((2, 1), start=1):
            weights = np.exp(generator.standard_normal((count, heads, 6, 6)))
            weights *= there[:, None, :, None]
            found[f"attention_{split}_{layer}"] = weights / weights.sum(axis=2, keepdims=True)
    return found


def attended_arrays() -> dict[str, np.ndarray]:
    """More examples than features of four paths; two real labels."""
    generator, found = np.random.default_rng(6), {"heads": np.array([2, 2])}
    for split, count in (("train", 90), ("test", 30)):
        attended = generator.standard_normal((count, 4, 6))
        clean = np.stack([attended[:, 0, 0], attended[:, 3, 1] - attended[:, 1, 2]], axis=1)
        found[f"attended_{split}"] = attended
        found[f"labels_{split}"] = clean + 0.3 * generator.standard_normal((count, 2))
    return found


def write_series(folder: Path) -> None:
    """Write labelled series of two channels in the format of the UEA archive."""
    generator = np.random.default_rng(7)
    folder.mkdir()
    for split, count in (("TRAIN", 8), ("TEST", 5)):
        lines = ["@problemName series", "@timeStamps false", "@univariate false",
                 "@classLabel true up down", "@data"]  # fmt: skip
        for series in generator.standard_normal((count, 2, 12)):
            channels = ":".join(",".join(map("{:.6f}".format, channel)) for channel in series)
            lines.append(f"{channels}:{'up' if series[0, 0] > 0 else 'down'}")
        (folder / f"series_{split}.ts").write_text("\n".join(lines) + "\n", encoding="utf-8")
