"""A trained transformer: its sizes, its file, its attention and weights as the theory has them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from sampler.attention.layers import LayerVariants, paired
from sampler.attention.logits import head_matrices
from sampler.errors import InputError
from sampler.settings.recipe import AnyRecipe, TrainingRecipe
from sampler.storage.archives import DamagedFile, read_archive, write_archive
from sampler.storage.directory import RECIPE_FILE
from sampler.storage.files import check_schema
from sampler.storage.run_directory import differing_keys
from sampler.streams import Stream, stream
from theory.architecture import Architecture, Values

Parameters = Mapping[str, np.ndarray]

# Of `model.npz`, whose weights outlive the layout of other results.
MODEL_VERSION = 6


@dataclass(frozen=True)
class Transformer:
    """Sizes: H_1 … H_L heads, widths N_1 … N_L, N_a, G key and D input channels.

    It reads out the mean of all tokens.

    outputs        without a number there is one output, and it has no axis
    hypernetworks  whether each layer of attention serves two layers of values
    variants       the attention variant of each head, layer by layer
    values         the function of values
    """

    heads: tuple[int, ...]
    widths: tuple[int, ...]
    key_size: int
    channels: int
    outputs: int | None
    hypernetworks: tuple[bool, ...]
    variants: LayerVariants
    values: Values

    @classmethod
    def of(cls, recipe: TrainingRecipe, channels: int, outputs: int | None = None) -> "Transformer":
        """The network of a recipe on inputs with a number of channels."""
        settings = recipe.training
        sizes = settings.heads, settings.layer_widths, settings.key_size, channels, outputs
        return cls(*sizes, settings.hypernetworks, settings.variants, settings.values)

    @property
    def in_theory(self) -> bool:
        """Whether it is linear in the tokens of its heads, each with one layer of values."""
        return self.values == "linear" and not any(self.hypernetworks)

    @property
    def value_heads(self) -> tuple[int, ...]:
        """Heads of every layer of values."""
        return paired(self.heads, self.hypernetworks)

    @property
    def layers(self) -> int:
        """Layers of values."""
        return len(self.value_heads)

    @property
    def architecture(self) -> Architecture:
        """The sizes as the theory has them; the weights have no prior."""
        variances = (1.0,) * (self.layers + 2)
        sizes = self.widths, variances, self.channels, self.outputs or 1
        return Architecture(self.value_heads, *sizes)

    @property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """W_in [N_1, D]; W_Q_l, W_K_l [head, G, D]; W_V_l [head, N_{l+1}, N_l]; readout [N_a].

        The readout of several outputs is [output, N_a].
        """
        shapes: dict[str, tuple[int, ...]] = {"W_in": (self.widths[0], self.channels)}
        layer, layers = 0, zip(self.heads, self.hypernetworks, strict=True)
        for number, (heads, is_pair) in enumerate(layers, start=1):
            shapes[f"W_Q_{number}"] = (heads, self.key_size, self.channels)
            shapes[f"W_K_{number}"] = (heads, self.key_size, self.channels)
            for _ in range(1 + is_pair):
                layer += 1
                shapes[f"W_V_{layer}"] = (heads, self.widths[layer], self.widths[layer - 1])
        several = () if self.outputs is None else (self.outputs,)
        shapes["readout"] = (*several, self.widths[-1])
        return shapes

    @property
    def parameter_count(self) -> int:
        return sum(int(np.prod(shape)) for shape in self.parameter_shapes.values())


def draw_parameters(network: Transformer, seed: int, of: Stream) -> dict[str, np.ndarray]:
    """Parameters uniform within ±1/√(fan-in), the fan-in being the last axis; float32."""
    drawn = {}
    for position, (name, axes) in enumerate(network.parameter_shapes.items()):
        limit = 1.0 / np.sqrt(axes[-1])
        values = stream(seed, of, position).uniform(-limit, limit, axes)
        drawn[name] = values.astype(np.float32)
    return drawn


MODEL_FILE = "model.npz"
EMBEDDING_KEY = "label_embedding"


@dataclass(frozen=True)
class TrainedTransformer:
    """A trained network and where it comes from.

    parameters  arrays of `Transformer.parameter_shapes`, float32
    embedding   [label, channel] of one-shot images, float32
    step        the step it was chosen at
    data        checksum of the images, or series, of all splits
    """

    recipe: TrainingRecipe
    parameters: Parameters
    embedding: np.ndarray | None
    step: int
    data: str

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The parameters, and the embedding where there is one."""
        embedding = {} if self.embedding is None else {EMBEDDING_KEY: self.embedding}
        return {**self.parameters, **embedding}

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the arrays with their names, whatever the layout of their file."""
        checksum = hashlib.sha256()
        for name, values in sorted(self.arrays.items()):
            checksum.update(repr((name, values.shape, values.dtype.str)).encode())
            checksum.update(np.ascontiguousarray(values))
        return checksum.hexdigest()

    @property
    def network(self) -> Transformer:
        """The network whose parameters these are."""
        readout = self.parameters["readout"]
        outputs = None if readout.ndim == 1 else len(readout)
        channels = self.parameters["W_in"].shape[1]
        return Transformer.of(self.recipe, channels, outputs)


def write_model(directory: Path, model: TrainedTransformer) -> None:
    """Write `model.npz` completely or not at all."""
    header = {
        "schema_version": MODEL_VERSION,
        "recipe": model.recipe.model_dump(mode="json"),
        "step": model.step,
        "images": model.data,
        "sha256": model.checksum,
    }
    write_archive(directory / MODEL_FILE, header, model.arrays)


def read_model(directory: Path) -> TrainedTransformer:
    """Read the model of a training. Raises InputError where there is none, or a damaged one."""
    path = directory / MODEL_FILE
    if not path.is_file():
        remedy = f"holds no {MODEL_FILE}; name the directory of a finished training (`train`)"
        raise InputError("task.model", directory, remedy)
    try:
        stored = read_archive(path)
    except DamagedFile as problem:
        raise InputError("task.model", path, f"{problem}; train it again") from None
    header, arrays = stored.header, dict(stored.arrays)
    check_schema(header["schema_version"], str(path), MODEL_VERSION)
    embedding = arrays.pop(EMBEDDING_KEY, None)
    model = TrainedTransformer(
        recipe_where_it_lies(TrainingRecipe(**header["recipe"]), directory),
        arrays,
        embedding,
        header["step"],
        header["images"],
    )
    if model.checksum != header["sha256"]:
        remedy = "does not have the weights that its header names; train it again"
        raise InputError("task.model", path, remedy)
    return model


def recipe_where_it_lies(recipe: TrainingRecipe, directory: Path) -> TrainingRecipe:
    """The recipe of a model with the paths that its data have now, as its directory has them."""
    if not (directory / RECIPE_FILE).is_file():
        return recipe
    begun = AnyRecipe.load(directory / RECIPE_FILE)
    return recipe if differing_keys(begun, recipe) else begun


@dataclass(frozen=True)
class TrainedValues:
    """Weights that gradient descent made, instead of those that the posterior is over.

    Their network reads out the mean of all tokens.

    weights       V_0 [N_1, D], V_l [head, N_{l+1}, N_l] and a [output, N_a], see `theory_weights`
    architecture  the network's own sizes; its weights have no prior
    """

    weights: Mapping[str, np.ndarray]
    architecture: Architecture

    def overlap(self) -> Float[np.ndarray, "path path"]:
        """U_GD = w_1 w_1ᵀ/N_1, the overlap that the posterior of U_1 is about."""
        from sampler.network import overlaps

        return np.asarray(overlaps(self.arrays(), self.architecture)[0])

    def predictor(self, attended: Any) -> Float[np.ndarray, "example output"]:
        """f(x) of attended inputs [example, path, channel]."""
        from sampler.network import network_outputs

        return np.asarray(network_outputs(self.arrays(), attended, self.architecture))

    def magnitudes(self) -> Float[np.ndarray, " head"]:
        """‖V_l^h‖, the Frobenius norm of the values of each head, layer by layer."""
        values = (self.weights[f"V_{layer}"] for layer in range(1, self.architecture.layers + 1))
        return np.concatenate([np.linalg.norm(of_layer, axis=(1, 2)) for of_layer in values])

    def arrays(self) -> dict[str, Any]:
        """The weights as JAX has them."""
        import jax.numpy as jnp

        return {name: jnp.asarray(values) for name, values in self.weights.items()}

    def keeping(self, kept: Sequence[Sequence[int]]) -> "TrainedValues":
        """The network with these heads alone, the sum over them divided by the √H_l of before."""
        weights = dict(self.weights)
        for layer, heads in enumerate(kept, start=1):
            values = weights[f"V_{layer}"]
            weights[f"V_{layer}"] = values[list(heads)] * np.sqrt(len(heads) / len(values))
        architecture = replace(self.architecture, heads=tuple(map(len, kept)))
        return replace(self, weights=weights, architecture=architecture)


def frozen_attention(
    parameters: Parameters, inputs: np.ndarray, variants: LayerVariants
) -> tuple[Float[np.ndarray, "example _head key query"], ...]:
    """Ω of every layer, float64, from inputs x_0 and W_Q, W_K of heads with these variants.

    Heads of W_Q and W_K beyond those are extra ones: each attends as it would instead of a
    trained head, in turn, and no trained head sees it.
    """
    exact = {name: values.astype(np.float64) for name, values in parameters.items()}
    layers = []
    for layer, of_layer in enumerate(variants, start=1):
        queries, keys = exact[f"W_Q_{layer}"], exact[f"W_K_{layer}"]
        trained = list(range(len(of_layer)))
        together = [trained]  # then every extra head, before those that it depends on
        for extra in range(len(trained), len(queries)):
            place = extra % len(trained)
            beside = [head for head in trained if head != place]
            together.append([extra, *beside] if of_layer[place].joins_heads else [extra])
        made = []
        for heads in together:
            those = tuple(of_layer[head % len(trained)] for head in heads)
            weights = queries[heads], keys[heads]
            made.append(head_matrices("low_rank", weights, inputs, those))
        extras = [matrices[:, :1] for matrices in made[1:]]
        layers.append(np.concatenate([made[0], *extras], axis=1))
    return tuple(layers)


def theory_weights(
    parameters: Mapping[str, Any], network: Transformer, dtype: Any = np.float64
) -> dict[str, Any]:
    """The weights V_0, V_l and a with which the theory's network is the trained one.

        V_0 = √D W_in,   V_l^h = √N_l W_V^{l,h},   a = √N_a readout

    since the theory divides by √D, √(H_l N_l) and √N_a, the trained network by √H_l alone. Weights
    drawn uniformly from ±1/√(fan-in) have variance 1/3 in these terms.
    """
    widths = network.widths
    weights = {"V_0": network.channels**0.5 * parameters["W_in"].astype(dtype)}
    for layer in range(1, network.layers + 1):
        values = parameters[f"W_V_{layer}"].astype(dtype)
        weights[f"V_{layer}"] = widths[layer - 1] ** 0.5 * values
    readout = parameters["readout"].astype(dtype).reshape(-1, widths[-1])
    return weights | {"a": widths[-1] ** 0.5 * readout}


def trained_network(model: TrainedTransformer) -> TrainedValues | None:
    """The trained network in the theory's terms; None where the theory does not hold."""
    network = model.network
    if not network.in_theory:
        return None
    weights = theory_weights(model.parameters, network)
    return TrainedValues(weights, network.architecture)
