"""Labels of a teacher: the network of the recipe itself, its weights drawn from their priors.

Whatever is learned from such labels has the law of one more draw of the posterior (Nishimori's
identity): over data sets, the overlap of a draw with the teacher is distributed as that of two
independent draws. Of a network of the theory the values of its tokens are never made: with
w_{L+1} = a and w_l = w_{l+1} V_l/√N_{l+1},

    U_l = w_l w_lᵀ/N_l = F_l F_lᵀ,   f_c(x) = Σ_{π,i} φ^π_i(x) (F_1 z)_{(π,c),i}

where V_l acts on the rows of w_{l+1} alone, so that a few rows of normal numbers represent it, and
z [rank, channel], normal numbers as well, represents V_0.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from sampler.data.checks import check_examples
from sampler.data.examples import Examples, attended_by_numpy, held, measured_examples
from sampler.data.make import build_task
from sampler.data.task import Task, Teacher
from sampler.runtime import jax_settings
from sampler.settings.recipe import Recipe
from sampler.settings.task_sections import SPLITS
from sampler.streams import Stream, stream
from theory.architecture import Architecture

# f(x) [example, output] of a block of examples.
Outputs = Callable[[Examples], np.ndarray]


def make_labelled_task(recipe: Recipe) -> Task:
    """The task of a recipe with the labels that it asks for.

    Raises InputError as `build_task` does.
    """
    return with_teacher(build_task(recipe), recipe)


def with_teacher(task: Task, recipe: Recipe) -> Task:
    """The task with labels of a teacher, where the recipe asks for such.

    Outputs of a trained network for the labels of the task are left out.
    """
    if recipe.task.labels != "teacher":
        return task
    seed, posterior = recipe.task.teacher_seed, recipe.posterior
    architecture = recipe.network.architecture(task.heads, task.channels, task.outputs)
    shift = stream(seed, Stream.TEACHER_TEMPERATURE).standard_normal()
    temperature = posterior.temperature * math.exp(posterior.temperature_spread * shift)
    generator = stream(seed, Stream.TEACHER_WEIGHTS)
    if recipe.fits_theory:
        overlaps, outputs_of = linear_teacher(task, recipe, architecture, generator)
    else:
        overlaps, outputs_of = (), token_teacher(task, recipe, architecture, generator)
    outputs, labelled = {}, {}
    for name, split in task.named_splits.items():
        outputs[name] = np.concatenate([outputs_of(block) for block in split.blocks()])
        of_noise = stream(seed, Stream.TEACHER_NOISE, SPLITS.index(name))
        noise = of_noise.standard_normal(outputs[name].shape)
        labelled[name] = split.with_labels(outputs[name] + math.sqrt(temperature) * noise)
        check_examples(labelled[name], name)
    attention = ()
    if task.learned is not None and not task.learned.stream:
        measured = measured_examples(task.train.examples)
        attention = tuple(matrices[measured] for matrices in held(task.train).attention)
    teacher = Teacher(overlaps, outputs, temperature, architecture.variances, attention)
    return replace(task, **labelled, teacher=teacher, trained=None)


def linear_teacher(
    task: Task, recipe: Recipe, architecture: Architecture, generator: np.random.Generator
) -> tuple[tuple[np.ndarray, ...], Outputs]:
    """Order parameters U_1 … U_a of weights from the prior, and f."""
    arch, readout = architecture, recipe.network.readout
    factors = limit_factors(arch) if recipe.network.is_infinite else prior_factors(arch, generator)
    normal = generator.standard_normal((factors[0].shape[1], arch.channels))
    weights = (factors[0] @ normal).reshape(arch.path_count, arch.outputs, arch.channels)
    weights *= math.sqrt(arch.variances[0] / (arch.channels * arch.path_count))

    def outputs_of(block: Examples) -> np.ndarray:
        attended = attended_by_numpy(block, readout, task.pairs)
        return np.einsum("xpi,pci->xc", attended, weights, optimize=True)

    return tuple(factor @ factor.T for factor in factors), outputs_of


def limit_factors(architecture: Architecture) -> tuple[Float[np.ndarray, "_row _row"], ...]:
    """Factors of U_l = σ_l² … σ_a² 1, which are known at infinite width."""
    sizes = enumerate(architecture.order_parameter_sizes, start=1)
    variances = architecture.variances
    return tuple(math.sqrt(math.prod(variances[layer:])) * np.eye(size) for layer, size in sizes)


def prior_factors(
    architecture: Architecture, generator: np.random.Generator
) -> tuple[Float[np.ndarray, "_row _rank"], ...]:
    """Factors F_1 … F_L, F_a of overlaps w_l w_lᵀ/N_l = F_l F_lᵀ of weights from the prior."""
    arch = architecture
    layers = zip((*arch.heads, arch.outputs), arch.widths, arch.variances[1:], strict=True)
    above, factors = np.eye(1), []
    for copies, width, variance in reversed(list(layers)):
        rank = above.shape[1]
        normal = math.sqrt(variance) * generator.standard_normal((copies, rank, width))
        weights = np.einsum("ar,hrn->han", above, normal).reshape(-1, width)
        # The triangle of w_lᵀ/√N_l has as many columns as w_l has rows, and N_l rows at most.
        above = np.transpose(np.linalg.qr(weights.T / math.sqrt(width), mode="r"))
        factors.append(above)
    return tuple(reversed(factors))


def token_teacher(
    task: Task, recipe: Recipe, architecture: Architecture, generator: np.random.Generator
) -> Outputs:
    """f of a network outside the theory, its weights drawn from the prior."""
    # Only here: plans of other networks are made without JAX.
    import jax.numpy as jnp

    from sampler.token_network import predict_split, token_arrays
    from sampler.token_problem import network_and_heads

    if task.learned is not None and not task.learned.stream:
        task = replace(task, learned=None)  # heads that read inputs are as the task drew them
    network, heads = network_and_heads(recipe.network, task, architecture)
    weights = {
        name: generator.standard_normal(shape) for name, shape in network.weight_shapes.items()
    }
    for name, layer in network.weight_layers.items():
        weights[name] *= math.sqrt(network.variances[layer])

    def outputs_of(block: Examples) -> np.ndarray:
        with jax_settings():
            tokens = token_arrays(block, recipe.network.readout, heads)
            arrays = {name: jnp.asarray(values) for name, values in weights.items()}
            return np.asarray(predict_split(arrays, tokens, network))

    return outputs_of
