"""Tasks from Python: a function for each kind of data, all of which make a `ChosenTask`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from sampler.api.keywords import given, in_python, plain_setting
from sampler.attention.variants import AttentionVariant
from sampler.errors import InputError
from sampler.recipes.recipe import Recipe, make_recipe, resolve_data_path
from sampler.recipes.task_section import section_of
from sampler.tasks.arrays import ATTENTION_KEY, HEAD_NAMES_KEY, is_array_name, task_of_arrays
from sampler.tasks.task import Task

if TYPE_CHECKING:
    from theory import Triangle

Settings = Mapping[str, Any]
# Axes that splits do not share.
Tokens = Float[np.ndarray, "_example _token _channel"]
Labels = Float[np.ndarray, " _example"] | Float[np.ndarray, "_example _output"]
Matrices = Float[np.ndarray, "_example _head _key _query"]
Attended = Float[np.ndarray, "_example _path _channel"]
Lengths = Int[np.ndarray, " _example"]
# A variant for all heads, or a list with one, or a list of them, for each layer.
Form = AttentionVariant | Mapping[str, Any] | Sequence[Any]
# Keys of the section `attention`, and what they are called where the task has keys as well.
KEYS_OF_ATTENTION = {
    "heads": "heads", "inverse_temperature": "inverse_temperature", "form": "form",
    "head_lag": "lag",
}  # fmt: skip
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

    def __repr__(self) -> str:
        data = self.data
        sizes = [f"{data.train.examples} training", f"{data.test.examples} test"]
        if data.validation is not None:
            sizes.append(f"{data.validation.examples} validation")
        return (
            f"<task {self.settings['task']['kind']}: {', '.join(sizes)} examples, "
            f"{data.channels} channels, outputs: {data.outputs}, heads: "
            f"{' | '.join(', '.join(names) for names in data.head_names)}, "
            f"paths: {', '.join(data.path_names)}>"
        )


@in_python
def markov_chain_task(
    *,
    heads: Sequence[Sequence[str]] = (("good", "random"), ("uniform", "random")),
    inverse_temperature: float = 10.0,
    form: Form | None = None,
    examples_train: int = 100,
    examples_test: int = 1000,
    examples_validation: int = 0,
    tokens: int = 30,
    features: int = 200,
    stay_positive: float = 0.7,
    stay_negative: float = 0.3,
    parallel_noise: float = 1.0,
    perpendicular_noise: float = 1.0,
    seed: int = 0,
    head_seed: int = 0,
) -> ChosenTask:
    """Hidden Markov chains: noisy sequences of two classes that differ in how often they stay.

    heads                the heads of each layer: "good", "uniform", "random"
    inverse_temperature  β, which multiplies the logits
    form                 attention variant of all heads, or a list by layer or by head; softmax
    examples_train, examples_test, examples_validation
                         sequences of each split; without a validation split: 0
    tokens               of a sequence, beside its beginning
    features             channels beside the position, an even number
    stay_positive, stay_negative
                         probability that the hidden state stays, class +1 and class −1
    parallel_noise, perpendicular_noise
                         noise along the two state vectors, and across them
    seed, head_seed      of the sequences and of the heads

    Raises InputError, naming the keyword, for what cannot be used.
    """
    return chosen_task("markov_chain", given(markov_chain_task, locals()))


@in_python
def time_series_task(
    *,
    heads: Sequence[Sequence[str]] = (("lag", "random"), ("uniform", "random")),
    inverse_temperature: float = 10.0,
    form: Form | None = None,
    head_lag: int = 5,
    examples_train: int = 100,
    examples_test: int = 1000,
    examples_validation: int = 0,
    tokens: int = 40,
    channels: int = 16,
    lag: int = 5,
    period: int = 20,
    phase_noise: float = 0.1,
    noise: float = 0.8,
    seed: int = 0,
    head_seed: int = 0,
) -> ChosenTask:
    """Series of a hidden oscillation: half of the channels leads the other half, or follows it.

    heads                the heads of each layer: "lag", "uniform", "random"
    inverse_temperature  β, which multiplies the logits
    form                 attention variant of all heads, or a list by layer or by head; softmax
    head_lag             how many time steps lag heads look back
    examples_train, examples_test, examples_validation
                         series of each split; without a validation split: 0
    tokens               time steps of a series
    channels             of a time step, an even number
    lag                  time steps by which one half leads the other
    period               of the oscillation, in time steps
    phase_noise          standard deviation of its phase steps
    noise                standard deviation of the noise in every channel; the signal's is 1
    seed, head_seed      of the series and of the heads

    Raises InputError, naming the keyword, for what cannot be used.
    """
    return chosen_task("time_series", given(time_series_task, locals()))


@in_python
def series_archive_task(
    folder: str | Path,
    *,
    heads: Sequence[Sequence[str]] = (("lag", "random"), ("uniform", "random")),
    inverse_temperature: float = 10.0,
    form: Form | None = None,
    head_lag: int = 5,
    problem: str | None = None,
    classes: Sequence[str] | None = None,
    stride: int | None = None,
    max_tokens: int = 50,
    head_seed: int = 0,
) -> ChosenTask:
    """Labelled series of the UEA archive, or of one's own in one of its formats.

    folder               of the files, relative to the current directory
    heads                the heads of each layer: "lag", "uniform", "random"
    inverse_temperature  β, which multiplies the logits
    form                 attention variant of all heads, or a list by layer or by head; softmax
    head_lag             how many time steps lag heads look back
    problem              the name in `<problem>_TRAIN.ts`; None: that of the folder
    classes              the two to separate, +1 first; None: the only two there are
    stride               time steps in a token; None: as few as leave at most `max_tokens`
    max_tokens           the largest number of tokens
    head_seed            of the heads

    Raises InputError, naming the keyword, for what cannot be used.
    """
    return chosen_task("time_series", given(series_archive_task, locals()))


@in_python
def digits_task(
    *,
    heads: Sequence[Sequence[str]] = (("similar", "near"),),
    inverse_temperature: float = 10.0,
    form: Form | None = None,
    classes: Sequence[int] = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
    examples_train: int = 100,
    examples_test: int = 700,
    examples_validation: int = 0,
    patch: Literal[1, 2, 4] = 2,
    seed: int = 0,
    head_seed: int = 0,
) -> ChosenTask:
    """Handwritten digits of 8 × 8 pixels, which come with scikit-learn; one output per class.

    heads                the heads of each layer: "similar", "near", "uniform", "random"
    inverse_temperature  β, which multiplies the logits
    form                 attention variant of all heads, or a list by layer or by head; softmax
    classes              the digits to tell apart
    examples_train, examples_test, examples_validation
                         drawings of each split, 1,797 in all; without a validation split: 0
    patch                side of the square patch that is a token, in pixels
    seed, head_seed      of the splits and of the heads

    Raises InputError, naming the keyword, for what cannot be used.
    """
    return chosen_task("digits", given(digits_task, locals()))


@in_python
def one_shot_task(
    model: str | Path,
    *,
    folder: str | Path | None = None,
    test: str | Path = "characters",
    test_characters: Sequence[str] = (),
    random_heads: int = 0,
    examples_train: int = 600,
    examples_test: int = 1000,
    examples_validation: int = 1000,
    seed: int = 0,
) -> ChosenTask:
    """One-shot image classification with the attention of a transformer trained by `train`.

    model         directory of the training, relative to the current one
    folder        where Omniglot's files are now, if they were moved
    test          "characters" of the training's test split, "all_runs" of Omniglot, "digits", or
                  a file of other images, .npz or in the format of MNIST
    test_characters  of those only these characters, by name; all of them without it
    random_heads  further heads in every layer, as they are before training
    examples_train, examples_test, examples_validation
                  episodes of each split; without a validation split: 0
    seed          of the episodes and of the random heads

    Raises InputError, naming the keyword, for what cannot be used.
    """
    return chosen_task("one_shot", given(one_shot_task, locals()))


@in_python
def trained_series_task(
    model: str | Path,
    *,
    folder: str | Path | None = None,
    examples_train: int | None = None,
    examples_test: int | None = None,
    examples_validation: int | None = None,
    seed: int = 0,
) -> ChosenTask:
    """Time series with the attention of a transformer that `train` trained on them.

    model         directory of the training, relative to the current one
    folder        where the files of the series are now, if they were moved
    examples_train, examples_test, examples_validation
                  series of each split; all of them without it
    seed          of the choice of series

    Raises InputError, naming the keyword, for what cannot be used.
    """
    return chosen_task("trained_series", given(trained_series_task, locals()))


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

    Raises InputError, naming the array, for what cannot be used.
    """
    arrays = {name: value for name, value in locals().items() if value is not None}
    if path is not None:
        return chosen_task("arrays", arrays)
    for split in ("train", "test", "validation"):
        layers = enumerate(arrays.pop(f"attention_{split}", ()), start=1)
        arrays |= {f"attention_{split}_{layer}": matrices for layer, matrices in layers}
    layers = enumerate(arrays.pop("head_names", ()), start=1)
    arrays |= {f"head_names_{layer}": list(names) for layer, names in layers}
    try:
        return chosen_task("arrays", arrays)
    except InputError as problem:
        raise InputError(by_place(problem.field), problem.value, problem.remedy) from None


def by_place(name: str) -> str:
    """`attention_train[0]` for `attention_train_1`, `head_names[0]` for `head_names_1`."""
    name = HEAD_NAMES_KEY.sub(lambda key: f"head_names[{int(key[1]) - 1}]", name)
    return ATTENTION_KEY.sub(lambda key: f"attention_{key[1]}[{int(key[2]) - 1}]", name)


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
    sections = {"task": {"kind": kind, **{k: plain_setting(v) for k, v in settings.items()}}}
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
    resolve_data_path(sections, Path.cwd())
    recipe = validated(sections)
    return ChosenTask(sections, recipe.task.make(recipe.attention))


def in_memory(settings: Settings) -> ChosenTask:
    """The task of arrays under the names that they have in a file."""
    arrays = {key: as_array(key, value) for key, value in settings.items() if is_array_name(key)}
    others = {key: value for key, value in settings.items() if key not in arrays}
    if "path" in others:
        raise InputError("path", others["path"], "give the path or the arrays, not both")
    sections = {"task": {"kind": "arrays", "path": IN_MEMORY, **others}}
    validated(sections)
    return ChosenTask(sections, task_of_arrays(arrays))


def as_array(key: str, value: Any) -> np.ndarray:
    """What was given as an array."""
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
