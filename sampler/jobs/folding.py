"""Rows that stand for training examples too many to be held, by a pass that can be interrupted.

Points of a sweep with the same data share the rows: the first to have them leaves them there.
"""

import hashlib
import time
from pathlib import Path

from sampler.data.split import StreamedSplit
from sampler.data.task import Task
from sampler.jobs.interruption import Interruption
from sampler.jobs.progress import ProgressDisplay
from sampler.problem import fold_training, is_folded
from sampler.settings.recipe import Recipe
from sampler.storage.checkpoints import Checkpoints, DamagedFile, Sealed, read_sealed, write_sealed
from sampler.storage.directory import ROWS_FOLDER
from theory import Triangle


def folded_training_set(
    recipe: Recipe, task: Task, directory: Path, shared: Path, interruption: Interruption
) -> Triangle | None:
    """The triangle of all training examples, from disk or by the pass; None where none is kept.

    directory  of the run, where the pass is saved
    shared     where the result is left: the directory of the sweep, or of the run

    Raises RequeueError when the interruption asks to stop, with the pass saved.
    """
    if not (isinstance(task.train, StreamedSplit) and is_folded(recipe, task)):
        return None
    key = fingerprint_of_rows(recipe, task)
    checkpoints = Checkpoints(directory / ROWS_FOLDER, {"data": key})
    whole = shared / f"rows-{key[:8]}.bin"
    triangle = stored_triangle(whole, key)
    if triangle is None:
        triangle = whole_pass(recipe, task, checkpoints, interruption)
        header, arrays = content_of(triangle)
        write_sealed(whole, header | {"key": key}, arrays)
    checkpoints.remove()
    return triangle


def whole_pass(
    recipe: Recipe, task: Task, checkpoints: Checkpoints, interruption: Interruption
) -> Triangle:
    """The triangle of all training examples, by the pass that is saved on the way."""
    stored = checkpoints.newest()
    triangle = start = None if stored is None else triangle_of(stored)
    examples, done = task.train.examples, 0 if start is None else start.examples
    if done == examples:  # stopped at its last block
        return start
    began = time.monotonic()

    def save() -> None:
        header, arrays = content_of(triangle)
        done = triangle.examples
        checkpoints.save(header | {"phase": "examples", "done": done, "total": examples}, arrays)

    with ProgressDisplay() as display:
        for triangle in fold_training(recipe, task, start):
            each = (time.monotonic() - began) / (triangle.examples - done)
            left = f"{(examples - triangle.examples) * each:.0f} s left"
            display.show("reading examples", triangle.examples, examples, left)
            if checkpoints.due:
                save()
            interruption.leave_if_asked("the pass over the examples", save)
    return triangle


def fingerprint_of_rows(recipe: Recipe, task: Task) -> str:
    """SHA-256 of all that the triangle follows from."""
    checksum = hashlib.sha256(repr((recipe.network.readout, task.pairs)).encode())
    task.train.add_to(checksum)
    return checksum.hexdigest()


def content_of(triangle: Triangle) -> tuple[dict, dict]:
    """Header and arrays of a sealed file."""
    sizes = (triangle.paths, triangle.channels, triangle.outputs)
    return {"examples": triangle.examples, "sizes": sizes}, {"matrix": triangle.matrix}


def triangle_of(sealed: Sealed) -> Triangle:
    return Triangle(sealed.arrays["matrix"], sealed.header["examples"], *sealed.header["sizes"])


def stored_triangle(path: Path, key: str) -> Triangle | None:
    """The triangle of a file; None where there is none, it is damaged, or of other data."""
    try:
        sealed = read_sealed(path)
    except DamagedFile:
        return None
    return triangle_of(sealed) if sealed.header["key"] == key else None
