"""The task: inputs, labels and the attention matrices that they fix; heads that a recipe chooses.

A task may have attended inputs instead of inputs and attention matrices: networks of the theory
depend on these alone.

Heads are called by the names that the recipe gives them, their kinds, or by their number in the
layer, from 0: "0", "1", … A path is called by its heads, from the first layer to the last, as in
"good·uniform" or "0·1", unless the task has a name for it.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from sampler.attention.layers import paired
from sampler.attention.learned import LearnedHeads
from sampler.data.checks import check_agreement, check_examples, data_doubts, largest_attended
from sampler.data.examples import AnyExamples
from sampler.errors import InputError, Verbatim

if TYPE_CHECKING:
    from sampler.transformer.trained_transformer import TrainedValues

# U_1 of so many paths has 134 MB and 8 million free entries: no search ends with more.
MOST_PATHS = 4096
HEADS = "network.heads"
# Names of paths, by the names of their heads.
PathNames = Mapping[tuple[str, ...], str]
HeadNames = tuple[tuple[str, ...], ...]
NO_NAMES: PathNames = {}


def name_paths(head_names: Sequence[Sequence[str]], named: PathNames = NO_NAMES) -> tuple[str, ...]:
    """Name all paths in flat order: by a name of their own, or by the heads on the path.

    None of them is named where there are more than a theory can have.
    """
    if math.prod(map(len, head_names)) > MOST_PATHS:
        return ()
    return tuple(named.get(path, "·".join(path)) for path in product(*head_names))


def refuse_too_many_paths(heads: Sequence[int]) -> None:
    """Raise InputError where the heads of each layer make more paths than a theory can have."""
    paths = math.prod(heads)
    if paths > MOST_PATHS:
        received = Verbatim(f"({paths:,} paths of {len(heads)} layers)")
        remedy = f"order parameters of {MOST_PATHS:,} paths at most can be held; keep fewer heads "
        remedy += "of each layer, or export a window of layers, as in layers = (3, 4)"
        raise InputError(HEADS, received, remedy)


@dataclass(frozen=True)
class Teacher:
    """The network that labels were drawn from, without their noise.

    order_parameters  U_1 … U_L, U_a of its weights; none of a network outside the theory
    outputs           f(x) of every split [example, output]
    temperature       variance of the noise
    variances         prior variances of its weights, σ_0² … σ_a²
    attention         where heads are learned, Ω of each layer of the training examples that
                      attention is measured on
    """

    order_parameters: tuple[Float[np.ndarray, "_row _row"], ...]
    outputs: Mapping[str, Float[np.ndarray, "_example output"]]
    temperature: float
    variances: tuple[float, ...]
    attention: tuple[Float[np.ndarray, "example _head key query"], ...] = ()


@dataclass(frozen=True)
class Task:
    """Training and test data with the attention matrices that the inputs fix.

    All splits have inputs and attention matrices, or all have attended inputs. `Task.of` makes and
    checks a task; tasks that follow from it are not checked again.

    attention_names    a tuple of names of heads for each layer of attention
    validation         examples on which settings are chosen, with labels
    named_paths        names of paths, where they have other ones than by their heads
    trained            the network that the attention comes from
    hypernetworks      whether each layer of attention serves two layers of value weights
    teacher            the network that labels are drawn from
    learned            heads that are sampled; their matrices in the splits are those of one draw of
                       their prior, which is the teacher's: otherwise only sizes are read off them
    layer_numbers      those of the layers in the model that they are a part of
    origin             where data come from, line by line
    """

    train: AnyExamples
    test: AnyExamples
    attention_names: HeadNames
    validation: AnyExamples | None = None
    named_paths: PathNames = field(default_factory=dict)
    trained: "TrainedValues | None" = None
    hypernetworks: tuple[bool, ...] | None = None
    teacher: Teacher | None = None
    learned: LearnedHeads | None = None
    layer_numbers: tuple[int, ...] | None = None
    origin: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        train: AnyExamples,
        test: AnyExamples,
        validation: AnyExamples | None = None,
        names: Sequence[Sequence[str]] | None = None,
        **others: Any,
    ) -> "Task":
        """The task of these splits; InputError, naming the array, if anything does not fit.

        names   of the heads of each layer; by default their numbers
        others  further fields
        """
        check_examples(train, "train")
        for name, split in (("test", test), ("validation", validation)):
            if split is not None:
                check_examples(split, name)
                check_agreement(train, split, name)
        named = [map(str, range(count)) for count in train.heads] if names is None else names
        return cls(train, test, tuple(map(tuple, named)), validation, **others)

    @property
    def pairs(self) -> tuple[bool, ...]:
        """Whether each layer of attention serves two layers of weights."""
        return self.hypernetworks or (False,) * len(self.train.heads)

    @property
    def layers(self) -> int:
        """The number of layers of value weights."""
        return len(self.heads)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the layers of value weights, as in tables: 1 … L by default."""
        if self.layer_numbers is None or any(self.pairs):
            return tuple(range(1, self.layers + 1))
        return self.layer_numbers

    @property
    def heads(self) -> tuple[int, ...]:
        """The number of heads of each layer of value weights."""
        return paired(self.train.heads, self.pairs)

    @property
    def head_names(self) -> HeadNames:
        """Names of the heads of each layer of value weights."""
        return paired(self.attention_names, self.pairs)

    @cached_property
    def path_names(self) -> tuple[str, ...]:
        """Names of the paths, the head of layer 1 varying slowest; none where they are too many.

        In a hypernetwork the heads h' of values and h of outputs are one step of a path, h'∘h.
        """
        if math.prod(self.heads) > MOST_PATHS:
            return ()
        steps = [
            [f"{value}∘{output}" for value, output in product(names, names)] if is_pair else names
            for names, is_pair in zip(self.attention_names, self.pairs, strict=True)
        ]
        return name_paths(steps, self.named_paths)

    @property
    def outputs(self) -> int:
        return self.train.labels.shape[1]

    @property
    def channels(self) -> int:
        return self.train.channels

    @property
    def named_splits(self) -> dict[str, AnyExamples]:
        """Training, test and, where there is one, validation split, by name."""
        named = {"train": self.train, "test": self.test, "validation": self.validation}
        return {name: split for name, split in named.items() if split is not None}

    @property
    def splits(self) -> tuple[AnyExamples, ...]:
        """Training, test and, where there is one, validation split."""
        return tuple(self.named_splits.values())

    @cached_property
    def concerns(self) -> tuple[str, ...]:
        """Warnings about suspicious data: attention that looks transposed, classes that are not ±1.

        Of examples that are not held the first ones are looked at.
        """
        first = {name: split.first_block for name, split in self.named_splits.items()}
        return data_doubts(first, self.train.labels)

    @cached_property
    def largest(self) -> dict[str, float]:
        """Bounds of attended inputs, by split.

        Of examples that are not held the first ones are looked at.
        """
        return {
            name: largest_attended(split.first_block) for name, split in self.named_splits.items()
        }

    @property
    def checksum(self) -> str:
        checksum = hashlib.sha256()
        for split in self.splits:
            split.add_to(checksum)
        return checksum.hexdigest()

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Checksum and sums, which tell data apart; other processors round other last digits."""
        return {"sha256": self.checksum, "sums": [split.sums for split in self.splits]}
