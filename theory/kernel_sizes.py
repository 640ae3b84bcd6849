"""Sizes of path kernels and what it costs to assemble K of them, known without JAX."""

from theory.architecture import Architecture

# Rows of K that are stored together, up to the longest of them; fewer rows, less is stored twice.
SMALLEST_BLOCK, BLOCKS = 64, 8
# Above this many bytes path kernels are never stored: the feature form needs far less. Those of the
# training examples with themselves are read in every gradient, and may take more.
KERNEL_FORM_BYTES = 64 * 2**20
SYMMETRIC_FORM_BYTES = 2**29


def row_blocks(examples: int) -> list[tuple[int, int]]:
    rows = max(SMALLEST_BLOCK, -(-examples // BLOCKS))
    return [(start, min(start + rows, examples)) for start in range(0, examples, rows)]


def stored_numbers(examples: int, paths: int) -> int:
    pairs = paths * (paths + 1) // 2
    return pairs * sum((end - start) * end for start, end in row_blocks(examples))


def stored_bytes(examples: int, architecture: Architecture) -> int:
    """Bytes of the path kernels of examples with themselves, all of them."""
    if architecture.outputs == 1:
        return 8 * stored_numbers(examples, architecture.path_count)
    return 8 * (architecture.path_count * examples) ** 2


def kernel_form_pays(examples: int, others: int | None, architecture: Architecture) -> bool:
    """Whether storing the path kernels is small enough and cheaper than the feature form.

    Per assembly the kernel form reads pairs · P · P' numbers once (half of them for a set with
    itself, `others` = None, and one output); the feature form multiplies
    p_1 D P P' + (P + P') D p_1² numbers. Reading a number costs about as much as eight products.
    """
    paths, rows = architecture.path_count, architecture.order_parameter_sizes[0]
    one_output = architecture.outputs == 1
    limit = KERNEL_FORM_BYTES
    if others is None and one_output:
        stored, limit = stored_numbers(examples, paths), SYMMETRIC_FORM_BYTES
    else:
        pairs = paths * (paths + 1) // 2 if one_output else paths**2
        stored = pairs * examples * (others or examples)
    others = others or examples
    assembled = stored * architecture.outputs**2
    features = (
        rows
        * architecture.channels
        * (examples * others * architecture.outputs**2 + (examples + others) * rows)
    )
    return 8 * stored <= limit and 8 * assembled <= features
