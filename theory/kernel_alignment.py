"""Alignment of the kernel's principal components with the labels."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def kernel_alignment(
    kernel: Float[Array, "n n"], labels: Float[Array, " n"]
) -> Float[Array, " component"]:
    """|e_i·y| / |y| for the eigenvectors e_i of K, largest eigenvalue first.

    K is the training kernel without temperature; with several outputs both K and y run over
    (example, output), output fastest. Source: arXiv 2405.15926, kernel–task alignment.
    """
    _, vectors = jnp.linalg.eigh(kernel)
    return jnp.abs(labels @ vectors[:, ::-1]) / jnp.linalg.norm(labels)
