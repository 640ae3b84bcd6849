"""The structure of U_1, beyond its elements: which paths go together, and which heads matter."""

import numpy as np
import xarray as xr
from jaxtyping import Float

from sampler.analysis.estimate import Estimate, batch_means, bootstrap
from theory import AttentionPaths, head_scores


def off_diagonal_cosine(
    one: Float[np.ndarray, "*batch path path"], other: Float[np.ndarray, "path path"]
) -> Float[np.ndarray | np.floating, "*batch"]:
    """Σ_{π≠π'} A B / √(Σ A² Σ B²) over the elements off the diagonal; leading axes are kept."""
    off = ~np.eye(one.shape[-1], dtype=bool)
    a, b = one[..., off], other[..., off]
    with np.errstate(divide="ignore", invalid="ignore"):
        return (a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1))


def sampled_head_scores(theory: xr.Dataset, draws: np.ndarray) -> Estimate | None:
    """Head scores of the posterior mean of U_1 [chain, draw, path, path], errors by bootstrap.

    None if the theory has none: its saddle point did not converge.
    """
    heads = tuple(int(np.isfinite(row).sum()) for row in theory["head_score"].values)
    if not all(heads):
        return None
    paths = AttentionPaths(heads)
    return bootstrap(
        lambda means: np.stack([head_scores(mean, paths) for mean in means]), batch_means(draws)
    )


def off_diagonal_cosines(theory: xr.Dataset, draws: np.ndarray) -> dict[str, dict]:
    """Cosines between posterior mean of U_1, theory and the network trained by gradient descent.

    Errors by bootstrap over batches of draws; empty where there is only one path.
    """
    if draws.shape[-1] == 1:
        return {}
    batches, cosines = batch_means(draws), {}
    others = {"theory": "order_parameter", "trained": "order_parameter_trained"}
    for name, variable in others.items():
        if variable in theory:
            other = theory[variable].values
            cosine = bootstrap(lambda means, u=other: off_diagonal_cosine(means, u), batches)
            cosines[f"sampled_{name}"] = {"value": cosine.value, "mcse": cosine.mcse}
    if "order_parameter_trained" in theory:
        pair = (theory[variable].values for variable in others.values())
        cosines["theory_trained"] = {"value": off_diagonal_cosine(*pair)}
    return cosines
