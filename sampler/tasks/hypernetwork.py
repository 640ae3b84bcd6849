"""Attention as a hypernetwork: one mixing of the tokens that serves two layers of weights."""

from dataclasses import replace
from itertools import product

from sampler.tasks.task import Task, paired


def with_hypernetworks(task: Task, hypernetworks: tuple[bool, ...]) -> Task:
    """The task whose layers of attention are hypernetworks where it is said so, one entry for each.

        out_t = Σ_s Σ_{h,h'} Ω_{h,st} Ω_{h',st} W_out^h W_val^{h'} z_s

    are the layers V_l = W_val and V_{l+1} = W_out with the same heads, whose path (h', h) attends
    with Ω_{h'} ∘ Ω_h. A network that was trained with one layer of values has no place there.
    Source: Schug et al., arXiv 2406.05816, with linear values.
    """
    if not any(hypernetworks):
        return task
    return replace(
        task,
        head_names=paired(task.head_names, hypernetworks),
        path_names=name_pairs(task.head_names, hypernetworks),
        trained=None,
        hypernetworks=hypernetworks,
    )


def name_pairs(
    head_names: tuple[tuple[str, ...], ...], hypernetworks: tuple[bool, ...]
) -> tuple[str, ...]:
    """Names of all paths in flat order, `value∘output` for the heads of a hypernetwork."""
    of_layers = [
        [f"{value}∘{output}" for value, output in product(names, names)] if is_pair else names
        for names, is_pair in zip(head_names, hypernetworks, strict=True)
    ]
    return tuple("·".join(path) for path in product(*of_layers))
