"""Images in zip files, read with an error that names the file and the image."""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from sampler.errors import ABSENT, InputError, Verbatim

UNREADABLE = (
    OSError, EOFError, ValueError, SyntaxError, NotImplementedError, RuntimeError, struct.error,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file. Raises InputError where there is none, or where it is cut short."""
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise InputError(path.name, str(path.parent), f"{reason}; fetch this file again") from None
    with archive:
        yield archive


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of a member. Raises InputError if it does not have the checksum stored for it."""
    try:
        return archive.read(name)
    except KeyError:
        raise missing(archive, name) from None
    except UNREADABLE as problem:
        raise unusable(archive, name, problem) from None


def read_ink(archive: zipfile.ZipFile, name: str, side: int) -> Bool[np.ndarray, "row column"]:
    """Where a black-and-white image of side × side pixels has ink, which is black there.

    Raises InputError for an image that cannot be decoded, or of another size.
    """
    from PIL import Image  # only here: other tasks need no images

    content = read_member(archive, name)
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.size != (side, side):
                width, height = image.size
                raise InputError(
                    member(archive, name),
                    f"{width} × {height} pixels",
                    f"must have {side} × {side}; fetch the file again",
                )
            return np.asarray(image.convert("L")) < 128
    except (*UNREADABLE, Image.DecompressionBombError) as problem:
        raise unusable(archive, name, problem) from None


def member(archive: zipfile.ZipFile, name: str) -> str:
    """An image and the file it is in, for errors."""
    return f"{Path(str(archive.filename)).name}/{name}"


def missing(archive: zipfile.ZipFile, name: str) -> InputError:
    return InputError(member(archive, name), ABSENT, "fetch the file again")


def unusable(archive: zipfile.ZipFile, name: str, problem: Exception) -> InputError:
    return InputError(
        member(archive, name), Verbatim("(unreadable)"), f"{problem}; fetch the file again"
    )
