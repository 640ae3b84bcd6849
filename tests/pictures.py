"""Small made-up drawings and zip files in Omniglot's layout."""

import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from sampler.data.image_files import Drawings


def random_drawings(rng, *, characters: int = 6, drawings: int = 4) -> Drawings:
    """Each character a random picture, each drawing of it the picture with noise."""
    pictures = rng.random((characters, 1, 32, 32)) < 0.2
    noise = rng.random((characters, drawings, 32, 32)) < 0.05
    images = (pictures ^ noise).reshape(-1, 32, 32).astype(np.float32)
    names = tuple(f"letters/{c:02d}" for c in range(characters))
    return Drawings(images, names, np.full(characters, drawings))


def write_labelled(path: Path, rng, *, characters: int = 8, drawings: int = 5) -> Path:
    """An .npz file of such drawings."""
    made = random_drawings(rng, characters=characters, drawings=drawings)
    labels = np.repeat(np.arange(characters), drawings)
    np.savez(path, images=made.images, labels=labels)
    return path


def png(ink: np.ndarray) -> bytes:
    """A black-and-white image, black where there is ink."""
    file = io.BytesIO()
    Image.fromarray(np.where(ink, 0, 255).astype(np.uint8)).convert("1").save(file, "PNG")
    return file.getvalue()


def ink_of(name: str, side: int = 105) -> np.ndarray:
    """Ink that the name of a drawing decides."""
    return np.random.default_rng(list(name.encode())).random((side, side)) < 0.1


def write_omniglot(path: Path, alphabets: dict[str, int], *, drawings: int = 3, **members) -> Path:
    """An archive of so many characters of each alphabet; `members` take the place of content."""
    with zipfile.ZipFile(path, "w") as archive:
        for alphabet, characters in alphabets.items():
            for character in range(1, characters + 1):
                for drawing in range(1, drawings + 1):
                    name = f"{alphabet}/character{character:02d}/{character:04d}_{drawing:02d}.png"
                    content = members.get(name, png(ink_of(name)))
                    archive.writestr(f"{path.stem}/{name}", content)
    return path
