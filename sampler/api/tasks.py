"""Tasks from Python: a function for each kind of data, all of which make a `ChosenTask`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from sampler.api.keywords import (
    in_python,
    keywords_of,
    keywords_of_task,
    plain_setting,
    takes,
    warn_of,
)
from sampler.errors import InputError
from sampler.runtime import refuse_masked
from sampler.settings.recipe import Recipe, make_paths_absolute, make_recipe, sections_of
from sampler.settings.task import AttentionSection, section_of
from sampler.tasks.arrays import is_array_name, task_of_arrays
from sampler.tasks.chosen_heads import with_chosen_heads
from sampler.tasks.copying import CopySection
from sampler.tasks.digits import DigitsSection
from sampler.tasks.make import make_data
from sampler.tasks.markov_chain import MarkovChainSection
from sampler.tasks.raven import RavenSection, TrainedRavenSection
from sampler.tasks.task import Task
from sampler.tasks.time_series import SeriesArchiveSection, TimeSeriesSection
from sampler.tasks.trained import OneShotSection, TrainedSeriesSection

if TYPE_CHECKING:
    from theory import Triangle

Settings = Mapping[str, Any]
# Axes that splits do not share.
Tokens = Float[np.ndarray, "_example _token _channel"]
Labels = Float[np.ndarray, " _example"] | Float[np.ndarray, "_example _output"]
Matrices = Float[np.ndarray, "_example _head _key _query"]
Attended = Float[np.ndarray, "_example _path _channel"]
Lengths = Int[np.ndarray, " _example"]
# Keywords of the section `attention`, and its keys.
KEYS_OF_ATTENTION = {keyword.name: keyword.key for keyword in keywords_of(AttentionSection)}
IN_MEMORY = "(arrays in memory)"


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
        sizes = [f"{data.train.examples} training", f"{data.test.examples} test"]
        if data.validation is not None:
            sizes.append(f"{data.validation.examples} validation")
        return (
            f"<task {self.settings['task']['kind']}: {', '.join(sizes)} examples, "
            f"{data.channels} channels, outputs: {data.outputs}, heads: "
            f"{' | '.join(map(first_names, data.head_names))}, "
            f"{named_paths(data)}>"
        )


# Paths that are named in one line.
MOST_NAMED = 16


def first_names(names: Sequence[str]) -> str:
    """The names, or the first of them and how many there are."""
    if len(names) <= MOST_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:MOST_NAMED])}, … ({len(names)} in all)"


def named_paths(data: Task) -> str:
    """The paths by name, or how many they are."""
    if 0 < len(data.path_names) <= MOST_NAMED:
        return f"paths: {', '.join(data.path_names)}"
    return f"paths: {math.prod(data.heads):,}"


@takes(*keywords_of_task(MarkovChainSection))
def markov_chain_task(**settings: Any) -> ChosenTask:
    """Make hidden Markov chains: sequences of two classes that differ in how often they stay.

    Raises InputError, naming the keyword, for what cannot be used.
    """
    return chosen_task("markov_chain", settings)


@takes(*keywords_of_task(TimeSeriesSection))
def time_series_task(**settings: Any) -> ChosenTask:
    """Make series of a hidden oscillation: half of the channels leads the other, or follows it.

    Raises InputError, naming the keyword, for what cannot be used.
    """
    return chosen_task("time_series", settings)


@takes(*keywords_of_task(SeriesArchiveSection))
def series_archive_task(**settings: Any) -> ChosenTask:
    """Read labelled series of the UEA archive, or of one's own in one of its formats.

    Paths are relative to the current directory. Raises InputError, naming the keyword, for what
    cannot be used.
    """
    return chosen_task("time_series", settings)


@takes(*keywords_of_task(DigitsSection))
def digits_task(**settings: Any) -> ChosenTask:
    """Cut handwritten digits of 8 × 8 pixels, which come with scikit-learn, into patches.

    There is one output per class. Raises InputError, naming the keyword, for what cannot be used.
    """
    return chosen_task("digits", settings)


@takes(*keywords_of_task(CopySection))
def copy_task(**settings: Any) -> ChosenTask:
    """Draw sequences of symbols, labelled by the one before the last, which heads are to find.

    There is one output per symbol. Raises InputError, naming the keyword, for what cannot be used.
    """
    return chosen_task("copy", settings)


@takes(*keywords_of_task(RavenSection))
def raven_task(**settings: Any) -> ChosenTask:
    """Draw symbolic Raven's matrices, some compositions of whose rules are kept for the test.

    Raises InputError, naming the keyword, for what cannot be used.
    """
    return chosen_task("raven", settings)


@takes(*keywords_of_task(TrainedRavenSection))
def trained_raven_task(**settings: Any) -> ChosenTask:
    """Draw symbolic Raven's matrices, with the attention of a transformer trained on them.

    Paths are relative to the current directory. Raises InputError, naming the keyword, for what
    cannot be used.
    """
    return chosen_task("raven", settings)


@takes(*keywords_of_task(OneShotSection))
def one_shot_task(**settings: Any) -> ChosenTask:
    """Make one-shot image classification with the attention of a transformer trained by `train`.

    Paths are relative to the current directory. Raises InputError, naming the keyword, for what
    cannot be used.
    """
    return chosen_task("one_shot", settings)


@takes(*keywords_of_task(TrainedSeriesSection))
def trained_series_task(**settings: Any) -> ChosenTask:
    """Read time series, with the attention of a transformer that `train` trained on them.

    Paths are relative to the current directory. Raises InputError, naming the keyword, for what
    cannot be used.
    """
    return chosen_task("trained_series", settings)


@in_python
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

    path              an .npz or HDF5 file, relative to the current directory, whose arrays have
                      the names below; the matrices of layer l are `attention_train_l` there
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

    Raises InputError, naming the array, for what cannot be used.
    """
    arrays = {name: value for name, value in locals().items() if value is not None}
    if path is not None:
        return chosen_task("arrays", arrays)
    of_file: dict[str, Any] = {}  # under the names that they have in a file
    places = {}
    for name, value in arrays.items():
        of_layers = name.startswith("attention_") or name == "head_names"
        for layer, of_layer in enumerate(value) if of_layers else ():
            of_file[f"{name}_{layer + 1}"] = list(of_layer) if name == "head_names" else of_layer
            places[f"{name}_{layer + 1}"] = f"{name}[{layer}]"
        if not of_layers:
            of_file[name] = value
    try:
        return chosen_task("arrays", of_file)
    except InputError as problem:
        # An error may name an element of an array, too.
        name, bracket, element = str(problem.subject).partition("[")
        if name not in places:
            raise
        raise problem.about(f"{places[name]}{bracket}{element}") from None


@in_python
def make_task(kind: str, **settings: Any) -> ChosenTask:
    """The task of a kind by its name in recipes, for a kind that another package has registered.

    kind      as `task.kind` in a recipe; those of this package have a function each, which shows
              their keywords
    settings  the keys of `task` and, where the task leaves the heads open, of `attention`: `heads`,
              `inverse_temperature`, `form`, and `attention={"lag": …}` where both have such a key.
              "arrays" takes the arrays under their names in a file in the place of `path`

    Raises InputError, naming keyword or array, for what cannot be used.
    """
    return chosen_task(kind, settings)


def chosen_task(kind: str, settings: Settings) -> ChosenTask:
    """The task of this kind, from the keys of its section, of `attention`, or from arrays."""
    if kind == "arrays" and any(map(is_array_name, settings)):
        return in_memory(settings)
    sections = {"task": {"kind": kind, **plain_setting(settings)}}
    attention = sections["task"].pop("attention", {})
    if not isinstance(attention, Mapping):
        raise InputError("attention", attention, "give a dict of its keys")
    section = section_of(sections["task"])
    if section is not None and section.head_kinds:
        chosen = [key for key in KEYS_OF_ATTENTION if key in sections["task"]]
        own = {KEYS_OF_ATTENTION[key]: sections["task"].pop(key) for key in chosen}
        attention = {**attention, **own}
    if attention:
        sections["attention"] = attention
    make_paths_absolute(sections, Path.cwd(), sections_of(sections.get("task")))
    recipe = validated(sections)
    return ChosenTask(sections, make_data(recipe))


def in_memory(settings: Settings) -> ChosenTask:
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
    data = task_of_arrays(arrays, layers=0 if chosen is None else len(chosen.heads))
    return ChosenTask(sections, with_chosen_heads(data, chosen))


def as_array(key: str, value: Any) -> np.ndarray:
    """Return what was given as an array; InputError for what is none, or is masked."""
    refuse_masked(key, value)
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        raise InputError(key, value, "give an array: lists in a list have one length") from None


def validated(sections: Settings) -> Recipe:
    """A validated recipe; what is not given yet is a placeholder that refuses nothing."""
    placeholders = {
        "name": "python",
        "task": {"kind": "markov_chain"},
        "network": {"widths": 2},
    }
    return make_recipe({**placeholders, **sections})
