"""Limits of memory: sizes of arrays of the theory, and of blocks computed at a time.

Nothing here needs JAX, so that costs are known before anything is computed.
"""

from theory.architecture import Architecture

# Up to this many coordinates the Hessian is formed and factorised; above, only its products.
DENSE_ACTION_COORDINATES = 500
# Up to this many Bartlett coordinates the Hessian of the exact posterior is formed at its mode.
HESSIAN_COORDINATES = 2500
# The explicit second derivative of the energy holds (p_1 D)² numbers, with about four copies at its
# peak (2.2 GB at this limit); above it, products only.
DENSE_HESSIAN_NUMBERS = 2**26
# The second derivatives of the next order hold (p_1 D)² and p_1⁴ numbers, with some copies of each.
LARGEST_BLOCKS = 2**26

# Rows of K that are stored together, up to the longest of them; fewer rows, less is stored twice.
SMALLEST_BLOCK, BLOCKS = 64, 8
# Above this many bytes path kernels are never stored: the feature form needs far less. Those of the
# training examples with themselves are read in every gradient, and may take more.
STORED_TEST_BYTES = 64 * 2**20
STORED_TRAINING_BYTES = 2**29
# Bytes of what is computed at a time for many examples.
AT_A_TIME_BYTES = 256 * 2**20


def hessian_fits(architecture: Architecture) -> bool:
    """Whether the Hessian of the action is small enough to be formed and factorised."""
    numbers = (architecture.order_parameter_sizes[0] * architecture.channels) ** 2
    return (
        architecture.coordinate_count <= DENSE_ACTION_COORDINATES
        and numbers <= DENSE_HESSIAN_NUMBERS
    )


def next_order_fits(architecture: Architecture) -> bool:
    """Whether the second derivatives of the next order can be stored."""
    rows = architecture.order_parameter_sizes[0]
    coordinates = architecture.bartlett_coordinate_count
    numbers = max((rows * architecture.channels) ** 2, rows**4, rows**2 * coordinates)
    return coordinates <= HESSIAN_COORDINATES and numbers <= LARGEST_BLOCKS


def row_blocks(examples: int) -> list[tuple[int, int]]:
    """First row, and the one after the last, of the blocks in which a triangle of K is stored."""
    rows = max(SMALLEST_BLOCK, -(-examples // BLOCKS))
    return [(start, min(start + rows, examples)) for start in range(0, examples, rows)]


def stored_bytes(examples: int, others: int | None, paths: int, outputs: int) -> int:
    """Bytes of the stored path kernels of two sets of examples (`others = None`: of one set).

    With one output pairs π ≤ π' are stored, and of one set a triangle, in blocks of rows.
    """
    pairs = paths * (paths + 1) // 2 if outputs == 1 else paths**2
    if others is None and outputs == 1:
        return 8 * pairs * sum((end - start) * end for start, end in row_blocks(examples))
    return 8 * pairs * examples * (others or examples)


def storing_pays(examples: int, others: int | None, architecture: Architecture) -> bool:
    """Whether storing the path kernels is small enough and cheaper than the feature form.

    Per assembly stored kernels are read once, every number for all O² pairs of outputs; features
    need p_1 D P P' O² + (P + P') D p_1² products. Reading a number costs about as much as eight
    products, which is as much as its bytes.
    """
    outputs, rows = architecture.outputs, architecture.order_parameter_sizes[0]
    stored = stored_bytes(examples, others, architecture.path_count, outputs)
    limit = STORED_TRAINING_BYTES if others is None and outputs == 1 else STORED_TEST_BYTES
    others = others or examples
    products = examples * others * outputs**2 + (examples + others) * rows
    return stored <= limit and stored * outputs**2 <= rows * architecture.channels * products


def examples_at_a_time(examples: int, bytes_of_each: int) -> int:
    """How many examples (or other parts) fit into `AT_A_TIME_BYTES` together; at least one."""
    return max(1, min(examples, AT_A_TIME_BYTES // bytes_of_each))
