"""A run made of plain arrays, its theory and draws in the files of a run directory.

The arrays are no results of this program: every number that the program tells of the files can be
worked out from the arrays by its definition (`expected`).

    repetitions  twelve weighted repetitions, one output, labels ±1; a temperature that was sampled
                 or given
    chains       four Markov chains that know f alone, two outputs, labels that are one of two
                 classes; a variance of the next order and some Pareto k are not to be used
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xarray as xr
from scipy.signal import lfilter

from sampler.storage.files import SCHEMA_VERSION

KINDS = ("repetitions", "chains")
# Heads of both layers by kind, and the names of the paths.
HEADS = {"repetitions": (2, 2), "chains": (2, 1)}
SHAPES = {"repetitions": (12, 100), "chains": (4, 800)}
CORRELATION = 0.3
TRAIN, TEST, VALIDATION, COMPONENTS = 40, 12, 9, 5
# How far off the predictors are in every number, as a share of its size.
GAPS = {"leading": 0.1, "next": 0.0, "infinite": 0.5, "infinite_tuned": 0.4}
ORDERS = ("leading", "next")
NEXT_SAYS = "correction 0.4137 exceeds 0.25, spread 0.7259"
EVIDENCE = -20.0


@dataclass(frozen=True)
class Told:
    """A run of plain arrays.

    predictions  predictor → name → array, as `theory.nc` has them
    drawn        name → [chain, draw, …]
    labels       split → [example, output]
    logs         log evidence of repetitions; None of chains
    evidence     of the samples: value and error, and whether it is trusted
    validated    numbers of the draws whose predictor on the validation split was kept
    left_out     leave-one-out terms, Pareto k and the error of the sum, of the samples
    alignment    of kernel and labels, and its error
    """

    kind: str
    temperature: float
    width: int
    predictions: dict[str, dict[str, np.ndarray]]
    drawn: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    logs: np.ndarray | None
    evidence: tuple[float, float, bool]
    validated: np.ndarray
    left_out: dict[str, np.ndarray]
    alignment: tuple[np.ndarray, np.ndarray]
    trained: np.ndarray
    attributes: dict = field(default_factory=dict)

    @property
    def outputs(self) -> int:
        return self.labels["test"].shape[1]

    @property
    def weights(self) -> np.ndarray | None:
        """Weights of the repetitions, in proportion to their evidence."""
        return None if self.logs is None else np.exp(self.logs) / np.exp(self.logs).sum()


def made(
    kind: str,
    seed: int = 0,
    temperature: float = 0.3,
    width: int = 10,
    gap: float = 1.0,
    sound: bool = True,
    evidence_trusted: bool = True,
    next_order: str = "fine",
    temperature_sampled: bool = False,
) -> Told:
    """Arrays of a run.

    gap    how far off the theories are, relative to GAPS
    sound  whether the draws pass their diagnostics: else one chain is elsewhere
    """
    rng = np.random.default_rng(seed)
    chains, draws = SHAPES[kind]
    outputs = 2 if kind == "chains" else 1

    def noise(*shape: int) -> np.ndarray:
        """Stationary noise [chain, draw, …] of unit variance: of chains it is autocorrelated."""
        white = rng.standard_normal((chains, draws, *shape))
        if kind != "chains":
            return white
        white[:, 1:] *= np.sqrt(1.0 - CORRELATION**2)
        return lfilter([1.0], [1.0, -CORRELATION], white, axis=1)

    drawn, rows = {}, int(np.prod(HEADS[kind])) * outputs
    sizes = {
        "order_parameter": rows,
        "order_parameter_layer_2": HEADS[kind][1] * outputs,
        "readout_order_parameter": outputs,
    }
    for name, size in sizes.items():
        matrix = rng.standard_normal((size, 2 * size))
        moving = 0.05 * noise(size, size)
        drawn[name] = matrix @ matrix.T / (2 * size) + (moving + np.swapaxes(moving, -1, -2)) / 2
    if not sound:
        drawn["order_parameter"][0] += 0.2
    labels = {
        split: np.eye(2)[rng.integers(2, size=count)]
        if outputs == 2
        else rng.choice([-1.0, 1.0], (count, 1))
        for split, count in (("test", TEST), ("validation", VALIDATION))
    }
    validated = np.arange(200 // chains) * draws // (200 // chains)
    centre = {s: 0.3 + 0.5 * of + 0.3 * rng.standard_normal(of.shape) for s, of in labels.items()}
    if kind == "chains":
        drawn["predictor"] = centre["test"] + 0.05 * noise(TEST, outputs)
        moments = centre["validation"] + 0.4 * noise(VALIDATION, outputs)
        drawn["validation_mean"] = moments[:, validated]
        drawn["validation_variance"] = np.zeros_like(drawn["validation_mean"])
    else:
        drawn["predictor_mean"] = centre["test"] + 0.3 * noise(TEST, outputs)
        drawn["predictor_variance"] = 0.2 * np.exp(0.2 * noise(TEST, outputs))
        drawn["validation_mean"] = (centre["validation"] + 0.3 * noise(VALIDATION, outputs))[
            :, validated
        ]
        drawn["validation_variance"] = 0.2 * np.exp(0.2 * noise(VALIDATION, outputs))[:, validated]
    if temperature_sampled:
        drawn["temperature"] = temperature * np.exp(0.3 * noise())
    predictions = {who: {} for who in GAPS}
    for who, of in predictions.items():
        factor = 1.0 + gap * GAPS[who]
        if who in ORDERS:
            of |= {name: factor * drawn[name].mean((0, 1)) for name in sizes}
            of["head_score"] = np.ones((2, max(HEADS[kind])))
            of["head_score"][[n < max(HEADS[kind]) for n in HEADS[kind]], -1] = np.nan
        of["predictor_mean"] = factor * centre["test"]
        if who.startswith("infinite"):
            of["predictor_mean"][:2] *= -1.0  # two examples are in the other class
        of["predictor_variance"] = (
            0.25 * factor * np.exp(0.1 * rng.standard_normal(centre["test"].shape))
        )
        # What the validation split was to a predictor: no array of `theory.nc`.
        of["_validation"] = np.stack(
            [factor * centre["validation"], 0.3 * factor + 0 * centre["validation"]]
        )
        of["temperature"] = np.array(0.8 * temperature if who == "infinite_tuned" else temperature)
        of["log_evidence"] = np.array(EVIDENCE - 3.0 * gap * GAPS[who] + seed)
        if who != "next":
            of["elpd_by_example"] = -0.7 - 0.2 * factor * rng.standard_exponential(TRAIN)
            of["elpd"] = of["elpd_by_example"].sum()
            of["kernel_alignment"] = rng.uniform(0.1, 1.0, COMPONENTS)
    if kind == "chains":
        predictions["next"]["predictor_variance"][3] = np.nan
    logs, evidence = None, (EVIDENCE + seed, 0.125, evidence_trusted)
    if kind != "chains":
        logs = 0.5 * rng.standard_normal(chains) + EVIDENCE + seed
        each = np.exp(logs)
        error = each.std(ddof=1) / np.sqrt(chains) / each.mean()
        evidence = float(np.log(each.mean())), float(error), evidence_trusted
    pareto_k = rng.uniform(0.0, 0.5, TRAIN)
    if kind == "chains":
        pareto_k[[1, 5, 7]] = 0.72, 0.95, np.nan
    left_out = {
        "elpd": -0.8 - 0.3 * rng.standard_exponential(TRAIN),
        "mcse": np.full(TRAIN, 0.01),
        "pareto_k": pareto_k,
        "mcse_of_sum": np.array(0.0625),
    }
    alignment = rng.uniform(0.1, 1.0, COMPONENTS), np.full(COMPONENTS, 0.03)
    alignment[0][-1] = np.nan
    matrix = rng.standard_normal((rows, rows))
    attributes = {
        "converged": 1, "explanation": "saddle point converged", "temperature": temperature,
        "infinite_tuned_by": "log_evidence", "widths": [2 * width, width, width + 5],
        "next_order_status": next_order, "next_order_explanation": NEXT_SAYS,
    }  # fmt: skip
    return Told(
        kind, temperature, width, predictions, drawn, labels, logs, evidence, validated, left_out,
        alignment, matrix @ matrix.T, attributes,
    )  # fmt: skip


# --- as files


def axes_of(name: str, outputs: int) -> tuple[str, ...]:
    """Axes of an array in the files, without chain, draw and predictor."""
    squeezed = () if outputs == 1 else ("output",)
    if name.startswith("predictor"):
        return ("test_example", *squeezed)
    axes = {
        "order_parameter": ("path", "path_"),
        "order_parameter_layer_2": ("path_layer_2", "path_layer_2_"),
        "readout_order_parameter": ("output", "output_"),
        "head_score": ("layer", "head"),
        "elpd_by_example": ("example",),
        "kernel_alignment": ("component",),
    }
    return ("validation_example",) if name.startswith("validation") else axes.get(name, ())


def path_names(told: Told) -> list[str]:
    count = int(np.prod(HEADS[told.kind]))
    names = ["good", "uniform", "denoising", "random"][:count]
    if told.outputs == 1:
        return names
    return [f"{name}, output {output}" for name in names for output in range(told.outputs)]


def stored(values: np.ndarray, axes: tuple[str, ...]) -> np.ndarray:
    """An array as a file has it: one output has no axis."""
    return values if values.ndim == len(axes) else values[..., 0]


def named(table: xr.Dataset, told: Told) -> xr.Dataset:
    """The table with coordinates: names of paths, numbers from 0 else, layers from 1."""
    known = {"path": path_names(told), "path_": path_names(told), "layer": [1, 2]}
    return table.assign_coords(
        {axis: known.get(axis, range(size)) for axis, size in table.sizes.items()}
    )


def theory_of(told: Told) -> xr.Dataset:
    """The content of `theory.nc`; validation scores and accuracies are in it by example."""
    from tests.told.expected import accuracy_of, scores_by_example

    columns: dict[str, dict[str, tuple]] = {}
    for who, of in told.predictions.items():
        arrays = {name: values for name, values in of.items() if not name.startswith("_")}
        arrays["accuracy"] = accuracy_of(of["predictor_mean"], told.labels["test"])
        noise = of["_validation"][1] + float(of["temperature"])
        scores = scores_by_example(of["_validation"][0], noise, told.labels["validation"])
        for score, values in scores.items():
            arrays[f"validation_{score}"] = values.mean()
            arrays[f"validation_{score}_by_example"] = values
        for name, values in arrays.items():
            by_example = name.endswith("_by_example") and name.startswith("validation")
            axes = ("validation_example",) if by_example else axes_of(name, told.outputs)
            axes = () if np.ndim(values) == 0 else axes
            columns.setdefault(name, {})[who] = axes, stored(np.asarray(values, float), axes)
    table = {}
    for name, of in columns.items():
        axes, like = next(iter(of.values()))
        missing = np.full(np.shape(like), np.nan)
        values = [of[who][1] if who in of else missing for who in told.predictions]
        table[name] = (("predictor", *axes), np.stack(values))
    overlap = told.predictions["leading"]["order_parameter"]
    table |= {
        "order_parameter_trained": (("path", "path_"), told.trained),
        "accuracy_trained": ((), 0.75),
        "accuracy_of_sub_network": (("sub_network",), [0.5, 0.875]),
        "participation_ratio": ((), np.trace(overlap) ** 2 / np.sum(overlap**2)),
    }
    names = np.array([["good", "uniform"], ["uniform", "random"]], dtype=object)
    dataset = named(xr.Dataset(table), told).assign_coords(
        predictor=list(told.predictions),
        sub_network=["good", "good + uniform"],
        head_name=(("layer", "head"), names),
    )
    dataset["elpd_by_example"].attrs["labels"] = "of these labels"
    return dataset.assign_attrs(told.attributes, schema_version=SCHEMA_VERSION)


def draws_of(told: Told) -> xr.DataTree:
    """The content of `draws.nc`."""
    repeated = told.kind != "chains"
    chains, draws = SHAPES[told.kind]
    attributes = {
        "algorithm": "tempered" if repeated else "nuts",
        "space": "order_parameters" if repeated else "weights",
        "seconds": 8.0, "seconds_warmup": 4.0, "seconds_draws": 2.0, "gradients": 1000,
        "target_acceptance": 0.8,
        **({"particles": draws} if repeated else {"max_tree_depth": 10}),
    }  # fmt: skip
    value, error, trusted = told.evidence
    evidence = {
        "log_evidence": value, "log_evidence_error": error, "log_evidence_trusted": int(trusted),
        "log_evidence_method": "tempered" if repeated else "bridge",
    }  # fmt: skip
    groups: dict[str, dict] = {"posterior": {}, "predictions": {}}
    for name, values in told.drawn.items():
        if not name.startswith("validation"):
            group = "predictions" if name.startswith("predictor") else "posterior"
            axes = ("chain", "draw", *axes_of(name, told.outputs))
            groups[group][name] = axes, stored(values, axes)
    groups["sample_stats"] = statistics_of(told)
    groups["constant_data"] = {
        "temperature": ((), told.temperature),
        "prior_variances": (("weights",), np.ones(4)),
    }
    groups["predictions_constant_data"] = {
        "labels_test": (("test_example", "output"), told.labels["test"])
    }
    groups["kernel"] = {
        "kernel_alignment": (("component",), told.alignment[0]),
        "kernel_alignment_mcse": (("component",), told.alignment[1]),
    }
    of_draw = ("chain", "draw", "validation_example", "output")
    noise = told.drawn.get("temperature", np.full((chains, draws), told.temperature))
    groups["validation"] = {
        "predictor_mean": (of_draw, told.drawn["validation_mean"]),
        "predictor_variance": (of_draw, told.drawn["validation_variance"]),
        "labels": (of_draw[2:], told.labels["validation"]),
        "temperature": (of_draw[:2], noise[:, told.validated]),
    }
    names = ("elpd", "mcse", "pareto_k")
    groups["leave_one_out"] = {name: (("example",), told.left_out[name]) for name in names}
    tree = xr.DataTree.from_dict({n: named(xr.Dataset(of), told) for n, of in groups.items()})
    tree["validation"] = xr.DataTree(
        tree["validation"].to_dataset().assign_coords(draw=told.validated)
    )
    tree["posterior"].attrs = attributes
    tree["sample_stats"].attrs = attributes | evidence
    tree["leave_one_out"].attrs = {
        "draws": chains * draws,
        "labels": "of these labels",
        "mcse_of_sum": float(told.left_out["mcse_of_sum"]),
    }
    tree.attrs = {"schema_version": SCHEMA_VERSION}
    return tree


def statistics_of(told: Told) -> dict[str, tuple]:
    """Statistics of a sound sampler, [chain, draw]."""
    rng, shape = np.random.default_rng(1), SHAPES[told.kind]
    columns = {"lp": rng.standard_normal(shape), "acceptance_rate": rng.uniform(0.7, 0.9, shape)}
    if told.logs is None:
        columns |= {
            "energy": rng.standard_normal(shape),
            "diverging": np.zeros(shape, bool),
            "n_steps": np.full(shape, 7),
            "trajectory_steps": np.full(shape, 7),
            "tree_depth": np.full(shape, 3),
            "step_size": np.full(shape, 0.3),
        }
    else:
        columns |= {
            "ancestor": np.tile(np.arange(shape[1]), (shape[0], 1)),
            "mode": rng.integers(2, size=shape),
            "log_evidence": np.tile(told.logs[:, None], shape[1]),
            "log_evidence_prior": np.full(shape, np.nan),
            "temperatures": np.full(shape, 8),
            "lowest_acceptance": np.full(shape, 0.6),
        }
    return {name: (("chain", "draw"), values) for name, values in columns.items()}


def write(told: Told, directory: Path, recipe: str = "") -> Path:
    """Store recipe, theory and draws in a directory, by xarray alone."""
    directory.mkdir(parents=True, exist_ok=True)
    theory_of(told).to_netcdf(directory / "theory.nc", engine="h5netcdf")
    draws_of(told).to_netcdf(directory / "draws.nc", engine="h5netcdf")
    if recipe:
        (directory / "recipe.toml").write_text(recipe, encoding="utf-8")
    return directory
