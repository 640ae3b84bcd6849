"""What `pyproject.toml` cannot say of the build: recipes of `runs/` are files of the wheel."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# Recipes, their arrays, the trained network that one of them reads, and reference posteriors.
REFERENCES = ("toml", "npz", "json")
SHIPPED = (
    *("*.toml", "*.npz", "trained/A/*", "references/density.py"),
    *(f"references/*.{suffix}" for suffix in REFERENCES),
)


class BuildWithGallery(build_py):
    """Copy recipes to `sampler/gallery` of the wheel; an editable installation reads `runs/`."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        recipes = Path("runs")
        for path in (path for pattern in SHIPPED for path in recipes.glob(pattern)):
            copy = Path(self.build_lib, "sampler", "gallery", path.relative_to(recipes))
            self.mkpath(str(copy.parent))
            self.copy_file(str(path), str(copy))


setup(cmdclass={"build_py": BuildWithGallery})
