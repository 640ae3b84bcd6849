"""Rows that represent training examples beyond the memory, by a resumable pass.

Points of a sweep with the same data share the rows: the first to have them leaves them there.
"""

import hashlib
from pathlib import Path

from sampler.data.examples import StreamedExamples
from sampler.data.task import Task
from sampler.jobs.interruption import Interruption
from sampler.jobs.progress import Progress
from sampler.problem import fold_training, is_folded
from sampler.settings.recipe import Recipe
from sampler.storage.archives import Archive, DamagedFile, read_archive, write_archive
from sampler.storage.checkpoints import Checkpoints
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
    if not (isinstance(task.train, StreamedExamples) and is_folded(recipe, task)):
        return None
    checksum = hashlib.sha256(repr((recipe.network.readout, task.pairs)).encode())
    task.train.add_to(checksum)
    key = checksum.hexdigest()  # of all that the triangle follows from
    checkpoints = Checkpoints(directory / ROWS_FOLDER, {"data": key})
    whole = shared / f"rows-{key[:8]}.npz"
    triangle = stored_triangle(whole, key)
    if triangle is None:
        triangle = whole_pass(recipe, task, checkpoints, interruption)
        header, arrays = content_of(triangle)
        write_archive(whole, header | {"key": key}, arrays)
    checkpoints.remove()
    return triangle


def whole_pass(
    recipe: Recipe, task: Task, checkpoints: Checkpoints, interruption: Interruption
) -> Triangle:
    """The triangle of all training examples, by the pass that is saved on the way."""
    stored, examples = checkpoints.newest(), task.train.examples
    triangle = start = None if stored is None else triangle_of(stored)
    done = 0 if start is None else start.examples
    if done == examples:  # stopped at its last block
        return start

    def save() -> None:
        header, arrays = content_of(triangle)
        place = {"phase": "examples", "done": triangle.examples, "total": examples}
        checkpoints.save(header | place, arrays)

    with Progress() as progress:
        progress.show("reading examples", done, examples)
        for triangle in fold_training(recipe, task, start):
            progress.show("reading examples", triangle.examples, examples)
            if checkpoints.due:
                save()
            interruption.leave_if_asked("the pass over the examples", save)
    return triangle


def content_of(triangle: Triangle) -> tuple[dict, dict]:
    """Header and arrays of its file."""
    sizes = (triangle.paths, triangle.channels, triangle.outputs)
    return {"examples": triangle.examples, "sizes": sizes}, {"matrix": triangle.matrix}


def triangle_of(stored: Archive) -> Triangle:
    return Triangle(stored.arrays["matrix"], stored.header["examples"], *stored.header["sizes"])


def stored_triangle(path: Path, key: str) -> Triangle | None:
    """The triangle of a file; None where there is none, it is damaged, or of other data."""
    try:
        stored = read_archive(path)
    except DamagedFile:
        return None
    return triangle_of(stored) if stored.header["key"] == key else None
