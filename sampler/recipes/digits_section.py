"""The section of the task of handwritten digits."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from sampler.recipes.sections import HeadKind, Seed, TaskSettings, ValidationCount

DIGIT_HEADS: tuple[HeadKind, ...] = ("similar", "near", "uniform", "random")
# Of scikit-learn's handwritten digits.
DRAWINGS = 1797
Digit = Annotated[int, Field(strict=True, ge=0, le=9)]


class DigitsSection(TaskSettings):
    """Handwritten digits of 8 × 8 pixels, which come with scikit-learn; one output per class.

    Every token is a square patch of `patch` × `patch` pixels. Labels are 1 for the class and 0 for
    the others, less their mean 1/classes. The splits are disjoint and drawn by `seed`, classes as
    often as they come among the 1,797 drawings.
    """

    head_kinds: ClassVar = DIGIT_HEADS

    kind: Literal["digits"]
    classes: Annotated[tuple[Digit, ...], Field(min_length=2)] = tuple(range(10))
    examples_train: Annotated[int, Field(strict=True, ge=2, lt=DRAWINGS)] = 100
    examples_test: Annotated[int, Field(strict=True, ge=2, lt=DRAWINGS)] = 700
    examples_validation: ValidationCount = 0
    patch: Literal[1, 2, 4] = 2
    seed: Seed = 0
    head_seed: Seed = 0

    @field_validator("classes")
    @classmethod
    def are_different(cls, classes):
        if len(set(classes)) != len(classes):
            raise ValueError("name every class once")
        return classes
