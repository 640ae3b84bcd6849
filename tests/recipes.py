"""Small recipes, tasks and files that tests share."""

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sampler.cli import main
from sampler.data.image_files import Drawings
from sampler.data.make import build_task
from sampler.data.markov_chain import MarkovChain
from sampler.data.task import Task
from sampler.data.time_series import TimeSeries
from sampler.errors import ExitCode
from sampler.problem import Problem, build_problem
from sampler.settings.recipe import Recipe, TrainingRecipe
from sampler.settings.task_sections import Attention
from sampler.streams import Stream, stream
from sampler.token_problem import LearnedProblem
from sampler.training.steps import initial_state
from sampler.training.training_data import learning_data
from sampler.transformer.trained_transformer import TrainedTransformer, write_model

# --- arrays and tasks


def markov_chain(heads=(("good",), ("uniform",)), beta=10.0, **settings):
    section = MarkovChain(**settings)
    return section.make(Attention(heads=heads, inverse_temperature=beta))


def time_series(heads=(("lag",), ("uniform",)), look_back=2, beta=10.0, form=None, **settings):
    section = TimeSeries(**settings)
    attention = Attention(heads=heads, lag=look_back, inverse_temperature=beta, form=form)
    return section.make(attention)


# A sub-network of two layers with 2 and 3 heads.
KEPT_HEADS = "network = {widths = [3, 4, 5], heads = [[1], [2, 0]]}\n"


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray], settings: str) -> Path:
    """A file of arrays and a recipe that reads it, with further settings in TOML: the recipe."""
    np.savez_compressed(folder / "mine.npz", **arrays)
    recipe = folder / "mine.toml"
    task = 'name = "mine"\ntask = {kind = "arrays", path = "mine.npz"}\n'
    recipe.write_text(task + settings, encoding="utf-8")
    return recipe


# Changes that are made to arrays by name, in place.
Change = Callable[[dict[str, np.ndarray]], object]


def replace(key: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Another array in its place, made from it."""
    return lambda arrays: arrays.update({key: change(arrays[key])})


def remove(key: str) -> Change:
    """The array is absent."""
    return lambda arrays: arrays.pop(key)


def spoil(value: float, place: int | tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """For `replace`: a copy with one entry set to this value."""

    def spoiled(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[place] = value
        return array

    return spoiled


# --- learned heads, beside random ones that are one draw of them

MARKOV = {
    "kind": "markov_chain",
    "tokens": 4,
    "features": 6,
    "examples_train": 7,
    "examples_test": 5,
    "examples_validation": 4,
}
SERIES = {
    "kind": "time_series",
    "tokens": 5,
    "channels": 4,
    "lag": 2,
    "period": 7,
    "examples_train": 6,
    "examples_test": 5,
}
DIGITS = {
    "kind": "digits",
    "patch": 4,
    "classes": [0, 1, 2],
    "examples_train": 5,
    "examples_test": 4,
}
BETA = 1.5
Heads = tuple[tuple[str, ...], ...]


def learned_recipe(
    task: dict[str, Any] = MARKOV,
    heads: Heads = (("learned", "good"), ("random", "learned")),
    widths: Any = 6,
    attention: dict[str, Any] | None = None,
    network: dict[str, Any] | None = None,
    posterior: dict[str, Any] | None = None,
    sampler: dict[str, Any] | None = None,
) -> Recipe:
    """A recipe of a few examples; by default two layers, each with one learned head."""
    of_heads = {"heads": [list(kinds) for kinds in heads], "inverse_temperature": BETA}
    settings: dict[str, Any] = {
        "name": "learned",
        "task": task,
        "attention": of_heads | (attention or {}),
        "network": {"widths": widths} | (network or {}),
        "posterior": {"temperature": 0.3} | (posterior or {}),
    }
    if sampler is not None:
        settings["sampler"] = sampler
    return Recipe(**settings)


def learned_problem(**changes: Any) -> LearnedProblem:
    """The problem of `learned_recipe`."""
    recipe = learned_recipe(**changes)
    return build_problem(recipe, build_task(recipe))


def problem_with_random_heads(**changes: Any) -> Problem:
    """The same problem with a random head in the place of every learned one."""
    heads = changes.pop("heads", (("learned", "good"), ("random", "learned")))
    fixed = tuple(
        tuple("random" if kind == "learned" else kind for kind in kinds) for kinds in heads
    )
    recipe = learned_recipe(heads=fixed, **changes)
    return build_problem(recipe, build_task(recipe))


def logits_of_random_heads(recipe: Recipe, task: Task) -> dict[str, np.ndarray]:
    """Standard normal logit weights of the learned heads that are random heads in the other."""
    found = {}
    for layer, kinds in enumerate(recipe.attention.heads):
        chosen = [head for head, kind in enumerate(kinds) if kind == "learned"]
        if not chosen:
            continue
        drawn = []
        for head in chosen:
            generator = stream(recipe.task.head_seed, Stream.HEADS, layer, head)
            channels = task.channels
            shape = (channels, channels)
            if recipe.task.kind != "markov_chain":
                shape = (2, *shape)
            drawn.append(generator.standard_normal(shape))
        found[f"logits_{layer + 1}"] = np.stack(drawn)
    return found


# --- trainings of seconds

TINY = """
name = "tiny"
[task]
kind = "one_shot"
images = "pictures.npz"
fraction_validation = 0.25
fraction_test = 0.25
[training]
heads = [2, 2]
widths = [6, 5, 4]
key_size = 3
steps = 130
batch = 4
validation_every = 40
validation_examples = 50
evaluation_examples = 60
"""

# What analyses the trained model.
ANALYSIS = """
name = "analysis"
[task]
kind = "one_shot"
model = "model"
examples_train = 10
examples_test = 8
examples_validation = 6
[network]
widths = [6, 5, 4]
[posterior]
temperature = 0.5
[sampler]
chains = 2
warmup = 20
draws = 30
"""


def write_training(folder: Path, rng, text: str = TINY) -> Path:
    """A recipe and the pictures it names."""
    write_labelled(folder / "pictures.npz", rng)
    path = folder / "tiny.toml"
    path.write_text(text)
    return path


def train_in(folder: Path, text: str, analysis: str = "") -> None:
    """Train a recipe into `model`, and put a recipe that analyses it beside it."""
    recipe = write_training(folder, np.random.default_rng(5), text)
    assert main(["train", str(recipe), "--out", str(folder / "model")]) == ExitCode.OK
    (folder / "analysis.toml").write_text(analysis)


def write_untrained(folder: Path, recipe: TrainingRecipe) -> TrainedTransformer:
    """A network as it is before training, in a directory."""
    splits = recipe.task.read(recipe.training)
    data = learning_data(recipe, splits)
    parameters = initial_state(recipe, data).best
    model = TrainedTransformer(recipe, parameters, data.embedding, 0, splits.checksum)
    write_model(folder, model)
    return model


# --- made-up drawings, and files in Omniglot's layout


def random_drawings(rng, *, characters: int = 6, drawings: int = 4) -> Drawings:
    """Each character a random picture, each drawing of it the picture with noise."""
    pictures = rng.random((characters, 1, 32, 32)) < 0.2
    noise = rng.random((characters, drawings, 32, 32)) < 0.05
    images = (pictures ^ noise).reshape(-1, 32, 32).astype(np.float32)
    names = tuple(f"letters/{c:02d}" for c in range(characters))
    return Drawings(images, names, np.full(characters, drawings))


def write_labelled(path: Path, rng, *, characters: int = 8, drawings: int = 5) -> Path:
    """An .npz file of such drawings."""
    made = random_drawings(rng, characters=characters, drawings=drawings)
    labels = np.repeat(np.arange(characters), drawings)
    np.savez(path, images=made.images, labels=labels)
    return path


def png(ink: np.ndarray) -> bytes:
    """A black-and-white image, black where there is ink."""
    file = io.BytesIO()
    Image.fromarray(np.where(ink, 0, 255).astype(np.uint8)).convert("1").save(file, "PNG")
    return file.getvalue()


def ink_of(name: str, side: int = 105) -> np.ndarray:
    """Ink that the name of a drawing decides."""
    return np.random.default_rng(list(name.encode())).random((side, side)) < 0.1


def write_omniglot(path: Path, alphabets: dict[str, int], *, drawings: int = 3, **members) -> Path:
    """An archive of so many characters of each alphabet; `members` take the place of content."""
    with zipfile.ZipFile(path, "w") as archive:
        for alphabet, characters in alphabets.items():
            for character in range(1, characters + 1):
                for drawing in range(1, drawings + 1):
                    name = f"{alphabet}/character{character:02d}/{character:04d}_{drawing:02d}.png"
                    content = members.get(name, png(ink_of(name)))
                    archive.writestr(f"{path.stem}/{name}", content)
    return path
