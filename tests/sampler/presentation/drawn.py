"""Reads back what was drawn, from the axes of a figure."""

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D


def of_lines(ax, colour: str) -> list[Line2D]:
    return [line for line in ax.lines if to_hex(line.get_color()).upper() == colour]


def of_colour(ax, colour: str) -> list[np.ndarray]:
    """[point, (x, y)] of every line of this colour."""
    return [line.get_xydata() for line in of_lines(ax, colour)]


def bars_of(container) -> tuple[np.ndarray, np.ndarray]:
    """[point, (x, y)] of error bars, and their ends [point, (x, y), 2]."""
    marks, _, (segments,) = container.lines
    ends = np.array(segments.get_segments()).transpose(0, 2, 1)
    return (ends.mean(axis=2) if marks is None else marks.get_xydata()), ends


def assert_bars(container, x, y, error) -> None:
    """Points at these places, with errors along y."""
    points, ends = bars_of(container)
    np.testing.assert_allclose(points, np.stack([x, y], axis=1))
    np.testing.assert_allclose(ends[:, 1], np.stack([y - error, y + error], axis=1))
