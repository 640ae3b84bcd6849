"""Accelerators by their published numbers, and times of programs at their limits.

A program takes at least as long as its operations at the peak rate of the card, and as its bytes at
the bandwidth of the memory: the longer of both is its roofline. Estimates, never seen on a GPU.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from sampler.errors import InputError


@dataclass(frozen=True)
class Card:
    """Published numbers of an accelerator.

    bandwidth  bytes of its memory per second
    float64    operations per second in double precision
    float32    operations per second in single precision
    memory     bytes
    """

    bandwidth: float
    float64: float
    float32: float
    memory: float

    def roofline(self, operations: float, moved: float, precision: str) -> float:
        """Seconds of so many operations in a precision and bytes moved, whichever takes longer."""
        return max(operations / getattr(self, precision), moved / self.bandwidth)

    def bound(self, operations: float, moved: float, precision: str) -> str:
        """The limit that takes longer, operations or bytes."""
        computing = operations / getattr(self, precision)
        return "operations" if computing > moved / self.bandwidth else "bytes"


# NVIDIA's data sheets of the SXM forms, of V100 with 32 GB; rates without tensor cores. That of
# L40S has no rate in double precision: it is 1/64 of single precision, as the white paper of its
# architecture (Ada) says.
CARDS: Mapping[str, Card] = {
    "h200": Card(4.8e12, 34e12, 67e12, 141e9),
    "h100": Card(3.35e12, 34e12, 67e12, 80e9),
    "a100": Card(2.039e12, 9.7e12, 19.5e12, 80e9),
    "v100": Card(0.9e12, 7.8e12, 15.7e12, 32e9),
    "l40s": Card(0.864e12, 91.6e12 / 64, 91.6e12, 48e9),
}
# JAX takes this share of a card's memory unless XLA_PYTHON_CLIENT_MEM_FRACTION says otherwise.
SHARE_OF_MEMORY = 0.75

UNITS = {"bandwidth": "B/s", "float64": "FLOP/s", "float32": "FLOP/s", "memory": "B"}
PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?) ?(?P<prefix>[kMGTP]?)(?P<unit>\D+)")
EXAMPLE = "bandwidth=3.35TB/s,float64=34TFLOP/s,float32=67TFLOP/s,memory=80GB"


def card_named(text: str) -> Card:
    """The card of this name, or one of the user's own: KEY=VALUE with units, as in `EXAMPLE`.

    Raises InputError for a name that is not known, and for numbers that are missing or wrong.
    """
    if "=" not in text:
        if text.lower() not in CARDS:
            known = ", ".join(CARDS)
            raise InputError("--device", text, f"is not known; use {known}, or {EXAMPLE}")
        return CARDS[text.lower()]
    given = {}
    for part in text.split(","):
        key, _, value = (one.strip() for one in part.partition("="))
        if key not in UNITS or key in given:
            wrong = "is given twice" if key in given else f"is not one of {', '.join(UNITS)}"
            raise InputError("--device", part, f"{key!r} {wrong}; write {EXAMPLE}")
        found = QUANTITY.fullmatch(value)
        if found is None or found["unit"] != UNITS[key] or not float(found["number"]) > 0.0:
            raise InputError("--device", part, f"needs a number above 0 in {UNITS[key]}; {EXAMPLE}")
        given[key] = float(found["number"]) * PREFIXES[found["prefix"]]
    missing = [one.name for one in fields(Card) if one.name not in given]
    if missing:
        raise InputError("--device", text, f"{', '.join(missing)} missing; write {EXAMPLE}")
    return Card(**given)
