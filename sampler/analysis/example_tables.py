"""Tables of training examples for figures: attention to one, and the kernels between several.

The kernel of a posterior is K at the mean of U_1, in which it is linear. It is shown of some
training examples and, with several outputs, as the mean over outputs.
"""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from scipy.linalg import eigh

from sampler.analysis.estimates import RepetitionWeights, batch_means, bootstrap, mean_over_batches
from sampler.attention.layers import paired
from sampler.problem import AnyProblem, Problem, square_roots
from sampler.runtime import jax_settings
from sampler.tasks.splits import AttendedSplit, Split, StreamedSplit
from sampler.tasks.task import Task
from theory import Features, centred_kernel
from theory.path_kernels import assemble_kernel, path_features

# What is kept at most of the attention to an example.
MOST_TOKENS, MOST_LAYERS, MOST_HEADS = 64, 4, 6


def task_table(task: Task) -> xr.Dataset:
    """The content of `task.nc`.

    head_names_1 …   [head], of all heads of every layer
    attention_1 …    [head, key, query] of the first training example in the first layers and heads,
                     in single precision; none of layers with learned heads, nor without tokens

    Attribute `paths` says how many there are.
    """
    train = task.train
    block = next(iter(train.blocks())) if isinstance(train, StreamedSplit) else train
    columns: dict = {
        f"head_names_{layer}": (f"head_{layer}", list(names))
        for layer, names in enumerate(task.head_names, start=1)
    }
    if not isinstance(block, AttendedSplit):
        columns |= attention_columns(block.part(np.array([0])), task)
    return xr.Dataset(columns, attrs={"paths": len(task.path_names)})


def attention_columns(part: Split, task: Task) -> dict:
    """Attention of the first layers of weights and their first heads to the first example."""
    of_layers = paired(part.attention, task.pairs)[:MOST_LAYERS]
    tokens = part.tokens if part.lengths is None else int(part.lengths[0])
    seen = slice(min(tokens, MOST_TOKENS))
    return {
        f"attention_{layer}": (
            (f"shown_head_{layer}", "key", "query"),
            matrices[0, :MOST_HEADS, seen, seen].astype(np.float32),
        )
        for layer, matrices in enumerate(of_layers, start=1)
        if not has_learned(task, layer)
    }


def has_learned(task: Task, layer: int) -> bool:
    """Whether some heads of a layer of weights are learned: their attention is not known."""
    return task.learned is not None and any(paired(task.learned.learned, task.pairs)[layer - 1])


# Paths whose kernels are shown, and components whose sampled alignment is known.
MOST_KERNEL_PATHS = 4
COMPONENTS = 50
# Eigenvectors that the first components may turn into within the error of the draws.
FOLLOWED = 2 * COMPONENTS
REPLICATES = 200
TINY = np.finfo(np.float64).tiny
SHOWN = ("shown_example", "shown_example_")


def kernel_of(problem: Problem, overlap: Float[np.ndarray, "row row"]) -> dict:
    """Column `kernel` of `theory.nc` at U_1; empty where no training examples can be shown."""
    if problem.shown is None:
        return {}
    mean = mean_over_outputs(problem, overlap)
    return {"kernel": (SHOWN, shown_kernel(shown_features(problem), mean))}


def path_kernel_columns(problem: Problem, overlap: Float[np.ndarray, "row row"]) -> dict:
    """Columns `path_kernels`, of the paths with the largest U_1, and `labels_shown`."""
    if problem.shown is None:
        return {}
    paths = shown_features(problem)[:, _strongest_paths(problem, overlap)]
    blocks = np.einsum("xpi,yqi->pqxy", paths, paths, optimize=True)
    return {
        "path_kernels": (("shown_path", "shown_path_", *SHOWN), blocks),
        "labels_shown": (("shown_example", "output"), problem.shown.labels),
    }


def kernel_coordinates(problem: Problem, leading: Float[np.ndarray, "row row"]) -> dict:
    if problem.shown is None:
        return {}
    names = [problem.path_names[path] for path in _strongest_paths(problem, leading)]
    return dict.fromkeys(SHOWN, problem.shown.numbers) | {"shown_path": names, "shown_path_": names}


def _strongest_paths(
    problem: Problem, overlap: Float[np.ndarray, "row row"]
) -> Int[np.ndarray, " path"]:
    """The paths with the largest diagonal of U_1, in their order."""
    weights = np.diagonal(mean_over_outputs(problem, overlap))
    return np.sort(np.argsort(-weights, kind="stable")[:MOST_KERNEL_PATHS])


def shown_features(problem: Problem) -> Float[np.ndarray, "example path channel"]:
    """φ^π of the shown examples."""
    attended = np.asarray(problem.shown.attended)
    return path_features(attended, problem.architecture.variances[0])


def shown_kernel(
    features: Float[np.ndarray, "example path channel"], overlap: Float[np.ndarray, "path path"]
) -> Float[np.ndarray, "example example"]:
    """K = Σ U^{ππ'} φ^π(x)·φ^π'(x')."""
    weighed = np.einsum("xpi,pq->xqi", features, overlap, optimize=True)
    return weighed.reshape(len(features), -1) @ features.reshape(len(features), -1).T


def relative_to_size(
    kernels: Float[np.ndarray, "*batch example example"],
) -> Float[np.ndarray, "*batch example example"]:
    """Centred kernels in units of the mean of their diagonal; 0 for one that is constant."""
    centred = centred_kernel(kernels)
    sizes = np.einsum("...xx->...", centred) / centred.shape[-1]
    return centred / np.maximum(sizes, TINY)[..., None, None]


def mean_over_outputs(
    problem: Problem, overlap: Float[np.ndarray, "row row"]
) -> Float[np.ndarray, "path path"]:
    """Σ_c U_1^{(π,c),(π',c)}/O."""
    paths, outputs = problem.architecture.path_count, problem.architecture.outputs
    return np.einsum("pcqc->pq", overlap.reshape(paths, outputs, paths, outputs)) / outputs


# --- of the draws


def sampled_kernels(
    problem: AnyProblem, draws: Mapping[str, np.ndarray], weights: RepetitionWeights = None
) -> xr.Dataset:
    """Kernel and alignment of the posterior with their errors: the group `kernel` of `draws.nc`.

    draws: name → [chain, draw, …]. Empty without order parameters, and where chains are too short
    for an error.
    """
    if not isinstance(problem, Problem) or "order_parameter" not in draws:
        return xr.Dataset()
    batches = batch_means(np.asarray(draws["order_parameter"], np.float64), weights=weights)
    if len(batches) < 2:
        return xr.Dataset()
    with jax_settings():
        columns = alignment_columns(problem, batches, weights)
    coordinates = {"component": range(columns["kernel_alignment"][1].size)}
    if problem.shown is not None:
        features = shown_features(problem)
        kernels = np.stack(
            [shown_kernel(features, mean_over_outputs(problem, batch)) for batch in batches]
        )
        columns |= shown_kernel_columns(kernels, weights)
        coordinates |= dict.fromkeys(SHOWN, problem.shown.numbers)
    return xr.Dataset(columns, coords=coordinates)


def shown_kernel_columns(
    kernels: Float[np.ndarray, "batch example example"], weights: RepetitionWeights
) -> dict:
    """Kernel between examples that are shown, and centred and scaled, with their errors."""
    columns = {}
    for name, statistic in {"kernel": np.asarray, "centred_kernel": relative_to_size}.items():
        found = bootstrap(statistic, kernels, weights=weights)
        columns |= {name: (SHOWN, found.value), f"{name}_mcse": (SHOWN, found.mcse)}
    return columns


def alignment_columns(
    problem: Problem,
    batches: Float[np.ndarray, "batch row row"],
    weights: RepetitionWeights = None,
) -> dict:
    """Kernel–task alignment of the first components at the mean of batches of U_1.

    Errors are those of a bootstrap over batches, in which eigenvectors turn among the first
    `FOLLOWED` ones of the mean kernel. NaN where an eigenvalue is 0 to rounding, as in
    `kernel_alignment`.
    """
    learning = problem.learning
    labels, apart = np.asarray(learning.labels).reshape(-1), learning.residual_squares
    length = np.sqrt(labels @ labels + apart)
    factor = jnp.asarray(square_roots(mean_over_batches(batches, weights)))
    kernel = np.asarray(assemble_kernel(Features(learning.features, None), factor))
    first = len(kernel) - min(len(kernel), FOLLOWED)
    eigenvalues, vectors = eigh(kernel, subset_by_index=[first, len(kernel) - 1])
    kernels = np.stack([kernel_between(problem, vectors, batch) for batch in batches])
    along = labels @ vectors / length

    def alignments(means: np.ndarray) -> np.ndarray:
        turned = np.linalg.eigh(means)[1][..., ::-1][..., :COMPONENTS]
        return np.abs(np.einsum("m,rmi->ri", along, turned))

    found = bootstrap(alignments, kernels, REPLICATES, weights=weights)
    rounding = len(kernel) * np.finfo(np.float64).eps * eigenvalues[-1]
    known = (eigenvalues > rounding)[::-1][:COMPONENTS]
    return {
        "kernel_alignment": ("component", np.where(known, found.value, np.nan)),
        "kernel_alignment_mcse": ("component", np.where(known, found.mcse, np.nan)),
    }


def kernel_between(
    problem: Problem,
    vectors: Float[np.ndarray, "example_output vector"],
    overlap: Float[np.ndarray, "row row"],
) -> Float[np.ndarray, "vector vector"]:
    """vᵀ K(U_1) v' for vectors over (example, output), output fastest."""
    outputs = problem.architecture.outputs
    by_example = vectors.reshape(-1, outputs, vectors.shape[1])
    features = np.asarray(problem.learning.features)
    projected = np.einsum("xcm,xpi->mpci", by_example, features, optimize=True)
    rows = projected.reshape(vectors.shape[1], len(overlap), -1)
    return shown_kernel(rows, overlap)
