"""Log density of all weights of every reference problem, in NumPy alone.

    problem = load("markov_two_paths")
    log_density(problem, check_point(problem, 0))

ln p(weights, y), normalised, as a function of one vector: arrays in alphabetical order of their
names, rows first. `python density.py` compares it with the check values of every problem.
"""

import json
import math
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent


def load(name):
    """A problem: what its JSON file says, and its arrays."""
    problem = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    with np.load(FOLDER / problem["data"]) as file:
        return with_arrays(problem, {key: file[key] for key in file.files})


def of_data(content):
    """A problem from the JSON of its data in the layout of posteriordb."""
    return with_arrays(content, {key: np.array(rows) for key, rows in content["arrays"].items()})


def with_arrays(problem, arrays):
    """A problem with these arrays; labels get an axis of outputs."""
    for key in ("labels_train", "labels_test"):
        arrays[key] = arrays[key].reshape(len(arrays[key]), -1)
    return {**problem, "arrays": arrays}


def shapes(problem):
    """Shapes of all weights, in the order in which they stand in a vector."""
    network, arrays = problem["network"], problem["arrays"]
    if network["logits"]:  # of infinite width: only the logits of positions are left
        return {"logits_1": (1, arrays["inputs_train"].shape[1])}
    widths, inputs = network["widths"], arrays.get("attended_train", arrays.get("inputs_train"))
    found = {"V_0": (widths[0], inputs.shape[2])}
    for layer, heads in enumerate(network["heads"], start=1):
        found[f"V_{layer}"] = (heads, widths[layer], widths[layer - 1])
    found["a"] = (arrays["labels_train"].shape[1], widths[-1])
    if network["temperature_spread"]:
        found["log_temperature_ratio"] = (1,)
    return found


def deviations(problem):
    """Prior standard deviation of each of these arrays."""
    network = problem["network"]
    names = ["V_0", *(f"V_{n}" for n in range(1, len(network["heads"]) + 1)), "a"]
    found = dict(zip(names, np.sqrt(network["variances"]), strict=True))
    return found | {"log_temperature_ratio": network["temperature_spread"], "logits_1": 1.0}


def sites(problem, point):
    """The arrays of weights that a vector holds."""
    found, start = {}, 0
    for name, shape in shapes(problem).items():
        found[name] = np.reshape(point[start : start + math.prod(shape)], shape)
        start += math.prod(shape)
    return found


def path_weights(problem, weights):
    """w_1 [path and output, N_1]: the readout carried down each path, and those of all layers."""
    rows, all_rows = weights["a"], [weights["a"]]
    for layer in range(len(problem["network"]["heads"]), 0, -1):
        values = weights[f"V_{layer}"] / math.sqrt(rows.shape[1])
        rows = np.einsum("ri,hij->hrj", rows, values).reshape(-1, values.shape[2])
        all_rows.append(rows)
    return all_rows[::-1]


def outputs(problem, weights, split):
    """f(x) [example, output] of the examples of a split, "train" or "test"."""
    network, arrays = problem["network"], problem["arrays"]
    if f"attended_{split}" in arrays:  # a linear network is a sum over attention paths
        attended = arrays[f"attended_{split}"]
        _, paths, channels = attended.shape
        rows = path_weights(problem, weights)[0]
        by_path = rows @ weights["V_0"] / math.sqrt(paths * rows.shape[1] * channels)
        return np.einsum("epd,pod->eo", attended, by_path.reshape(paths, -1, channels))
    inputs = arrays[f"inputs_{split}"]
    hidden = inputs @ weights["V_0"].T / math.sqrt(inputs.shape[2])
    for layer in range(1, len(network["heads"]) + 1):
        values = np.einsum("hij,etj->ehti", weights[f"V_{layer}"], hidden)
        values /= math.sqrt(hidden.shape[2])
        if network["values"] == "relu":
            values = math.sqrt(2.0) * np.maximum(values, 0.0)
        omega = arrays[f"attention_{split}_{layer}"]
        hidden = np.einsum("ehsi,ehst->eti", values, omega) / math.sqrt(omega.shape[1])
    read = hidden.mean(axis=1) if network["readout"] == "mean" else hidden[:, -1]
    return read @ weights["a"].T / math.sqrt(hidden.shape[2])


def kernel_of_logits(problem, logits):
    """K of all examples, training first, at infinite width, where logits are those of positions."""
    scaled = problem["network"]["logits"] * np.ravel(logits)
    attention = np.exp(scaled - scaled.max())
    arrays = problem["arrays"]
    inputs = np.concatenate([arrays["inputs_train"], arrays["inputs_test"]])
    attended = np.einsum("etd,t->ed", inputs, attention / attention.sum())
    return attended @ attended.T / attended.shape[1] * math.prod(problem["network"]["variances"])


def log_normal(values, variance):
    """ln N(values; 0, variance) of independent numbers."""
    return -0.5 * (np.sum(values**2) / variance + np.size(values) * math.log(2 * np.pi * variance))


def log_density(problem, point):
    """ln p(weights, y)."""
    weights, labels = sites(problem, point), problem["arrays"]["labels_train"]
    scale, temperature = deviations(problem), problem["network"]["temperature"]
    prior = sum(log_normal(array, scale[name] ** 2) for name, array in weights.items())
    if "log_temperature_ratio" in weights:
        temperature *= math.exp(weights["log_temperature_ratio"][0])
    if "logits_1" not in weights:
        return prior + log_normal(outputs(problem, weights, "train") - labels, temperature)
    kernel = kernel_of_logits(problem, weights["logits_1"])[: len(labels), : len(labels)]
    root = np.linalg.cholesky(kernel + temperature * np.eye(len(labels)))
    whitened = np.linalg.solve(root, labels)
    return prior + log_normal(whitened, 1.0) - labels.shape[1] * np.log(np.diag(root)).sum()


def check_point(problem, seed):
    """A draw from the prior, at which the log density is stored."""
    normal = np.random.default_rng(seed).standard_normal
    scale = deviations(problem)
    return np.concatenate([scale[n] * normal(math.prod(s)) for n, s in shapes(problem).items()])


if __name__ == "__main__":
    for file in sorted(FOLDER.glob("*.json")):
        problem = load(file.stem)
        for check in problem["checks"]:
            found = log_density(problem, check_point(problem, check["seed"]))
            print(problem["name"], check["seed"], found, found - check["log_density"])
