"""Seconds from a command to its last line, by what they go to, with and without kept programs.

Each command runs in a process of its own, first with an empty cache of compiled programs, then with
what the first one left there. Time is divided by what is on the stack: imports, planning, JAX's
tracing, lowering and compiling, drawing, writing, and the rest, which is computing.
"""

import builtins
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
PARTS = ("import", "plan", "trace", "lower", "compile", "draw", "write", "compute")
OF_JAX = {
    "jaxpr_trace_duration": "trace",
    "jaxpr_to_mlir_module_duration": "lower",
    "backend_compile_duration": "compile",
}
LIBRARIES = "import jax, numpyro, xarray, matplotlib.pyplot"


def measure_latency() -> Iterator[str]:
    """A row for each command and state of the cache; ratios are to the import of the libraries."""
    yield "| command | programs kept | seconds | ratio | programs | " + " | ".join(PARTS) + " |"
    yield "|---" * (5 + len(PARTS)) + "|"
    for name, words in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            for kept in ("none", "all"):
                imports = seconds_of([sys.executable, "-c", LIBRARIES])
                found = measured(words, Path(folder), kept)
                if found is None:
                    yield f"| {name} | {kept} | the command was refused |"
                    break
                parts = " | ".join(f"{found[part]:.1f}" for part in PARTS)
                whole = found["whole"]
                yield (
                    f"| {name} | {kept} | {whole:.1f} | {whole / imports:.1f} | "
                    f"{found['programs']} | {parts} |"
                )


def seconds_of(command: list[str]) -> float:
    """Seconds that a process takes."""
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - started


def measured(words: list[str], folder: Path, kept: str) -> dict | None:
    """Parts of the time of a command, in seconds; None where it is refused."""
    report = folder / f"{kept}.json"
    environment = os.environ | {"ATTENTION_POSTERIOR_CACHE": str(folder / "programs")}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [sys.executable, "-m", "tests.benchmarks.latency", str(report), *words]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--out", str(folder / kept)], cwd=ROOT, env=environment, capture_output=True
    )
    whole = time.perf_counter() - started
    if done.returncode not in (0, 3):
        return None
    found = json.loads(report.read_text())
    rest = whole - sum(found[part] for part in PARTS if part != "compute")
    return found | {"whole": whole, "compute": rest}


class Watch:
    """Seconds by part: what runs inside of another part counts for the inner one alone."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.programs = 0
        self._inner = [0.0]
        self._reported: list[tuple[float, float]] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            whole, inner = time.perf_counter() - started, self._inner.pop()
            self.seconds[name] += whole - inner
            self._inner[-1] += whole

    def wrap(self, owner: object, name: str, part: str) -> None:
        """Count a function of a module or class for a part."""
        function = getattr(owner, name)

        def counted(*arguments, **keywords):
            with self.part(part):
                return function(*arguments, **keywords)

        setattr(owner, name, counted)

    def of_jax(self, event: str, seconds: float, **_: object) -> None:
        """Count what JAX reports when it ends, less what it has reported inside of that."""
        part = OF_JAX.get(event.rpartition("/")[2])
        if part is None:
            return
        self.programs += part == "compile"
        now = time.perf_counter()
        start = now - seconds
        spent = seconds - sum(end - begin for begin, end in self._reported if begin >= start)
        outside = [pair for pair in self._reported if pair[0] < start]
        self._reported = [*outside, (start, now)]
        self.seconds[part] += spent
        self._inner[-1] += spent


def watched(watch: Watch, main: Callable[[list[str]], int], words: list[str]) -> int:
    """Run a command with its parts counted."""
    watch.wrap(builtins, "__import__", "import")
    import jax.monitoring

    from sampler.jobs import plan
    from sampler.presentation.figures import draw
    from sampler.storage import files

    jax.monitoring.register_event_duration_secs_listener(watch.of_jax)
    watch.wrap(plan, "make_plan", "plan")
    watch.wrap(files, "write_atomically", "write")
    watch.wrap(draw, "draw_figures", "draw")
    return main(words)


if __name__ == "__main__":
    from sampler.cli import main
    from sampler.runtime import use_one_blas_thread

    use_one_blas_thread()  # as the command does, before it imports JAX
    watch = Watch()
    code = watched(watch, main, sys.argv[2:])
    Path(sys.argv[1]).write_text(json.dumps(watch.seconds | {"programs": watch.programs}))
    sys.exit(code)
