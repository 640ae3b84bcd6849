"""`python -m tests.benchmarks [samplers] [latency]`: print tables of timings."""

import argparse
import os
import platform

# One thread of BLAS for each process, as the program has it: before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import numpyro

from tests.benchmarks.latency import measure_latency
from tests.benchmarks.own_samplers import measure_own_samplers

BENCHMARKS = {"samplers": measure_own_samplers, "latency": measure_latency}


def main() -> None:
    """Run the benchmarks that are asked for, by default all."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    names = parser.parse_args().names
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"{', '.join(sorted(unknown))}: use {', '.join(BENCHMARKS)}")
    devices = ", ".join(device.device_kind for device in jax.devices())
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; devices: "
        f"{devices}; Python {platform.python_version()}, jax {jax.__version__}, "
        f"numpyro {numpyro.__version__}",
        flush=True,
    )
    for name in names or BENCHMARKS:
        print(f"\n{name}\n", flush=True)
        for line in BENCHMARKS[name]():
            print(line, flush=True)


if __name__ == "__main__":
    main()
