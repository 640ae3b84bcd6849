"""The attention of a model of one's own in a file that `task.kind = "arrays"` reads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from sampler.errors import InputError, Verbatim
from sampler.storage.files import fill_whole
from sampler.tasks.export_files import Origin, write_pieces
from sampler.tasks.hdf5 import HDF5_SUFFIXES
from sampler.tasks.paths import refuse_too_many_paths
from sampler.tasks.reduction import (
    SHARE,
    Directions,
    check_share,
    principal_directions,
    second_moment,
)
from sampler.tasks.splits import AttendedSplit, Split, check_agreement
from sampler.transformer.chosen_layers import ChosenLayers
from sampler.transformer.forward_pass import Forward, as_numpy, torch_module
from sampler.transformer.read_tokens import ReadTokens
from sampler.transformer.recording import (
    as_tensors,
    check_batch_size,
    count_of,
    record_attention,
    taken,
)
from sampler.transformer.single_paths import SinglePaths, find_paths, recorded_paths
from theory.attended import Readout, attended_inputs

# Inputs, labels or None, and, where it is not the same for all, the token that is read for each.
Examples = tuple[Any, Any] | tuple[Any, Any, Any]
PRODUCTS, SINGLE = "products", "single"
# Training examples that directions of channels are found from: they are held meanwhile.
EXAMPLES_OF_DIRECTIONS = 1000


def export_attention(
    path: str | Path,
    model: Any,
    *,
    train: Examples | Iterable[Examples],
    test: Examples | Iterable[Examples],
    validation: Examples | Iterable[Examples] | None = None,
    layers: tuple[int, int] | None = None,
    heads: Mapping[int, Sequence[int]] | None = None,
    paths: Literal["products", "single"] = PRODUCTS,
    mlps: bool = False,
    residual: bool = False,
    head_names: Sequence[Sequence[str]] | None = None,
    attended: Readout | None = None,
    share: float | None = None,
    forward: Forward | None = None,
    batch_size: int = 64,
) -> Path:
    """Record the attention of a model and store it with inputs and labels; returns the path.

    path      ends in .npz, or in .h5 for a file of any size, which is written piece by piece
    train, test, validation
              a pair of inputs, as `record_attention` takes them, and labels [example] or
              [example, output]: ±1 for two classes, a column for each of several, or real numbers;
              or batches of such pairs, as a data loader yields them. Test labels may be None. Third
              may stand the number of the token that is read, [example], from 0; or of several
              [example, label], −1 where a sequence has fewer: each is an example of its own, and
              labels are [example, label] or [example, label, output]
    layers    a window, its first and its last layer, which count from 1: inputs are the tokens that
              the values of its first layer multiply
    heads     heads to keep, from 0, by the number of their layer: {1: [0, 2]}; of other layers all
    paths     "products": a path is one head of each layer, in all combinations. "single": it is one
              head of any layer, or the embedding, of a network with one layer; each is scaled by
              the normalisations that the residual stream passes behind it
    mlps      of single paths: what each MLP writes is one more
    residual  every layer gets one more head, its last, whose attention is the identity: the path
              past a layer that a residual connection opens; it is called "residual"
    head_names
              a list of names for the heads of each layer, without that of the residual connection;
              without it heads are called by their numbers, and as "3.0", head 0 of layer 3, where
              these are not all layers and heads of the model
    attended  "last", "first" or "mean": store the inputs at the end of every attention path, read
              out so, in the place of tokens and attention matrices. Networks inside the theory need
              no more, and of long sequences it is a small part. Single paths are stored so, by
              default read off the last token
    share     of attended inputs: keep the fewest channels with this share of their second moment,
              200 at most; by default 0.99 of single paths, and all channels (1) otherwise
    forward   as for `record_attention`

    Raises InputError, naming the array, for what cannot be used; nothing is written then.
    """
    path = Path(path)
    if path.suffix not in (".npz", *HDF5_SUFFIXES):
        raise InputError("path", path, "must end in .npz, or in .h5")
    check_batch_size(batch_size)
    chosen = ChosenLayers(layers, heads or {})
    recorder = Recorder(
        model, chosen, paths, mlps, residual, head_names, attended, share, forward, batch_size
    )
    given = {"train": train, "test": test, "validation": validation}
    splits = {
        name: (recorder.split(*piece) for piece in pieces(name, examples, batch_size))
        for name, examples in given.items()
        if examples is not None
    }
    found = recorder.with_fewer_channels(agreeing(splits))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fill_whole(
            path, lambda temporary: write_pieces(temporary, path.suffix, found, recorder.origin)
        )
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError("path", path, f"{reason}; name a file to write") from None
    return path


def pieces(
    name: str, examples: Examples | Iterable[Examples], size: int
) -> Iterator[tuple[Any, np.ndarray | None, ReadTokens | None]]:
    """Inputs, labels and tokens read, so many examples at a time: their matrices are held."""
    if not isinstance(examples, tuple):
        for batch in examples:
            if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
                received = Verbatim(f"({type(batch).__name__})")
                raise InputError(name, received, "every batch must be a pair of inputs and labels")
            yield from pieces(name, tuple(batch), size)
        return
    inputs, labels, *positions = examples
    tensors = as_tensors(inputs)
    count = count_of(tensors)
    read = ReadTokens.of(f"tokens read of {name}", positions[0], count) if positions else None
    if read is None:
        starts = np.arange(count + 1)
    else:
        starts = read.starts
        labels = read.flat_labels(f"labels_{name}", labels)
    labels = read_labels(f"labels_{name}", labels, int(starts[-1]))
    for start in range(0, count, size):
        part = slice(start, start + size)
        some = tensors[part] if isinstance(tensors, list) else taken(tensors, part, "cpu")
        of_part = slice(starts[start], starts[min(start + size, count)])
        if of_part.start == of_part.stop:  # no label of these is asked for
            continue
        yield (
            some,
            None if labels is None else labels[of_part],
            None if read is None else read.part(part),
        )


@dataclass
class Recorder:
    """Records splits piece by piece; the first piece shows what layers and paths there are.

    Fields are settings of `export_attention`. Raises InputError for those that do not go together.
    """

    model: Any
    chosen: ChosenLayers
    kind: str
    mlps: bool
    residual: bool
    head_names: Sequence[Sequence[str]] | None
    readout: Readout | None
    share: float | None
    forward: Forward | None
    batch_size: int
    paths: SinglePaths | None = field(default=None, init=False)
    names: tuple[tuple[str, ...], ...] | None = field(default=None, init=False)
    heads: tuple[int, ...] | None = field(default=None, init=False)
    numbers: tuple[int, ...] = field(default=(), init=False)
    modules: tuple[str, ...] = field(default=(), init=False)
    directions: Directions | None = field(default=None, init=False)
    token: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.kind not in (PRODUCTS, SINGLE):
            raise InputError("paths", self.kind, f'must be "{PRODUCTS}" or "{SINGLE}"')
        if self.is_single and self.residual:
            remedy = "of single paths the embedding is the way past all heads; leave this out"
            raise InputError("residual", True, remedy)
        if self.is_single and self.head_names is not None:
            remedy = "single paths are called by layer and head, as in 3.0; leave this out"
            raise InputError("head_names", list(self.head_names), remedy)
        if self.readout not in (None, *get_args(Readout)):
            raise InputError("attended", self.readout, 'must be "last", "first" or "mean"')
        if self.mlps and not self.is_single:
            raise InputError("mlps", True, f'belongs to paths = "{SINGLE}"')
        if self.share is not None and not (self.is_single or self.readout):
            remedy = 'channels are left out of attended inputs: give attended = "last", say'
            raise InputError("share", self.share, remedy)
        if self.is_single:
            self.readout = self.readout or "last"
            self.share = SHARE if self.share is None else self.share
        if self.share is not None:
            check_share(self.share)

    @property
    def is_single(self) -> bool:
        """Whether a path is one head of any layer."""
        return self.kind == SINGLE

    def split(
        self, inputs: Any, labels: np.ndarray | None, read: ReadTokens | None
    ) -> Split | AttendedSplit:
        """A piece of a split: its attention, or what that leads to at the end of every path."""
        if read is not None and self.readout not in (None, "last"):
            remedy = "the token read is given for every example; leave this out"
            raise InputError("attended", self.readout, remedy)
        token = self.readout or "" if read is None else "one for each label"
        if self.token not in (None, token):
            remedy = "name the token that is read for the examples of all splits, or of none"
            raise InputError("token read", (self.token, token), remedy)
        self.token = token
        return (self.single_paths if self.is_single else self.products)(inputs, labels, read)

    def single_paths(
        self, inputs: Any, labels: np.ndarray | None, read: ReadTokens | None
    ) -> AttendedSplit:
        """ξ of every head, as a network of one layer has them."""
        if self.paths is None:
            self.paths = find_paths(self.model, inputs, self.chosen, self.mlps, self.forward)
            self.names, self.heads = (self.paths.names,), (len(self.paths.names),)
            self.numbers, self.modules = self.paths.numbers, self.paths.modules
        read = ReadTokens.everywhere(self.readout) if read is None else read
        found = recorded_paths(
            self.model, inputs, self.paths, read.weights, self.forward, self.batch_size
        )
        return AttendedSplit(read.flat(found), labels, self.heads)

    def products(
        self, inputs: Any, labels: np.ndarray | None, read: ReadTokens | None
    ) -> Split | AttendedSplit:
        """Tokens and attention matrices, or ξ of every combination of heads."""
        recorded = record_attention(
            self.model,
            inputs,
            chosen=self.chosen,
            forward=self.forward,
            batch_size=self.batch_size,
        )
        self.names = self.names_of_heads(recorded.numbers, recorded.heads)
        self.numbers, self.modules = recorded.numbers, recorded.modules
        if self.residual:
            recorded = recorded.with_identity_heads()
        if read is not None:
            recorded = read.moved_last(recorded)
        if self.readout is None:
            return Split(recorded.inputs, labels, recorded.attention, recorded.lengths)
        refuse_too_many_paths(recorded.heads, "heads")
        self.heads = recorded.heads
        with jax.enable_x64(recorded.inputs.dtype == np.float64):
            attention = tuple(map(jnp.asarray, recorded.attention))
            lengths = None if recorded.lengths is None else jnp.asarray(recorded.lengths)
            inputs = jnp.asarray(recorded.inputs)
            at_the_end = np.asarray(attended_inputs(inputs, attention, self.readout, lengths))
        return AttendedSplit(at_the_end, labels, recorded.heads)

    def names_of_heads(
        self, numbers: Sequence[int], counts: Sequence[int]
    ) -> tuple[tuple[str, ...], ...] | None:
        """Names given, or numbers; the last head of a layer may be that of its residual.

        None where heads are all of the model, and need no names.
        """
        further = ("residual",) * self.residual
        if self.head_names is not None:
            names = [tuple(map(str, of_layer)) for of_layer in self.head_names]
            if [len(of_layer) for of_layer in names] != list(counts):
                remedy = f"name the heads of each layer of the model, {tuple(counts)} in all"
                raise InputError("head_names", [list(one) for one in names], remedy)
        elif self.chosen.are_all:
            if not self.residual:
                return None
            names = [tuple(map(str, range(count))) for count in counts]
        else:
            names = [
                tuple(f"{number}.{head}" for head in self.chosen.kept_numbers(number, count))
                for number, count in zip(numbers, counts, strict=True)
            ]
        return tuple((*of_layer, *further) for of_layer in names)

    def with_fewer_channels(
        self, found: Iterator[tuple[str, Split | AttendedSplit]]
    ) -> Iterator[tuple[str, Split | AttendedSplit]]:
        """Yield the pieces with the channels that carry the share of their second moment.

        Directions are found from the first training examples, which come first.
        """
        if self.share in (None, 1.0):
            yield from found
            return
        held: list[tuple[str, AttendedSplit]] = []

        def reduced(name: str, split: AttendedSplit) -> tuple[str, AttendedSplit]:
            return name, AttendedSplit(
                self.directions.reduce(split.attended), split.labels, split.heads
            )

        for name, split in found:
            enough = sum(one.examples for _, one in held) >= EXAMPLES_OF_DIRECTIONS
            if self.directions is None and held and (name != "train" or enough):
                moment = second_moment(one.attended for _, one in held)
                self.directions = principal_directions(moment, self.share)
                yield from (reduced(*one) for one in held)
            if self.directions is None:
                held.append((name, split))
            else:
                yield reduced(name, split)

    def origin(self) -> Origin:
        """Say what the file has of its heads; known once all pieces are."""
        lines = [
            f"layer {number}: {module}"
            for number, module in zip(self.numbers, self.modules, strict=False)
        ]
        if self.token:
            lines.append(f"token read: {self.token}")
        if self.directions is not None:
            channels, kept = self.directions.matrix.shape
            lines.append(
                f"channels: {kept} of {channels}, with {100 * self.directions.share:.2f} % of the "
                "second moment of attended inputs"
            )
        is_part = not self.is_single and not self.chosen.are_all
        return Origin(self.heads, self.names, self.numbers if is_part else None, tuple(lines))


def agreeing(
    splits: Mapping[str, Iterator[Split | AttendedSplit]],
) -> Iterator[tuple[str, Split | AttendedSplit]]:
    """Every piece with the name of its split; InputError where one differs from the first."""
    first = None
    for name, found in splits.items():
        of_split = None
        for piece in found:
            first, of_split = first or piece, of_split or piece
            check_agreement(first, piece, name)
            if (piece.labels is None) != (of_split.labels is None):
                raise InputError(
                    f"labels_{name}", None, "give labels with all batches, or with none"
                )
            yield name, piece
        if of_split is None:
            remedy = "no batch came, or no token is read; make a loader that has run out anew"
            raise InputError(name, Verbatim("(no examples)"), remedy)


def read_labels(field: str, labels: Any, examples: int) -> np.ndarray | None:
    """Labels [example, output] as floats; InputError for class numbers and for what is missing."""
    if labels is None:
        if field == "labels_test":
            return None
        raise InputError(field, None, "this split needs labels [example] or [example, output]")
    tensor = torch_module().as_tensor(labels)
    array = as_numpy(tensor)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or len(array) != examples or array.shape[1] == 0:
        remedy = f"the shape must be ({examples},) or ({examples}, outputs), a label per example"
        raise InputError(field, tuple(tensor.shape), remedy)
    if not np.isfinite(array).all():
        raise InputError(field, float(array[~np.isfinite(array)][0]), "every label must be finite")
    if not tensor.is_floating_point() and array.shape[1] == 1 and (np.abs(array) != 1).any():
        remedy = "are class numbers; give ±1 for two classes, or a column of 0 and 1 for each class"
        raise InputError(field, np.unique(array).astype(int).tolist(), remedy)
    return array
