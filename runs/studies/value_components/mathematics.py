"""Attention as a projection on kernel principal components of its keys.

With features φ of the exponential, φ(q)·φ(k) = s(q, k), a point has the image
φ(x)/h(x), and the kernel of the keys' images is the G of `attention_kernel`. Their principal
components belong to eigenvectors e_d of the centred kernel

    K̃ = (1 − 1/T) G (1 − 1/T),    K̃ e_d = λ_d e_d,    u_d = Σ_j e_dj φ̃_j/√λ_d,  |u_d| = 1,

φ̃_j being the image of key j less their mean. Since Σ_j e_dj = 0, a query's image projects to

    u_d·φ(q)/h(q) = Σ_j G(q, k_j) e_dj/√λ_d = Σ_j A(q, k_j) v_jd,    v_jd = e_dj/(√λ_d h(k_j)):

softmax attention whose value channels are eigenvectors of K̃, divided by h, projects queries on
principal components. For values of any other origin a_j = h(k_j) (v_j − c), with the c that makes
Σ_j a_j = 0, are such coefficients; c adds the same to every output. How near a is to an eigenvector
says its cosine with K̃ a, which is 1 for eigenvectors alone.

Source: arXiv 2406.13762, whose claim is that training makes the values such.
"""

import numpy as np
from jaxtyping import Float

from runs.studies.attention_regression.mathematics import normalisers
from theory import attention_kernel, attention_matrix, centred_kernel


def component_values(
    keys: Float[np.ndarray, "key channel"], components: int
) -> Float[np.ndarray, "key component"]:
    """Values v_jd = e_dj/(√λ_d h(k_j)) with which attention projects on the first components.

    Raises ValueError for keys too large for float64, and for components that the keys do not have.
    """
    eigenvalues, vectors = np.linalg.eigh(centred_kernel(attention_kernel(keys, keys)))
    rounding = len(keys) * np.finfo(float).eps * eigenvalues[-1]
    there = int(np.sum(eigenvalues > rounding))
    if not 1 <= components <= there:
        raise ValueError(f"components = {components}: must be 1 to {there}, which these keys have")
    largest = slice(-1, -components - 1, -1)
    return vectors[:, largest] / np.sqrt(eigenvalues[largest]) / normalisers(keys)[:, None]


def component_coefficients(
    keys: Float[np.ndarray, "key channel"], values: Float[np.ndarray, "key value_channel"]
) -> Float[np.ndarray, "key value_channel"]:
    """Coefficients a_j = h(k_j) (v_j − c) of the keys' images, which sum to 0 over keys."""
    sums = normalisers(keys)[:, None]
    return sums * (values - np.sum(sums * values, axis=0) / sums.sum())


def component_alignment(
    keys: Float[np.ndarray, "key channel"], values: Float[np.ndarray, "key value_channel"]
) -> Float[np.ndarray, " value_channel"]:
    """Cosine between a and K̃ a of every channel: from 0 to 1, and 1 for a single component.

    No channel may have the same value at all keys.
    """
    coefficients = component_coefficients(keys, values)
    moved = centred_kernel(attention_kernel(keys, keys)) @ coefficients
    sizes = np.linalg.norm(coefficients, axis=0) * np.linalg.norm(moved, axis=0)
    return np.sum(coefficients * moved, axis=0) / sizes


def keys_and_values(
    model: dict[str, np.ndarray], inputs: Float[np.ndarray, "example token channel"], layers: int
) -> list[
    tuple[
        Float[np.ndarray, "example head token key_channel"],
        Float[np.ndarray, "example head token value_channel"],
    ]
]:
    """Keys and values of every layer of a network of attention layers, by its weights W_…."""
    hidden, found = inputs @ model["W_in"].T, []
    for layer in range(1, layers + 1):
        keys, queries = (
            np.einsum("hgi,xti->xhtg", model[f"W_{kind}_{layer}"], inputs) for kind in "KQ"
        )
        values = np.einsum("hab,xtb->xhta", model[f"W_V_{layer}"], hidden)
        attended = np.empty_like(values)
        for at in np.ndindex(values.shape[:2]):
            attended[at] = attention_matrix(queries[at], keys[at]) @ values[at]
        hidden = attended.sum(axis=1) / np.sqrt(values.shape[1])
        found.append((keys, values))
    return found
