"""Layout of work on the device that computes, by default as the kind of device wants it.

A processor works best on one chain or draw after another, with matrices that fit its caches; an
accelerator on many side by side. Either layout works on any device.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import jax


@dataclass(frozen=True)
class Layout:
    """Arrangement of chains, draws and matrices on a device.

    side_by_side  whether chains, draws and particles stand along an axis of arrays, in a batch, and
                  do not follow each other in a loop
    batch_bytes   of the matrices of importance draws that are held at a time
    most_devices  that chains are divided over; None: as many as there are
    """

    side_by_side: bool
    batch_bytes: int
    most_devices: int | None = None


# Side by side, every step of a trajectory copies the trees of all chains, and the longest keeps all
# waiting: on a processor that costs several times more than the gradients of wide networks, and a
# batch of factorisations or triangular solves gains nothing there.
OF_PROCESSOR = Layout(side_by_side=False, batch_bytes=4 * 2**20)
# Few bytes leave most of an accelerator idle.
OF_ACCELERATOR = Layout(side_by_side=True, batch_bytes=2**30)
# In the key of what JAX keeps: a program compiled for one layout never serves another.
_chosen = jax.make_user_context(default_value=None)


def layout() -> Layout:
    """Return the layout in force: the one chosen, or that of the kind of device."""
    if _chosen.value is not None:
        return _chosen.value
    return OF_PROCESSOR if jax.default_backend() == "cpu" else OF_ACCELERATOR


@contextmanager
def in_layout(**chosen: bool | int | None) -> Iterator[None]:
    """Compute in another layout while inside; what is None, or not named, stays as it is."""
    now = layout()
    found = replace(now, **{name: value for name, value in chosen.items() if value is not None})
    # Another value of the context has everything compiled again, so that none is set for nothing.
    with nullcontext() if found == now else _chosen(found):
        yield


def side_by_side(most: int) -> int | None:
    """Number of draws made in one batch: at most `most`, or None, one after the other."""
    return most if layout().side_by_side else None


def for_every_chain(of_one_chain, *by_chain):
    """The results for all chains, side by side or one after the other."""
    if layout().side_by_side:
        return jax.vmap(of_one_chain)(*by_chain)
    return jax.lax.map(lambda arguments: of_one_chain(*arguments), by_chain)


def devices_for(chains: int) -> list:
    """As many devices as divide the chains evenly; a processor is as many as XLA_FLAGS says."""
    devices = jax.devices()[: layout().most_devices]
    return devices[: max(n for n in range(1, len(devices) + 1) if chains % n == 0)]
