"""How many examples does it take to find the attention that made the labels?

Two learned heads on short hidden Markov chains. First a teacher: labels drawn from a network of
the prior, its attention included, so that what is learned of attention is the most that anyone
can learn (Nishimori's identity). Then the task's own labels: does the posterior find the head
that a person would choose, and what does it gain over attention that is fixed?

    python -m runs.studies.teacher_student.study [FOLDER [EXAMPLES [DATA_SETS]]]

At most 500 examples and 5 data sets: an hour and a half of two cores.
"""

from functools import partial
from itertools import repeat

import numpy as np
from matplotlib.figure import Figure
from scipy.special import softmax

import sampler
from runs.studies.scripts import Study, mean_over
from runs.studies.teacher_student.mathematics import (
    exact_log_evidence,
    leading_order,
    over_draws,
)
from sampler.api.recipes import data_of
from sampler.attention.logits import queries_and_keys
from sampler.attention.similarity import attention_distances, attention_overlaps, matched
from sampler.mcmc.tempered import log_mean, repetition_weights
from sampler.presentation import style
from sampler.runtime import jax_settings
from theory.architecture import Architecture

INFINITE = "infinite"
# Eight tokens and their beginning; six features and nine positions.
INPUTS = {"tokens": 8, "features": 6, "parallel_noise": 0.5, "perpendicular_noise": 0.5,
          "stay_positive": 0.8, "stay_negative": 0.2}  # fmt: skip
SHARPNESS = 3.0  # inverse temperature of attention
TEMPERATURE = {"teacher": 0.03, "own": 0.3}
HEADS = {"teacher": [["learned", "learned"]], "own": [["learned", "learned"], ["uniform"]]}
# Width and examples: data sets.
TEACHER = {
    10: {50: 5, 150: 5, 500: 2},
    INFINITE: {50: 5, 150: 5, 500: 2},
}
OWN = {10: {20: 5, 50: 5, 150: 3}}
FIXED = {
    "good": [["good", "good"], ["uniform"]],
    "random": [["random", "random"], ["uniform"]],
    "uniform": [["uniform", "uniform"], ["uniform"]],
}


Sets = dict[int | str, dict[int, int]]


def points_of(kind: str, most_examples: int, most_sets: int) -> Sets:
    """Data sets by width and number of examples, of those that are asked for."""
    return {
        width: {p: min(n, most_sets) for p, n in sets.items() if p <= most_examples}
        for width, sets in {"teacher": TEACHER, "own": OWN}[kind].items()
    }


def attention_of(data, logits: np.ndarray) -> np.ndarray:
    """Attention [draw, example, head, key, query] of the first layer to all test examples."""
    learned, inputs = data.learned, data.test.inputs[:100]
    found = []
    for one in logits:
        queries, keys = queries_and_keys(learned.form, learned.scale, one, inputs, slice(None))
        found.append(softmax(np.einsum("ehsi,ehti->ehst", keys, queries), axis=-2))
    return np.array(found)


def particles(examples: int) -> int:
    """Fewer where a gradient takes milliseconds."""
    return 128 if examples <= 150 else 64


def recipe_of(kind: str, width: int | str, examples: int, seed: int) -> sampler.Recipe:
    """One data set; every number of it, and the teacher, follow from the seed."""
    labels = {"labels": "teacher", "teacher_seed": seed} if kind == "teacher" else {}
    return sampler.Recipe(
        task=sampler.MarkovChain(
            examples_train=examples, examples_test=1000, examples_validation=0, seed=seed,
            head_seed=seed, **INPUTS, **labels,
        ),
        attention={"heads": HEADS[kind], "inverse_temperature": SHARPNESS},
        network={"widths": width},
        posterior={"temperature": TEMPERATURE[kind]},
    )  # fmt: skip


def sampled(kind: str, width: int | str, examples: int, seed: int) -> dict:
    """Attention, predictor and evidence of one data set, and the theory at some of its draws."""
    recipe = recipe_of(kind, width, examples, seed)
    draws = sampler.sample(
        recipe, algorithm="tempered", particles=particles(examples), repetitions=4,
        until="draws", seed=seed,
    )  # fmt: skip
    data = data_of(recipe).fitted(recipe)
    statistics = {key: np.asarray(one) for key, one in draws["sample_stats"].items()}
    logits = np.asarray(draws["posterior"]["logits_1"])
    found = {
        "weights": repetition_weights(statistics),
        "evidence": np.array(log_mean(statistics["log_evidence"][:, 0])),
        "evidence_prior": np.array(log_mean(statistics["log_evidence_prior"][:, 0])),
        "gradients": np.asarray(draws["warmup_sample_stats"]["n_steps"]).sum(),
        "accuracy": accuracy(draws, data),
        "error": test_error(draws, data),
    }
    # A quarter of the particles; those of one repetition share ancestors.
    kept = logits[:, :: particles(examples) // 16]
    matrices = attention_of(data, kept.reshape(-1, *kept.shape[2:]))
    if kind == "teacher":
        matrices = matrices[..., -1:]
        found["teacher"] = data.test.attention[0][:100, :, :, -1:]
    else:
        good = data_of(recipe.changed({"attention.heads": FIXED["good"]})).data
        found["good"] = good.test.attention[0][:100]
    found["attention"] = matrices.reshape(*kept.shape[:2], *matrices.shape[1:]).astype("f4")
    if width != INFINITE:
        overlaps = np.asarray(draws["posterior"]["order_parameter"])
        found["overlap_trace"] = np.trace(overlaps, axis1=-2, axis2=-1)
        found |= theory_at_draws(data, width, kind, kept)
    return found


def test_predictor(draws, data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean predictor of the test examples with repetitions weighed, their labels and f."""
    statistics = {key: np.asarray(one) for key, one in draws["sample_stats"].items()}
    predictor = np.asarray(draws["predictions"]["predictor"]).mean(axis=1)
    mean = repetition_weights(statistics) @ predictor
    teacher = data.teacher
    clean = None if teacher is None else np.ravel(teacher.outputs["test"])
    return mean, np.ravel(data.test.labels), clean


def accuracy(draws, data) -> float:
    """Share of test examples whose sign the mean predictor has."""
    mean, labels, _ = test_predictor(draws, data)
    return float(np.mean(np.sign(mean) == np.sign(labels)))


def test_error(draws, data) -> float:
    """Mean squared error of f of the teacher, over its mean square; of labels without one."""
    mean, labels, clean = test_predictor(draws, data)
    target = labels if clean is None else clean
    return float(np.mean((mean - target) ** 2) / np.mean(target**2))


def theory_at_draws(data, width: int, kind: str, kept: np.ndarray) -> dict[str, np.ndarray]:
    """Leading order and exact evidence on the attention of eight particles of each repetition."""
    few = kept[:, ::2]
    learned, inputs, labels = data.learned, data.train.inputs, data.train.labels
    layers, rows = len(HEADS[kind]), []
    heads = tuple(map(len, HEADS[kind]))
    arch = Architecture(heads, (width,) * (layers + 1), (1.0,) * (layers + 2), inputs.shape[-1])
    for seed, one in enumerate(few.reshape(-1, *few.shape[2:])):
        queries, keys = queries_and_keys(learned.form, learned.scale, one, inputs, slice(None))
        omega = softmax(np.einsum("ehsi,ehti->ehst", keys, queries), axis=-2)
        top = omega[..., -1] if layers == 1 else omega.mean(axis=-1)
        attended = np.einsum("ehs,esi->ehi", top, inputs)
        with jax_settings():
            given = leading_order(attended, labels, arch, TEMPERATURE[kind])
        exact, _ = exact_log_evidence(attended, labels, arch, TEMPERATURE[kind], seed)
        rows.append((np.trace(given.order_parameter), given.log_evidence, exact))
    names = "overlap_trace_theory", "log_evidence_theory", "log_evidence_exact"
    columns = np.array(rows).T.reshape(3, *few.shape[:2])
    return dict(zip(names, columns, strict=True))


def of_fixed(heads: str, width: int, examples: int, seed: int) -> dict:
    """Accuracy, error and evidence of a network with fixed heads: exact posterior draws."""
    recipe = recipe_of("own", width, examples, seed).changed({"attention.heads": FIXED[heads]})
    draws = sampler.sample(recipe, evidence=True, draws=1000, seed=seed)
    mean = np.asarray(draws["predictions"]["predictor"]).mean(axis=(0, 1))
    labels, known = np.ravel(data_of(recipe).data.test.labels), draws["posterior"].attrs
    return {
        "accuracy": np.mean(np.sign(mean) == np.sign(labels)),
        "error": np.mean((mean - labels) ** 2),
        "evidence": np.array([known["log_evidence"], known["log_evidence_error"]]),
    }


def compared(measure, matrices: np.ndarray, references: np.ndarray) -> np.ndarray:
    """A measure of both heads of every draw against those of a reference, [draw, head, head].

    references  of each draw, or of all
    """
    same = references.ndim == matrices.ndim - 1
    each = repeat(references) if same else references
    pairs = zip(matrices, each, strict=not same)
    return np.array([measure(*pair) for pair in pairs])


def matched_overlap(matrices: np.ndarray, references: np.ndarray) -> np.ndarray:
    """Mean overlap of both heads with those of the reference, in the order of least distance."""
    order = matched(compared(attention_distances, matrices, references), ((0, 1),))
    overlaps = compared(attention_overlaps, matrices, references)
    return np.take_along_axis(overlaps, order[:, None, :], axis=1)[:, 0].mean(axis=-1)


over_data = partial(mean_over, what="data sets")


def prior_attention(kind: str, seed: int) -> np.ndarray:
    """Attention of draws of the prior to the test examples of a data set."""
    data = data_of(recipe_of(kind, 10, 50, seed)).data
    normal = np.random.default_rng(seed).standard_normal((64, 2, data.channels, data.channels))
    found = attention_of(data, normal)
    return found[..., -1:] if kind == "teacher" else found


def of_teacher(one: dict, prior: np.ndarray) -> dict:
    """What one data set says of the attention that made its labels."""
    attention, weights = one["attention"].astype(float), one["weights"]
    teacher = one["teacher"]
    by_repetition = [matched_overlap(draws, teacher).mean() for draws in attention]
    # Two draws that share no ancestors: of neighbouring repetitions.
    others = np.roll(attention, 1, axis=0)
    between = [matched_overlap(*pair).mean() for pair in zip(attention, others, strict=True)]
    joint = weights * np.roll(weights, 1)
    found = {
        "overlap with the teacher": weights @ by_repetition,
        "overlap of two draws": joint @ between / joint.sum(),
        "overlap without data": matched_overlap(prior, teacher).mean(),
        "error of f": float(one["error"]),
    }
    return found | of_both(one)


def of_both(one: dict) -> dict:
    """Evidence of the second start beside the first, U_1 and its theory."""
    found = {"prior minus modes": one["evidence_prior"][0] - one["evidence"][0]}
    if "overlap_trace" in one:
        weights = one["weights"]
        found["trace of U_1"] = weights @ one["overlap_trace"].mean(axis=1)
        traces, logs = one["overlap_trace_theory"], one["log_evidence_theory"]
        averaged = over_draws(traces, weights)
        reweighted = over_draws(traces, weights, logs - one["log_evidence_exact"])
        found["trace of U_1, theory"] = averaged.value
        found["trace of U_1, theory with its own attention"] = reweighted.value
        found["effective draws of its attention"] = reweighted.effective
    return found


def of_own(one: dict, prior: np.ndarray) -> dict:
    """What one data set says of the good head, of which the nearer head is taken, and the gain."""

    def nearest(draws: np.ndarray) -> float:
        return compared(attention_distances, draws, one["good"][:, :1]).min(axis=(1, 2)).mean()

    attention, weights = one["attention"].astype(float), one["weights"]
    return {
        "distance from good": weights @ [nearest(draws) for draws in attention],
        "distance from good, prior": nearest(prior),
        "accuracy": float(one["accuracy"]),
        "evidence": float(one["evidence"][0]),
        "its error": float(one["evidence"][1]),
    } | of_both(one)


def summary(found: dict, points: dict[str, Sets]) -> dict:
    """Means over data sets, by labels, width and number of examples."""
    numbers: dict = {kind: {} for kind in points}
    for kind, reader in (("teacher", of_teacher), ("own", of_own)):
        for width, sets in points[kind].items():
            by_size = numbers[kind][f"N = {width}"] = {}
            for examples, count in sets.items():
                seeds = range(count)
                rows = [
                    reader(found[kind, width, examples, seed], prior_attention(kind, seed))
                    for seed in seeds
                ]
                means = {key: over_data([row[key] for row in rows]) for key in rows[0]}
                for heads in FIXED if kind == "own" else ():
                    fixed = [found[heads, width, examples, seed] for seed in seeds]
                    below = [
                        row["evidence"] - one["evidence"][0]
                        for row, one in zip(rows, fixed, strict=True)
                    ]
                    means[heads] = {
                        "accuracy": over_data([one["accuracy"] for one in fixed]),
                        "evidence below learned": over_data(below),
                    }
                by_size[str(examples)] = means
    return numbers


def draw(teacher: dict[str, dict]) -> Figure:
    """Draw overlaps of attention and the error of f against the number of examples."""
    title = "Attention that is learned from its own labels"
    figure = style.new_figure(style.WIDTH, 3.4, title)
    axes, fit = figure.subplots(1, 2)
    colours = style.VERMILLION, style.BLUE
    for colour, (name, by_size) in zip(colours, teacher.items(), strict=True):
        sizes = np.array(list(map(int, by_size)))
        for ax, key, marker in (
            (axes, "overlap with the teacher", "o"),
            (axes, "overlap of two draws", "x"),
            (fit, "error of f", "o"),
        ):
            rows = [one[key] for one in by_size.values()]
            values, errors = ([row[part] for row in rows] for part in ("value", "error"))
            label = f"{name}, two draws" if marker == "x" else name
            marks = {"color": colour, "label": label, "linewidth": 0.8, "markersize": 4.0}
            ax.errorbar(sizes, values, errors, fmt=f"{marker}-", **marks)
    without = [one["overlap without data"]["value"] for one in teacher["N = 10"].values()]
    axes.axhline(np.mean(without), color=style.GREY, linewidth=0.8, label="without data")
    axes.set_ylabel("overlap of attention")
    fit.set_ylabel("error of f / mean square of f")
    for ax in (axes, fit):
        ax.set_xscale("log")
        ax.set_xlabel("examples $P$")
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(0.0, 1.0))
    axes.set_ylim(0.0, 1.5)
    return figure


if __name__ == "__main__":
    study = Study(__file__)
    sizes = study.size(0, 500), study.size(1, 5)
    points = {kind: points_of(kind, *sizes) for kind in ("teacher", "own")}
    found: dict = {}
    for kind, of_kind in points.items():
        for width, sets in of_kind.items():
            for examples, count in sets.items():
                for seed in range(count):
                    data_set = width, examples, seed
                    for measure, what in (
                        (sampled, kind),
                        *((of_fixed, heads) for heads in FIXED if kind == "own"),
                    ):
                        key = what, *data_set
                        found[key] = study.arrays_once("_".join(map(str, key)), measure, *key)
    numbers = summary(found, points)
    study.record(numbers)
    with style.figure_style():
        study.draw(draw(numbers["teacher"]))
