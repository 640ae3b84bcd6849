"""Tasks from Python: a function for each kind of data, all of which make a `ChosenTask`.

Paths are relative to the current directory. What cannot be used is refused with an `InputError`
that names the keyword.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int, Real

from sampler.api.keywords import (
    keywords_of_task,
    name_of,
    plain_setting,
    takes,
    warn_of,
)
from sampler.data.arrays import is_array_name, task_of_arrays
from sampler.data.copying import CopySection
from sampler.data.digits import DigitsSection
from sampler.data.heads_of_task import with_chosen_heads
from sampler.data.make import make_data
from sampler.data.markov_chain import MarkovChainSection
from sampler.data.one_shot import OneShotSection
from sampler.data.task import Task
from sampler.data.time_series import SeriesArchiveSection, TimeSeriesSection
from sampler.errors import InputError
from sampler.runtime import refuse_masked
from sampler.settings.identity import make_paths_absolute
from sampler.settings.recipe import Recipe, make_recipe, sections_of
from sampler.settings.task_sections import TASKS, AttentionSection, TaskSection, section_of

if TYPE_CHECKING:
    from theory import Triangle

Settings = Mapping[str, Any]
# Axes that splits do not share.
Tokens = Float[np.ndarray, "_example _token _channel"]
Labels = Real[np.ndarray, " _example"] | Real[np.ndarray, "_example _output"]
Matrices = Float[np.ndarray, "_example _head _key _query"]
Attended = Float[np.ndarray, "_example _path _channel"]
Lengths = Int[np.ndarray, " _example"]
# The keyword of every key of the section `attention`.
OF_ATTENTION = {name_of(AttentionSection, key): key for key in AttentionSection.model_fields}
IN_MEMORY = "(arrays in memory)"
# Arrays of a file that arguments have as a list by layer.
BY_LAYER = re.compile(r"^(attention_[a-z]+|head_names)_(\d+)")
# Heads of a layer that are named.
MOST_NAMED = 16


@dataclass(frozen=True)
class ChosenTask:
    """A task with its data, made by one of the functions whose names end in `_task`.

    settings  the sections `task` and `attention` of a recipe, as far as they were given
    data      the splits, with the attention matrices that the inputs fix
    folded    rows that stand for the training examples, once they were needed, by the sections
              `network` that they follow from
    """

    settings: Settings
    data: Task = field(repr=False)
    folded: dict[str, "Triangle"] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        warn_of(self.data.concerns)

    def __repr__(self) -> str:
        data = self.data
        sizes = [f"{split.examples} {name}" for name, split in data.named_splits.items()]
        heads = [", ".join(names[:MOST_NAMED]) for names in data.head_names]
        more = " …" if max(data.heads) > MOST_NAMED else ""
        return (
            f"<task {self.settings['task']['kind']}: examples {', '.join(sizes)}; "
            f"{data.channels} channels; outputs {data.outputs}; heads {' | '.join(heads)}{more}; "
            f"{math.prod(data.heads):,} paths>"
        )


# --- a function for each kind, whose keywords and help are those of its section


def task_function(name: str, kind: str, section: type[TaskSection]) -> Callable[..., ChosenTask]:
    """The function of this name that makes tasks of a kind."""

    def make(**settings: Any) -> ChosenTask:
        return chosen_task(kind, settings)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = section.__doc__
    return takes(*keywords_of_task(section))(make)


markov_chain_task = task_function("markov_chain_task", "markov_chain", MarkovChainSection)
time_series_task = task_function("time_series_task", "time_series", TimeSeriesSection)
series_archive_task = task_function("series_archive_task", "time_series", SeriesArchiveSection)
digits_task = task_function("digits_task", "digits", DigitsSection)
copy_task = task_function("copy_task", "copy", CopySection)
one_shot_task = task_function("one_shot_task", "one_shot", OneShotSection)


@takes()
def make_task(kind: str, **settings: Any) -> ChosenTask:
    """The task of a kind by its name in recipes, for a kind that another package has registered.

    kind      as `task.kind` in a recipe; those of this package have a function each, which shows
              their keywords
    settings  the keys of `task` and, where the task leaves the heads open, of `attention`: `heads`,
              `inverse_temperature`, `form`, and `attention={"lag": …}` where both have such a key.
              "arrays" takes the arrays under their names in a file in the place of `path`
    """
    return chosen_task(kind, settings)


@takes()
def arrays_task(
    path: str | Path | None = None,
    *,
    inputs_train: Tokens | None = None,
    labels_train: Labels | None = None,
    attention_train: Sequence[Matrices] | None = None,
    inputs_test: Tokens | None = None,
    labels_test: Labels | None = None,
    attention_test: Sequence[Matrices] | None = None,
    inputs_validation: Tokens | None = None,
    labels_validation: Labels | None = None,
    attention_validation: Sequence[Matrices] | None = None,
    attended_train: Attended | None = None,
    attended_test: Attended | None = None,
    attended_validation: Attended | None = None,
    heads: Sequence[int] | None = None,
    lengths_train: Lengths | None = None,
    lengths_test: Lengths | None = None,
    lengths_validation: Lengths | None = None,
    head_names: Sequence[Sequence[str]] | None = None,
    labels: Literal["task", "teacher"] | None = None,
    teacher_seed: int | None = None,
    attention: Mapping[str, Any] | None = None,
) -> ChosenTask:
    """Data of one's own: a file, or the arrays themselves in one of two layouts.

    path              an .npz or HDF5 file, whose arrays have the names below; the matrices of
                      layer l are `attention_train_l` there
    inputs_train      tokens x₀ [example, token, channel]
    labels_train      ±1 or real numbers, [example] or [example, output]
    attention_train   Ω of each layer, [example, head, key, query]
    inputs_test, labels_test, attention_test
                      the same of the test set; labels may be left out
    inputs_validation, labels_validation, attention_validation
                      the same of a validation set; all of it or nothing
    attended_train, attended_test, attended_validation
                      in the place of inputs and attention: the inputs at the end of every
                      attention path, [example, path, channel], paths in flat order, the head of
                      layer 1 slowest
    heads             with these: the number of heads of each layer, whose product is that of paths
    lengths_train, lengths_test, lengths_validation
                      tokens of each sequence, [example], where they are not all as long; the tokens
                      behind them are padding, which no other token may attend to
    head_names        a list of names for each layer; without it heads are called by their numbers
    labels            "teacher" for labels that are drawn from the network itself instead of these
    teacher_seed      the seed of the teacher
    attention         heads in the place of these, as the section of a recipe: a dict of `heads`,
                      which has "learned", "uniform" or a name or number for each head of each
                      layer, and `learned`, `form`
    """
    settings = {name: value for name, value in locals().items() if value is not None}
    if path is not None:
        return chosen_task("arrays", settings)
    arrays: dict[str, Any] = {}  # under the names that they have in a file
    for name, value in settings.items():
        if name.startswith("attention_"):
            arrays |= {f"{name}_{layer}": array for layer, array in enumerate(value, start=1)}
        elif name == "head_names":
            arrays |= {f"{name}_{layer}": list(names) for layer, names in enumerate(value, start=1)}
        else:
            arrays[name] = value
    try:
        return chosen_task("arrays", arrays)
    except InputError as problem:
        subject = problem.subject
        if not isinstance(subject, str):
            raise
        by_layer = BY_LAYER.sub(lambda name: f"{name[1]}[{int(name[2]) - 1}]", subject)
        raise problem.about(by_layer) from None


# --- from settings to a task


def chosen_task(kind: str, settings: Settings) -> ChosenTask:
    """The task of this kind, from the keys of its section, of `attention`, or from arrays."""
    if kind == "arrays" and any(map(is_array_name, settings)):
        return task_in_memory(settings)
    sections = {"task": {"kind": kind, **plain_setting(settings)}}
    attention = sections["task"].pop("attention", {})
    if not isinstance(attention, Mapping):
        raise InputError("attention", attention, "give a dict of its keys")
    section = section_of(sections["task"], TASKS)
    if section is not None and section.head_kinds:
        chosen = [name for name in OF_ATTENTION if name in sections["task"]]
        own = {OF_ATTENTION[name]: sections["task"].pop(name) for name in chosen}
        attention = {**attention, **own}
    if attention:
        sections["attention"] = attention
    make_paths_absolute(sections, Path.cwd(), sections_of(sections))
    recipe = validated(sections)
    return ChosenTask(sections, make_data(recipe))


def task_in_memory(settings: Settings) -> ChosenTask:
    """The task of arrays under the names that they have in a file."""
    arrays = {key: as_array(key, value) for key, value in settings.items() if is_array_name(key)}
    others = {key: value for key, value in settings.items() if key not in arrays}
    if "path" in others:
        raise InputError("path", others["path"], "give the path or the arrays, not both")
    attention = plain_setting(others.pop("attention", {}))
    sections = {"task": {"kind": "arrays", "path": IN_MEMORY, **others}}
    if attention:
        sections["attention"] = attention
    chosen = validated(sections).attention
    data = task_of_arrays(arrays, heads_are_chosen=chosen is not None)
    return ChosenTask(sections, with_chosen_heads(data, chosen))


def as_array(key: str, value: Any) -> np.ndarray:
    """Return what was given as an array; InputError for what is none, or is masked."""
    refuse_masked(key, value)
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        raise InputError(key, value, "give an array: lists in a list have one length") from None


def validated(sections: dict[str, Any]) -> Recipe:
    """The recipe of these sections; what is not given yet is a placeholder that refuses nothing."""
    placeholders = {
        "name": "python",
        "task": {"kind": "arrays", "path": "data.npz"},  # data tell how many layers there are
        "network": {"widths": 2},
    }
    return make_recipe({**placeholders, **sections})
