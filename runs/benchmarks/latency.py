"""Seconds from a command to its last line, with and without kept programs.

    python -m runs.benchmarks.latency

Each command runs in a process of its own, first with an empty cache of compiled programs, then with
what the first one left there. JAX says what it takes to trace, lower and compile; the rest is
imports, drawing, writing and computing.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
    yield (
        f"| command | programs kept | seconds | ratio | processor seconds | programs "
        f"| {' | '.join(parts)} | rest |"
    )
    yield "|---" * (7 + len(parts)) + "|"
    for name, words in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            for kept in ("none", "all"):
                _, imports, _ = timed([sys.executable, "-c", LIBRARIES], check=True)
                found = measured(words, Path(folder), kept)
                if found is None:
                    yield f"| {name} | {kept} | the command was refused |"
                    break
                whole, processor, programs, of_parts = found
                numbers = " | ".join(f"{part:.1f}" for part in (*of_parts, whole - sum(of_parts)))
                row = f"{whole:.1f} | {whole / imports:.1f} | {processor:.1f} | {programs}"
                yield f"| {name} | {kept} | {row} | {numbers} |"


def timed(command: list[str], **options) -> tuple[subprocess.CompletedProcess, float, float]:
    """A process that has ended, and the seconds it took, of a clock and of the processor."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, cwd=ROOT, **options)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done, seconds, processor


def measured(
    words: list[str], folder: Path, kept: str
) -> tuple[float, float, int, list[float]] | None:
    """Seconds of a command, programs compiled, and seconds of JAX; None where it is refused."""
    report = folder / f"{kept}.json"
    environment = os.environ | {"ATTENTION_POSTERIOR_CACHE": str(folder / "programs")}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [sys.executable, "-m", "runs.benchmarks.latency", str(report), *words]
    done, *seconds = timed([*command, "--out", str(folder / kept)], env=environment)
    if done.returncode not in (0, 3):
        return None
    return *seconds, *json.loads(report.read_text())


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


def main() -> int:
    """Print the table; with words, run the command that they are and report on JAX."""
    if len(sys.argv) == 1:
        for line in measure_latency():
            print(line, flush=True)
        return 0
    from sampler.runtime import use_one_blas_thread

    use_one_blas_thread()  # as the command does, before it imports JAX
    return watch_jax(sys.argv[2:], Path(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
