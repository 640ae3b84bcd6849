"""Seconds from a command to its last line, with and without kept programs.

Each command runs in a process of its own, first with an empty cache of compiled programs, then with
what the first one left there. JAX says what it takes to trace, lower and compile; the rest is
imports, drawing, writing and computing.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests import ROOT

FIVE_WIDTHS = "network.widths=10,20,30,50,100"
CASES = {
    "quickstart": ["run", "runs/quickstart.toml"],
    "four paths, N = 10": ["run", "runs/markov_four_paths.toml", "--set", "network.widths=10"],
    "the same, solve": ["solve", "runs/markov_four_paths.toml", "--set", "network.widths=10"],
    "one-shot, N = 100": ["run", "runs/one_shot.toml", "--set", "network.widths=100"],
    "quickstart, five widths": ["sweep", "runs/quickstart.toml", "--over", FIVE_WIDTHS],
}
OF_JAX = {
    "jaxpr_trace_duration": "trace",
    "jaxpr_to_mlir_module_duration": "lower",
    "backend_compile_duration": "compile",
}
LIBRARIES = "import jax, numpyro, xarray, matplotlib.pyplot"


def measure_latency() -> Iterator[str]:
    """A row for each command and state of the cache; ratios are to the import of the libraries."""
    parts = OF_JAX.values()
    yield f"| command | programs kept | seconds | ratio | programs | {' | '.join(parts)} | rest |"
    yield "|---" * (6 + len(parts)) + "|"
    for name, words in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            for kept in ("none", "all"):
                imports, _ = timed([sys.executable, "-c", LIBRARIES], check=True)
                found = measured(words, Path(folder), kept)
                if found is None:
                    yield f"| {name} | {kept} | the command was refused |"
                    break
                whole, programs, of_parts = found
                numbers = " | ".join(f"{one:.1f}" for one in (*of_parts, whole - sum(of_parts)))
                row = f"{whole:.1f} | {whole / imports:.1f} | {programs} | {numbers}"
                yield f"| {name} | {kept} | {row} |"


def timed(command: list[str], **options) -> tuple[float, int]:
    """Seconds that a process takes, and its exit code."""
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, cwd=ROOT, **options)
    return time.perf_counter() - started, done.returncode


def measured(words: list[str], folder: Path, kept: str) -> tuple[float, int, list[float]] | None:
    """Seconds of a command, programs compiled, and seconds of JAX; None where it is refused."""
    report = folder / f"{kept}.json"
    environment = os.environ | {"ATTENTION_POSTERIOR_CACHE": str(folder / "programs")}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [sys.executable, "-m", "tests.benchmarks.latency", str(report), *words]
    whole, code = timed([*command, "--out", str(folder / kept)], env=environment)
    return (whole, *json.loads(report.read_text())) if code in (0, 3) else None


def watch_jax(words: list[str], report: Path) -> int:
    """Run a command, and report the programs and the seconds of JAX, each counted once."""
    import jax.monitoring

    from sampler.cli import main

    seconds, programs, spans = dict.fromkeys(OF_JAX.values(), 0.0), 0, []

    def note(event: str, lasted: float, **_: object) -> None:
        nonlocal programs
        part = OF_JAX.get(event.rpartition("/")[2])
        if part is None:
            return
        programs += part == "compile"
        now = time.perf_counter()
        # What was reported inside of this is over.
        inner = [span for span in spans if span[0] >= now - lasted]
        seconds[part] += lasted - sum(end - begin for begin, end in inner)
        spans[:] = [*(span for span in spans if span not in inner), (now - lasted, now)]

    jax.monitoring.register_event_duration_secs_listener(note)
    code = main(words)
    report.write_text(json.dumps([programs, list(seconds.values())]))
    return code


if __name__ == "__main__":
    from sampler.runtime import use_one_blas_thread

    use_one_blas_thread()  # as the command does, before it imports JAX
    sys.exit(watch_jax(sys.argv[2:], Path(sys.argv[1])))
