"""`python -m tests.benchmarks`: print every table; nothing is asserted."""

import argparse
import os
import platform

# Chains share the cores, so one gradient gets one thread: the figure that matters when several
# chains run, and one that other work on the machine disturbs least. Read when JAX starts.
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()

import jax  # noqa: E402
import numpyro  # noqa: E402

from tests.benchmarks.competitors import COMPETITORS  # noqa: E402
from tests.benchmarks.effective_draws import (  # noqa: E402
    effective_draws_table,
    measure_effective_draws,
)
from tests.benchmarks.gradient_cost import (  # noqa: E402
    gradient_table,
    largest_disagreement,
    measure_gradients,
)


def main() -> None:
    """Run the benchmarks that are asked for, all by default."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--widths", type=int, nargs="+", default=[10, 100, 300], metavar="N")
    parser.add_argument("--repetitions", type=int, default=7, help="of every timing")
    parser.add_argument(
        "--only", choices=["gradients", "draws"], help="one benchmark; default: both"
    )
    arguments = parser.parse_args()
    devices = ", ".join(device.device_kind for device in jax.devices())
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; devices: "
        f"{devices}; Python {platform.python_version()}, jax {jax.__version__}, "
        f"numpyro {numpyro.__version__}"
    )
    for width in arguments.widths:
        print(
            f"N = {width}: log posteriors differ by {largest_disagreement(width):.1e} (relative)",
            flush=True,
        )
    if arguments.only != "draws":
        costs = []
        for precision in ("float64", "float32"):
            costs += measure_gradients(arguments.widths, precision, arguments.repetitions)
        print(f"\n{gradient_table(costs)}\n", flush=True)
    if arguments.only != "gradients":
        found = []
        for competitor in COMPETITORS:
            found.append(measure_effective_draws(competitor, 10, "float32"))
            print(f"sampled: {found[-1]}", flush=True)
        print(f"\n{effective_draws_table(found)}")


if __name__ == "__main__":
    main()
