"""Recipes: what a TOML file asks for, validated, with every default in place.

Values are TOML, separated by commas that stand outside of brackets and quotation marks; a single
word needs no quotation marks. A:B is the range of whole numbers A, A+1, …, B−1, and A:B:STEP every
STEP-th of them.
"""

import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from sampler.errors import InputError, one_line
from sampler.recipes.sections import (
    ArraysSection,
    AttentionSection,
    MarkovChainSection,
    Name,
    NetworkSection,
    OneShotSection,
    PosteriorSection,
    SamplerSection,
    Section,
    TheorySection,
)
from sampler.recipes.task_sections import (
    DEFAULT_LAG,
    DigitsSection,
    SeriesArchiveSection,
    TimeSeriesSection,
)
from sampler.recipes.validation import check_network, check_sampler_fits, recipe_error

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(settings: Mapping[str, Any]) -> str:
    """TOML of nested mappings, lists, text, numbers and booleans.

    A mapping at the top level becomes a table, a deeper one an inline table. Keys whose value
    is None are left out: TOML has no such value. Raises TypeError for any other type.
    """
    kept = {key: value for key, value in settings.items() if value is not None}
    lines = [
        f"{toml_key(key)} = {toml_value(value)}"
        for key, value in kept.items()
        if not isinstance(value, Mapping)
    ]
    for key, table in kept.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{toml_key(key)}]"]
            lines += [
                f"{toml_key(inner)} = {toml_value(value)}"
                for inner, value in table.items()
                if value is not None
            ]
    return "\n".join(lines).lstrip("\n") + "\n"


def toml_key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else toml_value(key)


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)  # the shortest text that gives the same number back
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the delete character, which JSON leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if item is not None}
        pairs = (f"{toml_key(key)} = {toml_value(item)}" for key, item in kept.items())
        return "{" + ", ".join(pairs) + "}"
    raise TypeError(f"TOML has no value for {type(value).__name__} {value!r}")


def series_source(task: Any) -> str:
    """Where time series come from: a folder, if the settings name one."""
    has_folder = "folder" in task if isinstance(task, dict) else hasattr(task, "folder")
    return "archive" if has_folder else "generator"


SeriesSection = Annotated[
    Annotated[TimeSeriesSection, Tag("generator")]
    | Annotated[SeriesArchiveSection, Tag("archive")],
    Discriminator(series_source),
]
TaskSection = Annotated[
    MarkovChainSection | ArraysSection | OneShotSection | DigitsSection | SeriesSection,
    Field(discriminator="kind"),
]

# What a sweep cannot change: the points of one sweep share a name and have no sweep of their own.
NOT_SWEPT = ("name", "sweep")
DATA_PATHS = ("path", "model", "folder", "test")


class Recipe(Section):
    """All settings of a run, defaults included; frozen, and equal to what its TOML reads as."""

    name: Name
    task: TaskSection
    attention: AttentionSection | None = None
    network: NetworkSection
    posterior: PosteriorSection = PosteriorSection()
    theory: TheorySection = TheorySection()
    sampler: SamplerSection = SamplerSection()
    sweep: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def give_defaults_of_task(cls, settings: Any) -> Any:
        task = settings.get("task") if isinstance(settings, dict) else None
        kind = task.get("kind") if isinstance(task, dict) else None
        # Only a task that leaves the attention open has a section for it.
        if kind == "markov_chain":
            return {"attention": {}, **settings}
        if kind == "time_series" and isinstance(settings.get("attention", {}), dict):
            heads = {"heads": [["lag", "random"], ["uniform", "random"]], "lag": DEFAULT_LAG}
            return {**settings, "attention": {**heads, **settings.get("attention", {})}}
        if kind == "digits" and isinstance(settings.get("attention", {}), dict):
            heads = {"heads": [["similar", "near"]]}
            settings = {**settings, "attention": {**heads, **settings.get("attention", {})}}
        # No patch of an image is the last one, and a trained network averages its tokens.
        if kind in ("one_shot", "digits") and isinstance(settings.get("network"), dict):
            return {**settings, "network": {"readout": "mean", **settings["network"]}}
        return settings

    @cached_property
    def hash8(self) -> str:
        """Eight hexadecimal digits that change with any setting."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def to_toml(self) -> str:
        """The resolved recipe, every default written out; it reads as an equal recipe."""
        return toml_text(self.model_dump(exclude=None if self.sweep else {"sweep"}))

    @property
    def seeds(self) -> dict:
        """Every seed, for the manifest."""
        task = self.task.model_dump(include={"seed", "head_seed"})
        return {"task": task, "theory": self.theory.seed, "sampler": self.sampler.seed}

    @property
    def precision(self) -> dict:
        """The floating-point numbers computed with, for the manifest."""
        return {"theory": "float64", "sampler": self.sampler.precision}

    def points(self) -> list[tuple[str, "Recipe"]]:
        """The points of the sweep, a grid, each with its label `key=value`, the last key fastest.

        A recipe without a sweep is its own only point, with an empty label.
        """
        if not self.sweep:
            return [("", self)]
        points = []
        for values in itertools.product(*self.sweep.values()):
            settings = {**self.model_dump(), "sweep": {}}
            for key, value in zip(self.sweep, values, strict=True):
                place(settings, key, value)
            label = ",".join(map(setting_text, self.sweep, values))
            points.append((label, make_recipe(settings)))
        return points


def setting_text(key: str, value: Any) -> str:
    """A setting in a label, as in network.widths=10."""
    return f"{key}={value if isinstance(value, str) else toml_value(value)}"


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and validate a recipe.

    Each override is KEY=VALUE: a dotted key and a TOML value, as in `network.widths=100`; it
    also takes a swept key out of the sweep. Raises InputError for a file that cannot be read, a
    key that does not exist, or a value that cannot be used, in any point of the sweep.
    """
    path = Path(path)
    settings = read_toml(path)
    if "training" in settings:
        raise InputError("training", settings["training"], "this recipe trains a network: `train`")
    sweep = settings.setdefault("sweep", {})
    if isinstance(sweep, dict):
        settings["sweep"] = sweep = flattened(sweep)
    for override in overrides:
        key, value = parse_override(override)
        if isinstance(sweep, dict) and key.startswith("sweep."):
            sweep[key.removeprefix("sweep.")] = value
        else:
            place(settings, key, value)
            if isinstance(sweep, dict):
                sweep.pop(key, None)
    fill_swept(settings)
    resolve_data_path(settings, path.parent)
    recipe = make_recipe(settings)
    check_layers(recipe)
    for _, point in recipe.points():
        check_layers(point)
    return recipe


def make_recipe(settings: dict[str, Any]) -> Recipe:
    """Validate settings; raises InputError with the dotted key, the value and the remedy."""
    for key in settings["sweep"] if isinstance(settings.get("sweep"), dict) else ():
        if key.split(".")[0] in NOT_SWEPT:
            raise InputError("sweep", key, "this key cannot be swept")
    try:
        recipe = Recipe.model_validate(settings)
    except ValidationError as problem:
        raise recipe_error(problem, settings, known_keys(settings)) from None
    check_attention(recipe, settings)
    check_sampler_fits(recipe.network, recipe.sampler)
    return recipe


def check_attention(recipe: Recipe, settings: dict[str, Any]) -> None:
    """Raise InputError unless the heads are of kinds that the task has."""
    attention, kinds = recipe.attention, recipe.task.head_kinds
    if attention is None:
        return
    if not kinds:
        raise InputError(
            "attention",
            settings["attention"],
            "remove this section: the attention matrices come with this task",
        )
    known = ", ".join(f"'{kind}'" for kind in kinds)
    for layer, of_layer in enumerate(attention.heads):
        for head, kind in enumerate(of_layer):
            if kind not in kinds:
                field = f"attention.heads[{layer}][{head}]"
                raise InputError(field, kind, f"this task has heads of the kinds {known}")
    if attention.lag is not None and "lag" not in kinds:
        raise InputError("attention.lag", attention.lag, "remove it: this task has no lag heads")


def check_layers(recipe: Recipe) -> None:
    """Raise InputError unless lists per layer fit the layers, where the recipe tells their number.

    A recipe with arrays or a model does not tell: its lists are checked when those are read.
    """
    if recipe.attention is not None:
        check_network(recipe.network, len(recipe.attention.heads))


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, as they stand there."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError("recipe", str(path), f"{reason}; name a TOML file to read") from None
    except UnicodeDecodeError as problem:
        raise InputError("recipe", str(path), f"must be UTF-8 text ({problem})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise InputError("recipe", str(path), f"is not valid TOML: {problem}") from None


def parse_override(override: str) -> tuple[str, Any]:
    """Key and value of KEY=VALUE; the value is TOML, and a single word or path needs no quotation
    marks."""
    key, equals, text = override.partition("=")
    key, text = key.strip(), text.strip()
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key):
        raise InputError("--set", override, "use KEY=VALUE, as in network.widths=100")
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError as problem:
        if re.fullmatch(r"(\.{0,2}/|[A-Za-z])[\w./-]*", text):
            return key, text
        raise InputError(
            f"--set {key}", text, f"is not a TOML value: {one_line(str(problem))}"
        ) from None
    if set(parsed) != {"value"}:
        raise InputError(f"--set {key}", text, "give one TOML value")
    return key, parsed["value"]


def place(settings: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, making the tables on the way."""
    *sections, name = key.split(".")
    table = settings
    for section in sections:
        inner = table.get(section)
        if inner is None:
            inner = table[section] = {}
        if not isinstance(inner, dict):
            raise InputError(key, value, f"{section} is not a table and has no keys")
        table = inner
    table[name] = value


def flattened(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys for nested tables: [sweep] may quote its keys or not."""
    flat = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def fill_swept(settings: dict[str, Any]) -> None:
    """Give a key that only the sweep sets its first value there, so that it is not missing."""
    sweep = settings.get("sweep")
    for key, values in sweep.items() if isinstance(sweep, dict) else ():
        *sections, name = key.split(".")
        table: Any = settings
        for section in sections:
            table = table.setdefault(section, {}) if isinstance(table, dict) else None
        if isinstance(table, dict) and isinstance(values, list) and values:
            table.setdefault(name, values[0])


def resolve_data_path(settings: dict[str, Any], folder: Path) -> None:
    """Make the paths of a task absolute: in a recipe they are relative to the recipe."""
    task, sweep = settings.get("task"), settings.get("sweep")
    for key in DATA_PATHS:
        if isinstance(task, dict) and key in task:
            task[key] = resolved(task[key], key, folder)
        if isinstance(sweep, dict) and isinstance(sweep.get(f"task.{key}"), list):
            sweep[f"task.{key}"] = [resolved(path, key, folder) for path in sweep[f"task.{key}"]]


def resolved(path: Any, key: str, folder: Path) -> Any:
    """An absolute path; what is no path is left to be refused, and so are names of test sets."""
    if not isinstance(path, str) or not path or (key == "test" and not path.endswith(".npz")):
        return path
    return str((folder / path).resolve())


def known_keys(settings: dict[str, Any]) -> list[str]:
    """The dotted keys that a recipe with this kind of task may have."""
    task = settings.get("task")
    task = task if isinstance(task, dict) else {}
    kinds = {
        "markov_chain": MarkovChainSection,
        "digits": DigitsSection,
        "arrays": ArraysSection,
        "one_shot": OneShotSection,
        "time_series": SeriesArchiveSection if "folder" in task else TimeSeriesSection,
    }
    sections = {
        "task": kinds.get(str(task.get("kind")), MarkovChainSection),
        "attention": AttentionSection,
        "network": NetworkSection,
        "posterior": PosteriorSection,
        "theory": TheorySection,
        "sampler": SamplerSection,
    }
    keys = list(Recipe.model_fields)
    for name, section in sections.items():
        keys += [f"{name}.{field}" for field in section.model_fields]
    return keys


RANGE = re.compile(r"([+-]?\d+):([+-]?\d+)(?::([+-]?\d+))?")
LONGEST_RANGE = 100_000


def sweep_override(over: str) -> str:
    """The override of a recipe, `sweep.KEY=[…]`, that `--over KEY=V1,V2,…` stands for."""
    key, equals, text = (part.strip() for part in over.partition("="))
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key):
        raise InputError("--over", over, "use KEY=V1,V2, as in network.widths=10,100")
    values = [value for item in split_values(text) for value in item_values(key, item)]
    if not values:
        raise InputError(f"--over {key}", text, "is empty; give at least one value")
    return f"sweep.{key}={toml_value(values)}"


def split_values(text: str) -> list[str]:
    """Split at the commas outside of brackets and quotation marks."""
    items, depth, quote = [""], 0, ""
    for position, character in enumerate(text):
        escaped = quote == '"' and text[position - 1] == "\\"
        if quote:
            quote = "" if character == quote and not escaped else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "," and depth == 0:
            items.append("")
            continue
        items[-1] += character
    return [item.strip() for item in items]


def item_values(key: str, item: str) -> list[Any]:
    """The value that one item stands for, or the values of its range."""
    found = RANGE.fullmatch(item)
    if found is None:
        try:
            return [parse_override(f"{key}={item}")[1]]
        except InputError as problem:
            raise InputError(f"--over {key}", item, problem.remedy) from None
    start, stop, step = int(found[1]), int(found[2]), int(found[3] or 1)
    if step == 0:
        raise InputError(f"--over {key}", item, "the step of a range must not be 0")
    values = range(start, stop, step)
    if not 0 < len(values) <= LONGEST_RANGE:
        raise InputError(
            f"--over {key}",
            item,
            f"a range has from 1 to {LONGEST_RANGE} numbers; 0:3 stands for 0, 1, 2",
        )
    return list(values)
