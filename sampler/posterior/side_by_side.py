"""How many draws one compiled loop may treat at a time."""

import jax


def side_by_side(most: int) -> int | None:
    """`most` where batches pay; None, one after the other, on a processor.

    There a batch of factorisations or triangular solves gains nothing over one after the other.
    """
    return None if jax.default_backend() == "cpu" else most
