"""State of a run, from its files alone."""

from pathlib import Path

from sampler.recipes.recipe import Recipe
from sampler.recipes.training_recipe import TrainingRecipe, load_any_recipe
from sampler.storage.checkpoint import DamagedFile, peek_header
from sampler.storage.lock import living_holder
from sampler.storage.manifest import read_manifest
from sampler.storage.run_directory import (
    CHECKPOINT_FOLDER,
    CHECKPOINT_SLOTS,
    RECIPE_FILE,
    point_directory,
)

NOT_BEGUN, RUNNING, INTERRUPTED, FINISHED = "not begun", "running", "interrupted", "finished"


def status_text(directory: Path) -> str:
    """Return the state of a run: begun, finished, at work; one line per point of a sweep."""
    recipe = load_any_recipe(directory / RECIPE_FILE)
    if isinstance(recipe, Recipe) and recipe.sweep:
        return sweep_text(directory, recipe)
    lines = [f"{directory}: {state_of(directory)}"]
    return "\n".join([*lines, *(f"  {line}" for line in stages(directory, recipe))])


def sweep_text(directory: Path, recipe: Recipe) -> str:
    """The state of a sweep, counted over its points where it is not finished; then of each."""
    states = {label: state_of(point_directory(directory, label)) for label, _ in recipe.points()}
    whole = state_of(directory)
    if f"{INTERRUPTED}; " in whole:
        counts = {
            word: sum(word in state for state in states.values())
            for word in (FINISHED, RUNNING, INTERRUPTED, NOT_BEGUN)
        }
        counted = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        whole = f"{len(states)} points, {counted}"
        if counts[FINISHED] == len(states):
            recipe_file = directory / RECIPE_FILE
            whole += f"; gather them with: sweep {recipe_file} --out {directory}"
        elif not counts[RUNNING]:
            whole += f"; go on with: resume {directory}"
    return "\n".join([f"{directory}: {whole}", *(f"  {one}: {s}" for one, s in states.items())])


def state_of(directory: Path) -> str:
    """One phrase: not begun, running, interrupted, or finished."""
    manifest = read_manifest(directory)
    command = manifest.command
    if command is None:
        older = "of an earlier version: it can be read, not gone on with"
        return older if manifest.seconds else NOT_BEGUN
    holder = living_holder(directory)
    if holder is not None:
        return f"`{command}` {RUNNING}: {holder}"
    code = manifest.finished.get(command)
    if code is not None:
        return f"`{command}` {FINISHED} with exit code {code}"
    draws = newest_checkpoint(directory)
    reached = f" after {reached_text(draws)}" if draws else ""
    return f"`{command}` {INTERRUPTED}{reached}; go on with: resume {directory}"


def stages(directory: Path, recipe: Recipe | TrainingRecipe) -> list[str]:
    """The finished stages with their seconds, and how far chains or training are."""
    lines = [
        f"{stage}: finished in {seconds:.1f} s"
        for stage, seconds in read_manifest(directory).seconds.items()
    ]
    header = newest_checkpoint(directory)
    if header is not None:
        what = f"chains: {recipe.sampler.chains}" if isinstance(recipe, Recipe) else "network"
        lines.append(f"{what}, saved at {reached_text(header)}")
    return lines


def reached_text(header: dict) -> str:
    """Phase and steps of a checkpoint."""
    phases = {"warmup": "warm-up step", "draws": "draw", "training": "training step"}
    most = "at most " if "looks" in header and header["phase"] == "draws" else ""
    seen = f" ({header['seen']})" if header.get("seen") else ""
    return f"{phases[header['phase']]} {header['done']} of {most}{header['total']}{seen}"


def newest_checkpoint(directory: Path) -> dict | None:
    """Header of the newest checkpoint; None where there is none."""
    headers = []
    for name in CHECKPOINT_SLOTS:
        try:
            headers.append(peek_header(directory / CHECKPOINT_FOLDER / name))
        except DamagedFile:
            continue
    return max(headers, key=lambda header: header["sequence"], default=None)
