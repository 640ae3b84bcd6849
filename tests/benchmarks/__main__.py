"""`python -m tests.benchmarks [NAME …]`: print tables of timings; nothing is asserted."""

import argparse
import os
import platform
import sys
from pathlib import Path

NAMES = (
    "gradients",
    "floor",
    "theory",
    "pooling",
    "variants",
    "scale",
    "paths",
    "heads",
    "importance",
    "outsiders",
    "examples",
    "gallery",
    "latency",
    "samplers",
)
# Batches of importance draws and large matrices use all cores, and so may outsiders. Elsewhere one
# gradient gets one thread: the figure that matters when several chains run, and one that other work
# on the machine disturbs least. Both are read when JAX and NumPy start.
ALL_CORES = ("importance", "paths", "heads", "scale", "outsiders", "gallery", "latency",
             "samplers")  # fmt: skip
if sys.argv[1:2] not in [[name] for name in ALL_CORES]:
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax  # noqa: E402
import numpyro  # noqa: E402

from tests.benchmarks.exported_heads import measure_exported_heads  # noqa: E402
from tests.benchmarks.gallery import measure_gallery  # noqa: E402
from tests.benchmarks.gradient_cost import (  # noqa: E402
    gradient_table,
    largest_disagreement,
    measure_gradients,
)
from tests.benchmarks.gradient_floor import measure_floor  # noqa: E402
from tests.benchmarks.importance_rate import measure_importance  # noqa: E402
from tests.benchmarks.latency import measure_latency  # noqa: E402
from tests.benchmarks.many_examples import measure_many_examples  # noqa: E402
from tests.benchmarks.many_paths import measure_many_paths  # noqa: E402
from tests.benchmarks.outsiders import measure_outsiders  # noqa: E402
from tests.benchmarks.own_samplers import measure_own_samplers  # noqa: E402
from tests.benchmarks.pooled_attention import measure_pooling  # noqa: E402
from tests.benchmarks.scale import measure_scale  # noqa: E402
from tests.benchmarks.theory_solve import measure_theory  # noqa: E402
from tests.benchmarks.variant_operations import measure_variants  # noqa: E402

PRECISIONS = ("float64", "float32")


def main() -> None:
    """Run the benchmarks that are asked for, all but the last nine by default."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--widths", type=int, nargs="+", metavar="N")
    parser.add_argument("--repetitions", type=int, default=7, help="of every timing")
    parser.add_argument("--minutes", type=float, default=15.0, help="of each competitor")
    parser.add_argument("--precision", default="float32", help="of outsiders", choices=PRECISIONS)
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="of the recipe outsiders meet"
    )
    parser.add_argument("--recipes", nargs="+", default=[], metavar="NAME", help="of the gallery")
    parser.add_argument("--out", type=Path, help="where the runs of the gallery are kept")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"{', '.join(sorted(unknown))}: use {', '.join(NAMES)}")
    devices = ", ".join(device.device_kind for device in jax.devices())
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; devices: "
        f"{devices}; Python {platform.python_version()}, jax {jax.__version__}, "
        f"numpyro {numpyro.__version__}",
        flush=True,
    )
    for name in arguments.names or NAMES[:-9]:
        print(f"\n{name}\n", flush=True)
        for line in BENCHMARKS[name](arguments):
            print(line, flush=True)


def gradients(arguments):
    widths = arguments.widths or [10, 100, 300]
    for width in widths:
        yield f"N = {width}: log posteriors differ by {largest_disagreement(width):.1e} (relative)"
    costs = []
    for precision in PRECISIONS:
        costs += measure_gradients(widths, precision, arguments.repetitions)
    yield "\n" + gradient_table(costs)


def outsiders(arguments):
    widths = arguments.widths or [10, 100, 1000]
    return measure_outsiders(widths, 60 * arguments.minutes, arguments.precision, arguments.set)


BENCHMARKS = {
    "gradients": gradients,
    "floor": lambda arguments: [measure_floor(arguments.repetitions)],
    "theory": lambda arguments: [measure_theory(arguments.repetitions)],
    "pooling": lambda arguments: measure_pooling(arguments.repetitions),
    "variants": lambda arguments: measure_variants(arguments.repetitions),
    "scale": lambda arguments: measure_scale(arguments.repetitions),
    "paths": lambda _: measure_many_paths(),
    "heads": lambda _: measure_exported_heads(),
    "importance": lambda arguments: [
        measure_importance([10, 100, 1000, 10_000], arguments.repetitions)
    ],
    "outsiders": outsiders,
    "examples": lambda arguments: measure_many_examples(arguments.repetitions),
    "gallery": lambda arguments: measure_gallery(arguments.recipes, arguments.out),
    "latency": lambda _: measure_latency(),
    "samplers": lambda _: measure_own_samplers(),
}


if __name__ == "__main__":
    main()
