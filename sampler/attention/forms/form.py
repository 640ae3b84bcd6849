"""What all forms of attention have in common."""

from typing import Annotated, Any, ClassVar

from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field

# An array of NumPy or of JAX: forms use what both have.
Array = Any
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(strict=True, ge=1)]


class Form(BaseModel):
    """Settings of a form. Columns of A need not sum to 1, nor need its entries be positive."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    # Why gradient descent cannot train queries and keys through this form; None where it can.
    untrainable: ClassVar[str | None] = None

    def refuse_tokens(self, tokens: int) -> None:
        """Raise ValueError if sequences of this length cannot be attended to."""

    def matrices(self, queries: Array, keys: Array) -> Array:
        """A [example, head, query, key] of queries and keys [example, head, token, key channel]."""
        raise NotImplementedError

    def factors(self, queries: Array, keys: Array) -> tuple[Array, Array | None]:
        """(S, P) with A = S P, S [example, head, query, pooled] and P [pooled, key].

        P is None where keys are not pooled: then S is A. A V = S (P V) costs less than A V.
        """
        return self.matrices(queries, keys), None

    def pooled(self, values: Array) -> Array:
        """P x of values [*axes, token, channel], without the matrix; the values where P is None."""
        return values


def logits(
    queries: Float[Array, "example head query size"], keys: Float[Array, "example head key size"]
) -> Float[Array, "example head query key"]:
    """q_i·k_j/√G."""
    return queries @ transposed(keys) / queries.shape[-1] ** 0.5


def softmax(values: Float[Array, "*axes key"]) -> Float[Array, "*axes key"]:
    """exp(l_j)/Σ_j exp(l_j), without the largest l_j, so that nothing overflows."""
    xp = values.__array_namespace__()
    weights = xp.exp(values - xp.max(values, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def transposed(matrices: Array) -> Array:
    """The last two axes exchanged."""
    return matrices.__array_namespace__().matrix_transpose(matrices)
