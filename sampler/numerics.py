"""What every process sets before it computes: one BLAS thread, and numbers of 64 bits."""

import os


def use_one_blas_thread() -> None:
    """Factorise matrices on one thread unless the environment says otherwise.

    OpenBLAS, which does JAX's factorisations on CPUs, else starts a thread per core whose waiting
    makes small factorisations up to a hundred times slower on a machine that is not idle. It reads
    this when it is loaded, so it is set before anything numerical is imported.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def use_float64() -> None:
    """Let JAX compute in float64."""
    import jax

    jax.config.update("jax_enable_x64", True)
