"""The sections [task] and [attention] of a recipe, and the table of tasks."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_serializer

from sampler.attention.layers import read_variants
from sampler.errors import ABSENT, InputError
from sampler.registry import Registry, load_plugins
from sampler.settings.section import TASK, Section
from sampler.settings.types import (
    Count,
    NotNegative,
    Positive,
    Seed,
    Text,
)

# The kind of heads whose attention is sampled.
LEARNED, UNIFORM = "learned", "uniform"
# The sets of examples.
SPLITS = ("train", "test", "validation")
# Inputs of the logits of learned heads.
INPUTS, STREAM = "inputs", "stream"


class LearnedAttention(Section):
    """The prior of the logit weights of learned heads.

    Without a form it is the distribution of random heads of the task; "full" for
    data that come with heads of their own.
    """

    table: ClassVar = "attention.learned"

    form: Literal["full", "low_rank", "positions"] | None = None
    """Logits x_sᵀ W x_t of key s and query t with W "full", W = W_Kᵀ W_Q/√G of "low_rank", or
    logits that depend on the "positions" of keys alone; by default as in random heads."""
    rank: Count | None = None
    """G, the rows of W_Q and W_K; by default the number of channels D."""
    variance: Positive = 1.0
    """Prior variance: times 1/D that of the entries of W_Q and W_K, its square times 1/D² that of
    the entries of a full W, and itself that of the logit of a position."""


class Attention(Section):
    """The heads of a task that leaves their choice to the recipe."""

    table: ClassVar = "attention"

    heads: Annotated[
        tuple[Annotated[tuple[Text, ...], Field(min_length=1)], ...], Field(min_length=1)
    ] = ()
    """The kinds of the heads of each layer; by default those of the task."""
    inverse_temperature: NotNegative = 10.0
    """β, which multiplies the logits."""
    lag: Count | None = None
    """Number of time steps that lag heads look back."""
    form: Annotated[Any, BeforeValidator(read_variants)] = None
    """The attention variant, which makes the matrix of a head from its queries and keys; softmax
    over keys by default. A table for all heads, or a list with a table, or a list of tables, one
    per head, for each layer. Where logits are x_sᵀ W x_t, keys are x_s and queries √D W x_t."""
    learned: LearnedAttention | None = None
    """The prior of learned heads, whose logit weights are sampled: a table with `form`, `rank` and
    `variance`; by default the distribution of random heads."""
    reads: Literal["inputs", "stream"] = "inputs"
    """Inputs of the logits of learned heads: the inputs of the network in all layers, or
    "stream", the hidden vectors z/√N below the layer, normalised where `network.norm` = "before".
    A network that reads its stream is outside the theory, and only sampled; its logits have the
    form "low_rank" by default, with `attention.learned.variance` as scale."""

    @property
    def has_learned(self) -> bool:
        """Whether some heads are learned."""
        return any(kind == LEARNED for kinds in self.heads for kind in kinds)


class DataSettings(Section):
    """Settings of data, of one of several kinds."""

    table: ClassVar = TASK

    kind: str
    """The kind of data."""

    @model_serializer(mode="wrap")
    def with_kind(self, handler: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        """Keep `kind`, which identifies the kind of data, where defaults are left out."""
        return {"kind": self.kind, **handler(self)}

    def kept_in(self, directory: Path) -> "TaskSettings":
        """The same data; arrays in memory are then a file in the directory of the results."""
        return self

    @property
    def unwritten(self) -> str | None:
        """Path of the file of data in memory, where no directory keeps it yet."""
        return None

    def keep(self, directory: Path) -> None:
        """Write that file, if it belongs into this directory and is not there yet."""

    @classmethod
    def section_for(cls, settings: Mapping[str, Any]) -> type["DataSettings"]:
        """The class of these settings: this one, unless the kind has several sources of data."""
        return cls


class TaskSettings(DataSettings):
    """Settings of a task, from which it makes its data.

    head_kinds          the heads to choose from, where the task leaves the choice to the recipe
    attention_defaults  settings of such a task in [attention], `heads` among it
    network_defaults    settings of the task in [network]
    brings_heads        whether the data come with heads, for which [attention] may choose others
    """

    labels: Literal["task", "teacher"] = "task"
    """Labels of the data, or of a "teacher": the network itself with all weights from
    their priors, the same for all splits, with noise of variance `posterior.temperature`."""
    teacher_seed: Seed = 0
    """Seed of the teacher and of the noise of its labels."""

    brings_heads: ClassVar[bool] = False
    head_kinds: ClassVar[tuple[str, ...]] = ()
    attention_defaults: ClassVar[Mapping[str, Any]] = {}
    network_defaults: ClassVar[Mapping[str, Any]] = {}

    def make(self, attention: Attention | None = None) -> Any:
        """The `Task` of these settings; without an attention it has the heads that it sets.

        Raises InputError where the data cannot be used.
        """
        raise NotImplementedError

    @property
    def least_numbers(self) -> int:
        """Numbers that these data hold at least, even where examples are made in blocks: labels."""
        counts = (getattr(self, f"examples_{name}", None) for name in SPLITS)
        return sum(count or 0 for count in counts)


# Kinds of tasks. Each file is imported when a recipe first asks for its kind.
TASKS: Registry[type[TaskSettings]] = Registry(
    "task",
    {
        "markov_chain": "sampler.data.markov_chain:MarkovChain",
        "arrays": "sampler.data.arrays:Arrays",
        "one_shot": "sampler.data.one_shot:OneShot",
        "digits": "sampler.data.digits:Digits",
        "copy": "sampler.data.copying:Copy",
        "in_context_regression": "sampler.data.in_context_regression:InContextRegression",
        "associative_recall": "sampler.data.associative_recall:AssociativeRecall",
        "time_series": "sampler.data.time_series:TimeSeries",
    },
)


def read_section(task: Any, table: Registry) -> Any:
    """Return the section of the settings of a task. Raises InputError for an unknown kind."""
    if not isinstance(task, Mapping):
        return task
    load_plugins()
    kind = task.get("kind", ABSENT)
    if not isinstance(kind, str) or kind not in table:
        raise InputError("task.kind", kind, f"a {table.kind} is one of {kinds_of(table)}")
    return table[kind].section_for(task)(**task)


def kinds_of(table: Iterable[str]) -> str:
    """Return the kinds of a table in quotation marks."""
    return ", ".join(map(repr, table))
