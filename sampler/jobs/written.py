"""What a command says of the files it has drawn and written: a line for each folder of figures."""

from collections.abc import Sequence
from pathlib import Path

FIGURES = (".png", ".svg")


def written_text(paths: Sequence[Path]) -> str:
    """Figures by name, their formats together, then every other file by its path."""
    drawn: dict[Path, dict[str, None]] = {}
    others = []
    for path in paths:
        if path.suffix in FIGURES:
            drawn.setdefault(path.parent, {})[path.stem] = None
        else:
            others.append(f"{path.stem}: {path}")
    lines = [f"figures in {folder}: {', '.join(names)}" for folder, names in drawn.items()]
    return "\n".join(lines + others)
