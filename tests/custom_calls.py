"""`python -m tests.custom_calls`: the custom calls that JAX's package for CUDA has kernels for.

They are read from the registrations in its compiled modules, which need no GPU to be imported, and
written to `tests/fixtures/cuda_custom_calls.json`.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path

from tests import FIXTURES

FILE = FIXTURES / "cuda_custom_calls.json"
PACKAGE = "jax-cuda12-plugin"
READ = """
import importlib, json, pkgutil, sys
import jax_cuda12_plugin as package
names = []
for one in pkgutil.iter_modules(package.__path__):
    try:
        module = importlib.import_module(f"{package.__name__}.{one.name}")
    except ImportError:
        continue
    names += getattr(module, "registrations", dict)()
print(json.dumps(sorted(names)))
"""


def registered(release: str) -> list[str]:
    """Names that the package of this release registers.

    Raises CalledProcessError where it is not to be had.
    """
    with tempfile.TemporaryDirectory() as folder:
        words = ["download", "--quiet", "--no-deps", "--dest", folder, f"{PACKAGE}=={release}"]
        subprocess.run([sys.executable, "-m", "pip", *words], check=True, capture_output=True)
        (wheel,) = Path(folder).glob("*.whl")
        zipfile.ZipFile(wheel).extractall(folder)
        found = subprocess.run(
            [sys.executable, "-c", READ], cwd=folder, check=True, capture_output=True, text=True
        )
    return json.loads(found.stdout.splitlines()[-1])


def main() -> None:
    """Write the list for the release of jaxlib that is installed."""
    release = version("jaxlib")
    listed = {"package": PACKAGE, "release": release, "names": registered(release)}
    FILE.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
