"""The posteriors of this study: learned heads on labels of a teacher, and on those of the task."""

import numpy as np

import sampler
from runs.studies.teacher_student.mathematics import (
    SampledHeads,
    distance_from,
    overlap_of_two_draws,
    overlap_with,
    trace_at_leading_order,
)
from sampler.api.recipes import data_of

# Eight tokens and their beginning; six features and nine positions.
INPUTS = {"tokens": 8, "features": 6, "parallel_noise": 0.5, "perpendicular_noise": 0.5,
          "stay_positive": 0.8, "stay_negative": 0.2}  # fmt: skip
SHARPNESS = 3.0  # inverse temperature of attention
TEMPERATURE = {"teacher": 0.03, "own": 0.3}
HEADS = {"teacher": [["learned", "learned"]], "own": [["learned", "learned"], ["uniform"]]}
FIXED = {name: [[name, name], ["uniform"]] for name in ("good", "random", "uniform")}


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


def measure(kind: str, width: int | str, examples: int, data_sets: int, particles: int) -> dict:
    """What every data set says of its attention."""
    rows = []
    for seed in range(data_sets):
        recipe = recipe_of(kind, width, examples, seed)
        draws = sampler.sample(
            recipe, algorithm="tempered", particles=particles, repetitions=4, until="draws",
            seed=seed,
        )  # fmt: skip
        found = SampledHeads.of(draws, data_of(recipe).fitted(recipe))
        rows.append(of_teacher(found, seed) if kind == "teacher" else of_own(found, recipe, seed))
        rows[-1]["prior minus modes"] = found.evidence_prior - found.evidence
    return {"data sets": rows}


def of_teacher(found: SampledHeads, seed: int) -> dict:
    """Overlaps with the attention that made the labels, and the squared error of its f."""
    teacher, clean = found.data.test.attention[0], np.ravel(found.data.teacher.outputs["test"])
    prior = found.prior_attention(seed)
    return {
        "overlap with the teacher": found.mean(overlap_with(found.attention, teacher)),
        "overlap of two draws": overlap_of_two_draws(found),
        "overlap without data": overlap_with(prior[None], teacher)[0],
        "error of f": np.mean((found.predictor - clean) ** 2) / np.mean(clean**2),
    }


def of_own(found: SampledHeads, recipe: sampler.Recipe, seed: int) -> dict:
    """Distance from the good head, U₁ beside its theory, and what is gained over fixed heads."""
    good = data_of(recipe.changed({"attention.heads": FIXED["good"]})).data.test.attention[0]
    labels = np.ravel(found.data.test.labels)
    row = {
        "distance from good": found.mean(distance_from(found.attention, good)),
        "distance from good, prior": distance_from(found.prior_attention(seed)[None], good)[0],
        "accuracy": np.mean(np.sign(found.predictor) == np.sign(labels)),
        "trace of U_1": found.mean(found.trace),
        "trace of U_1, theory": found.mean(
            trace_at_leading_order(found, recipe.network.widths, recipe.posterior.temperature)
        ),
    }
    for name, heads in FIXED.items():
        fixed = recipe.changed({"attention.heads": heads})
        draws = sampler.sample(fixed, evidence=True, draws=1000, seed=seed)
        mean = np.asarray(draws["predictions"]["predictor"]).mean(axis=(0, 1))
        evidence = draws["posterior"].attrs["log_evidence"]
        row[f"{name}: accuracy"] = np.mean(np.sign(mean) == np.sign(labels))
        row[f"{name}: evidence below learned"] = found.evidence - evidence
    return row
