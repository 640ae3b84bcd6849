"""In how many coordinates the Hessian at the mode is formed, and what cannot do without it."""

from collections.abc import Sequence

from sampler.errors import InputError

LARGEST_DENSE = 2500


def coordinate_count(heads: Sequence[int], widths: Sequence[int], outputs: int) -> int:
    """Free numbers of all Bartlett factors: Σ_l rows · rank − rank (rank − 1)/2."""
    rows, count = outputs, 0
    for width, above in zip(reversed(widths), (*reversed(heads), 1), strict=True):
        rank = min(width, rows)
        count += rows * rank - rank * (rank - 1) // 2
        rows = above * rank
    return count


def refuse_without_hessian(field: str, value: object, coordinates: int) -> None:
    """Raise InputError for what needs the Hessian at the mode, if the coordinates are too many."""
    if coordinates > LARGEST_DENSE:
        raise InputError(
            field,
            value,
            f"needs the Hessian at the mode, too large in {coordinates:,} coordinates (limit "
            f'{LARGEST_DENSE:,}); use sampler.algorithm = "nuts" and sampler.evidence = false',
        )
