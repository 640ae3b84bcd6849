"""Arrays of the one-shot problem: Omniglot's characters, to which a trained network attends.

    python -m runs.references.one_shot

They are stored, as Omniglot's images do not ship with the recipes: its small sets lie, or are
fetched to, the folder that `one_shot.toml` names. Numbers are rounded to float32, which halves
the file.
"""

from pathlib import Path

import numpy as np

import sampler
from sampler.api.references import arrays_of

FOLDER = Path(__file__).parent
TARGET = FOLDER / "one_shot_omniglot.npz"
CHANGES = {
    "task.examples_train": 24,
    "task.examples_test": 20,
    "task.examples_validation": 0,
    "attention.heads": [["0", "1"], ["0", "1"]],
}


def main() -> None:
    recipe = sampler.Recipe.load(FOLDER.parent / "one_shot.toml").points()[0][1].changed(CHANGES)
    arrays = arrays_of(recipe)
    for name in ("attended_train", "attended_test"):
        arrays[name] = arrays[name].astype(np.float32).astype(np.float64)
    np.savez_compressed(TARGET, **arrays)
    print(*(f"{name} {array.shape}" for name, array in arrays.items()))


if __name__ == "__main__":
    main()
