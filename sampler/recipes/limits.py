"""Limits of settings that no type of pydantic has: functions that accept a value or refuse it."""

from sys import float_info

from sampler.errors import shortened
from sampler.posterior.spaces import ATTENTION, HIDDEN_WEIGHTS, ORDER_PARAMETERS, WEIGHTS

# The value of widths at which order parameters are known.
INFINITE = "infinite"
# Steps of warm-up in each space.
DEFAULT_WARMUP = {
    ORDER_PARAMETERS: 150,
    HIDDEN_WEIGHTS: 400,
    WEIGHTS: 500,
    ATTENTION: 500,
}


def none_or_several(examples: int) -> int:
    """Accept any number of examples but one."""
    if examples == 1:
        raise ValueError("use at least 2 examples, or 0 for no validation split")
    return examples


def different_heads(kept: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Accept the heads to keep if each layer keeps some, none of them twice."""
    if not kept:
        raise ValueError("list the heads kept in each layer, as in [[0, 1], [0]]")
    for layer, heads in enumerate(kept, start=1):
        if not heads or len(set(heads)) != len(heads):
            raise ValueError(
                f"keep at least one head in layer {layer}, and none twice "
                f"(received {shortened(list(heads))})"
            )
    return kept


def count_or_counts(value: object) -> object:
    """Accept a whole number from 1 to 10⁹, or a list of them."""
    values = value if isinstance(value, list | tuple) else [value]
    if not values or any(type(item) is not int or not 1 <= item <= 10**9 for item in values):
        raise ValueError("use a whole number from 1 to 10^9, or a list [N_1, …, N_L, N_a] of them")
    return tuple(value) if isinstance(value, list) else value


def counts_or_infinite(value: object) -> object:
    """Accept what `count_or_counts` does, or "infinite"."""
    return value if value == INFINITE else count_or_counts(value)


def positive_or_positives(value: object) -> object:
    """Accept a positive finite number, or a list of them."""
    values = value if isinstance(value, list | tuple) else [value]
    if not values or any(
        type(item) not in (int, float) or not 0 < item <= float_info.max for item in values
    ):
        raise ValueError("use a positive number, or a list [σ0², σ1², …, σL², σa²] of them")
    return tuple(map(float, value)) if isinstance(value, list | tuple) else float(value)


def draws_or_table(value: object) -> object:
    """Accept a whole number of at least 4, or a table of them by space, or nothing."""
    if value is None:
        return None
    values = list(value.values()) if isinstance(value, dict) else [value]
    spaces = set(value) if isinstance(value, dict) else set()
    if spaces - set(DEFAULT_WARMUP) or any(type(item) is not int or item < 4 for item in values):
        raise ValueError(
            "use a whole number of at least 4, or a table of them by space, "
            "as in { order_parameters = 4000, weights = 500 }"
        )
    return value
