"""Text of `status` and `list`: the progress of runs, in a few lines each."""

import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sampler.errors import ENDINGS, InputError
from sampler.storage.directory import COMPARISON_SUMMARY_FILE, RECIPE_FILE, RESULTS, find_directory
from sampler.storage.files import read_json
from sampler.storage.status import (
    FINISHED,
    INTERRUPTED,
    NOT_BEGUN,
    RUNNING,
    RunState,
    last_worked_at,
    runs_in,
    state_of,
)

# With two columns of indentation, a line of a usual terminal.
WIDTH = 78
PHASES = {
    "warmup": "warm-up step",
    "draws": "draw",
    "training": "training step",
    "particles": "repetition",
    "examples": "example",
}


def state_text(state: RunState, short: bool = False) -> str:
    """The progress of a run, and how to continue it; short: for a narrow column."""
    reached = f" after {reached_text(state.checkpoint)}" if state.checkpoint else ""
    if state.word == FINISHED and short:
        return f"exit code {state.exit_code}" if state.exit_code else FINISHED
    if state.word == FINISHED:
        why = ENDINGS.get(state.exit_code, "") if state.exit_code else ""
        code = f"{state.exit_code}: {why}" if why else str(state.exit_code)
        return f"`{state.command}` {FINISHED} with exit code {code}"
    if state.word == INTERRUPTED and short:
        return f"{INTERRUPTED}{reached}"
    if state.word == INTERRUPTED:
        return f"`{state.command}` {INTERRUPTED}{reached}; go on with: resume {state.directory}"
    return state.word if short or state.word == NOT_BEGUN else f"`{state.command}` {RUNNING}"


def reached_text(header: Mapping) -> str:
    """How far a checkpoint is, `draw 300 of 1000`."""
    most = "at most " if "checks" in header and header["phase"] == "draws" else ""
    seen = f" ({header['seen']})" if header.get("seen") else ""
    return f"{PHASES[header['phase']]} {header['done']} of {most}{header['total']}{seen}"


def status_text(directory: Path) -> str:
    """Started and finished work, and who does it; a line for each point or stage."""
    state = state_of(directory)
    if state.points is not None:
        lines = [f"{label}: {state_text(point)}" for label, point in state.points.items()]
        return "\n".join([f"{directory}: {sweep_state(state)}", *(f"  {line}" for line in lines)])
    seconds = state.seconds.items()
    lines = [f"{stage}: finished in {taken:.1f} s" for stage, taken in seconds]
    if state.checkpoint is not None:
        lines.append(f"{saved_text(state)}, saved at {reached_text(state.checkpoint)}")
    if state.repetitions:
        counted = ", ".join(f"{count} from the {law}" for law, count in state.repetitions.items())
        lines.append(f"repetitions finished: {counted}")
    return "\n".join([f"{directory}: {state_text(state)}", *(f"  {line}" for line in lines)])


def saved_text(state: RunState) -> str:
    """Contents of the newest checkpoint."""
    if state.is_training:
        return "network"
    others = {"particles": "particles", "examples": "rows of examples"}
    chains = state.settings["sampler"]["chains"]
    return others.get(state.checkpoint["phase"], f"chains: {chains}")


def sweep_state(state: RunState) -> str:
    """Progress of a sweep in one phrase, counted over its points until it is finished."""
    if state.word != INTERRUPTED:
        return state_text(state)
    words = [point.word for point in state.points.values()]
    counts = {word: words.count(word) for word in (FINISHED, RUNNING, INTERRUPTED, NOT_BEGUN)}
    counted = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    whole = f"{len(words)} points, {counted}"
    if counts[FINISHED] == len(words):
        recipe_file = state.directory / RECIPE_FILE
        return f"{whole}; gather them with: sweep {recipe_file} --out {state.directory}"
    return whole if counts[RUNNING] else f"{whole}; go on with: resume {state.directory}"


def listing_text(directories: Sequence[Path]) -> str:
    """Directory, name, state, time and verdict of every run."""
    for directory in directories:
        if not directory.is_dir():
            find_directory(directory)
    where = list(directories) or [RESULTS]
    runs = runs_in(where)
    return "\n".join(map(entry_text, runs)) or f"no runs in {', '.join(map(str, where))}"


def entry_text(directory: Path) -> str:
    """One run or sweep of the listing."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(last_worked_at(directory)))
    try:
        state = state_of(directory)
        texts = [f"{state.settings.get('name', directory.name)}, {when}, {state_text(state)}"]
        if state.points is not None:
            words = [point.word for point in state.points.values()]
            texts.append(f"{words.count(FINISHED)} of {len(words)} points finished")
        elif (directory / COMPARISON_SUMMARY_FILE).is_file():
            texts.append(read_json(directory / COMPARISON_SUMMARY_FILE, "compare")["headline"])
    except InputError as problem:
        texts = [str(problem)]
    lines = [textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
             for text in texts]  # fmt: skip
    return "\n".join([str(directory), *(textwrap.indent(line, "  ") for line in lines)])
