"""Lower triangular matrices in blocks: as matrix products where LAPACK would take its time.

The inverse by a triangular solve and Lᵀ L by a full product cost three times what they must: both
ignore the zeros. Halving the matrix leaves n³/3 products, nearly all of them in matrix products.
"""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

# Blocks up to this size are left to LAPACK and to one plain product.
BLOCK = 128


def inverse_of_lower(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L⁻¹ = [[A⁻¹, 0], [−C⁻¹ B A⁻¹, C⁻¹]] of L = [[A, 0], [B, C]], halved again and again.

    All diagonal blocks are inverted by one batched call.
    """
    size, count = len(lower), 1
    while size > BLOCK * count:
        count *= 2
    block = -(-size // count)
    # Filled up with ones on the diagonal, which the inverse does not see.
    filled = jnp.pad(lower, (0, count * block - size))
    filled = filled + jnp.diag(jnp.where(jnp.arange(count * block) < size, 0.0, 1.0))
    filled = filled.astype(lower.dtype)
    places = [slice(i * block, (i + 1) * block) for i in range(count)]
    diagonal = jnp.stack([filled[place, place] for place in places])
    identity = jnp.eye(block, dtype=lower.dtype)
    inverses = list(jax.vmap(lambda one: solve_triangular(one, identity, lower=True))(diagonal))
    while len(inverses) > 1:
        block = len(inverses[0])
        inverses = [
            _joined(
                inverses[i],
                filled[(i + 1) * block : (i + 2) * block, i * block : (i + 1) * block],
                inverses[i + 1],
            )
            for i in range(0, len(inverses), 2)
        ]
    return inverses[0][:size, :size]


def _joined(first_inverse, below, second_inverse):
    low = -second_inverse @ (below @ first_inverse)
    return jnp.block([[first_inverse, jnp.zeros_like(below.T)], [low, second_inverse]])


def gram_of_lower(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lᵀ L = [[Aᵀ A + Bᵀ B, Bᵀ C], [Cᵀ B, Cᵀ C]] of L = [[A, 0], [B, C]]."""
    size = len(lower)
    if size <= BLOCK:
        return lower.T @ lower
    half = size // 2
    first, below, second = lower[:half, :half], lower[half:, :half], lower[half:, half:]
    across = below.T @ second
    return jnp.block(
        [[gram_of_lower(first) + below.T @ below, across], [across.T, gram_of_lower(second)]]
    )
