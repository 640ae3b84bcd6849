"""The rows that stand for training examples too many to be held: made in one pass, and kept.

The pass is saved as it goes on, so that a run which is stopped goes on from the last block. Points
of a sweep with the same data share the result: the first to have it leaves it beside them.
"""

import hashlib
import time
from pathlib import Path

from sampler.errors import InputError
from sampler.jobs.interruption import Interruption
from sampler.jobs.progress import ProgressDisplay
from sampler.problem import fold_training, is_folded
from sampler.recipes.recipe import Recipe
from sampler.storage.checkpoint import DamagedFile, Sealed, read_sealed, write_sealed
from sampler.tasks.splits import StreamedSplit
from sampler.tasks.task import Task
from theory import Triangle

SECONDS_BETWEEN_SAVES = 20.0


def kept_rows(
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
    partial, whole = directory / "rows-unfinished.bin", shared / f"rows-{key[:8]}.bin"
    examples = task.train.examples
    for path in (whole, partial):
        start = stored_triangle(path, key)
        if start is not None and start.examples == examples:
            return start
    done = 0 if start is None else start.examples
    began, saved = time.monotonic(), time.monotonic()
    triangle = start
    with ProgressDisplay() as display:
        for triangle in fold_training(recipe, task, start):
            now = time.monotonic()
            rate = (triangle.examples - done) / (now - began)
            left = f"{(examples - triangle.examples) / rate:.0f} s left"
            display.show("reading examples", triangle.examples, examples, left)
            asked = interruption.received is not None or interruption.interrupted
            if asked or now - saved > SECONDS_BETWEEN_SAVES:
                store(partial, key, triangle)
                saved = now
                interruption.leave_if_asked("the pass over the examples")
    store(whole, key, triangle)
    partial.unlink(missing_ok=True)
    return triangle


def fingerprint_of_rows(recipe: Recipe, task: Task) -> str:
    """SHA-256 of all that the triangle follows from."""
    checksum = hashlib.sha256(repr((recipe.network.readout, task.pairs)).encode())
    task.train.add_to(checksum)
    return checksum.hexdigest()


def store(path: Path, key: str, triangle: Triangle) -> None:
    """Write a triangle completely or not at all."""
    sizes = (triangle.paths, triangle.channels, triangle.outputs)
    header = {"key": key, "examples": triangle.examples, "sizes": sizes}
    try:
        write_sealed(path, header, {"matrix": triangle.matrix})
    except OSError as problem:
        raise InputError("DIR", path, f"cannot be written: {problem.strerror}") from None


def stored_triangle(path: Path, key: str) -> Triangle | None:
    """The triangle of a file; None where there is none, it is damaged, or of other data."""
    try:
        found: Sealed = read_sealed(path)
    except DamagedFile:
        return None
    if found.header["key"] != key:
        return None
    return Triangle(found.arrays["matrix"], found.header["examples"], *found.header["sizes"])
