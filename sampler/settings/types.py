"""Types of settings: numbers, texts and paths with limits, and marks of further properties."""

import os
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, Field
from pydantic_core import core_schema

# Left to the sizes of the problem: `sampler.jobs.method`.
AUTO = "auto"
# The value of widths at which order parameters are known.
INFINITE = "infinite"
# Endings of files of images: NumPy's, and those of MNIST, IDX.
IMAGE_FILES = (".npz", "-ubyte", "-ubyte.gz")


# What relative paths start from: while a recipe is read from a file its folder, else where we are.
FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)


class Mark(Enum):
    """Properties of a setting besides type, limits, default and meaning."""

    CHANGES_NO_DRAW = "may differ between a run and its continuation"
    CAN_BE_RAISED = "ends a run that continues when it is raised; not in the hash"


@dataclass(frozen=True)
class RelativePath:
    """A mark of settings that name files or folders, relative to the recipe.

    A path gives the place of data; a checksum identifies them.

    suffixes  endings of file names; a text that ends otherwise is no path
    """

    suffixes: tuple[str, ...] = ("",)

    def is_path(self, value: Any) -> bool:
        """Return whether a value of such a setting names a file or a folder."""
        is_text = isinstance(value, str) and bool(value) and "\0" not in value
        return is_text and value.endswith(self.suffixes)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The checked path is absolute."""
        return core_schema.no_info_after_validator_function(self.absolute, handler(source))

    def absolute(self, value: Any) -> Any:
        """Return the value, absolute where it is a path; ~ is a home."""
        if not self.is_path(value) or os.path.isabs(value):
            return value
        folder = FOLDER.get() or Path.cwd()
        return str((folder / os.path.expanduser(value)).resolve())

    def relative(self, value: Any, folder: Path) -> Any:
        """Return the value, relative to a folder where it is a path.

        One that has nothing in common with the folder stays as it is.
        """
        if not self.is_path(value):
            return value
        base = folder.resolve()
        shared = Path(os.path.commonpath([value, base])) if os.path.isabs(value) else None
        return value if shared in (None, Path(base.anchor)) else os.path.relpath(value, base)

    def name(self, value: Any) -> Any:
        """Return the value, the last part of it where it is a path."""
        return Path(value).name if self.is_path(value) else value


def marks_of(annotation: Any, metadata: Iterable[Any] = ()) -> Iterator[Any]:
    """Yield the metadata that `Annotated` adds to a type, or to a member of a union."""
    yield from metadata
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from marks_of(inner[0], inner[1:])
    elif origin is not Literal:
        for member in inner:
            yield from marks_of(member)


# --- limits that no type of pydantic has; the reference shows the first lines of their docstrings


def without_null(text: str) -> str:
    """Accept text without a null character, which no name of a file has."""
    if "\0" in text:
        raise ValueError("must not hold a null character")
    return text


def none_or_several(examples: int) -> int:
    """Accept any number of examples but one."""
    if examples == 1:
        raise ValueError("use at least 2 examples, or 0 for no validation split")
    return examples


def different_heads(kept: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Accept the heads to keep if each layer keeps some, none of them twice."""
    if not kept or any(not heads or len(set(heads)) != len(heads) for heads in kept):
        raise ValueError("list the heads kept in each layer, none twice, as in [[0, 1], [0]]")
    return kept


# --- `strict` refuses true and false, and text, where a number is meant

Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Text = Annotated[str, Field(strict=True, min_length=1), AfterValidator(without_null)]
Switch = Annotated[bool, Field(strict=True)]

Count = Annotated[int, Field(strict=True, ge=1)]
Width = Annotated[int, Field(strict=True, ge=1, le=10**9)]
CountFromZero = Annotated[int, Field(strict=True, ge=0)]
Several = Annotated[int, Field(strict=True, ge=2)]
Even = Annotated[int, Field(strict=True, ge=2, multiple_of=2)]
Repetitions = Annotated[int, Field(strict=True, ge=4)]
ValidationCount = Annotated[CountFromZero, AfterValidator(none_or_several)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]

Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(strict=True, ge=0, le=1)]
Fraction = Annotated[float, Field(strict=True, gt=0, lt=1)]

FilePath = Annotated[Text, RelativePath()]
ImagesOrName = Annotated[Text, RelativePath(IMAGE_FILES)]
HeadNumbers = Annotated[tuple[tuple[CountFromZero, ...], ...], AfterValidator(different_heads)]
LayerWidths = Width | Annotated[tuple[Width, ...], Field(min_length=1)]
WidthsOrInfinite = LayerWidths | Literal["infinite"]
Variances = Positive | Annotated[tuple[Positive, ...], Field(min_length=1)]
