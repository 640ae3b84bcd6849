"""Arrangement of chains, draws and matrices on the kind of device that computes.

A processor works best on one chain or draw after another, with matrices that fit its caches; an
accelerator on many side by side.
"""

import jax


def on_accelerator() -> bool:
    return jax.default_backend() != "cpu"


def batch_bytes() -> int:
    """Bytes of the matrices of importance draws that are held at a time."""
    return 2**30 if on_accelerator() else 4 * 2**20


def side_by_side(most: int) -> int | None:
    """Number of draws made in one batch: at most `most`, or None, one after the other."""
    return most if on_accelerator() else None


def for_every_chain(of_one_chain, *by_chain):
    """The results for all chains, side by side or one after the other.

    Side by side, every step of a trajectory copies the trees of all chains, and the longest keeps
    all waiting: on a processor that costs several times more than the gradients of wide networks,
    and a batch of factorisations or triangular solves gains nothing there.
    """
    if on_accelerator():
        return jax.vmap(of_one_chain)(*by_chain)
    return jax.lax.map(lambda arguments: of_one_chain(*arguments), by_chain)


def devices_for(chains: int) -> list:
    """As many devices as divide the chains evenly; a processor is as many as XLA_FLAGS says."""
    devices = jax.devices()
    return devices[: max(n for n in range(1, len(devices) + 1) if chains % n == 0)]
