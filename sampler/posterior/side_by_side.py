"""How many draws one compiled loop may treat at a time."""

import jax


def side_by_side(most: int) -> int | None:
    """`most` where batches pay; None, one after the other, on a processor.

    On a processor XLA spreads a batch of factorisations or triangular solves over all cores and
    waits for it. With two of them, or one and a large product, inside one compiled function each
    can wait for the other for ever (jaxlib 0.10.2, two cores); and nothing is gained.
    """
    return None if jax.default_backend() == "cpu" else most
