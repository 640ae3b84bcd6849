"""Where each point of a sweep keeps its results."""

from pathlib import Path


def point_directory(directory: Path, label: str) -> Path:
    """Where a point of a sweep keeps its results; one folder, whatever the label holds."""
    return directory / label.replace("/", "_")
