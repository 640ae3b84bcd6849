"""The recipe of a run: what a TOML file asks for, validated, with every default in place."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from sampler.errors import InputError
from sampler.recipes.sampler_section import SamplerSection
from sampler.recipes.sections import (
    Mark,
    Name,
    NetworkSection,
    OutsideTheory,
    PosteriorSection,
    RelativePath,
    Section,
    TheorySection,
    marks_of,
)
from sampler.recipes.settings import (
    flattened,
    folder_of,
    parse_override,
    place,
    read_toml,
    setting_text,
    toml_text,
)
from sampler.recipes.task_section import (
    INPUTS,
    LEARNED,
    AttentionSection,
    TaskSection,
    read_task_section,
    section_of,
)
from sampler.recipes.validation import (
    check_learned,
    check_network,
    check_sampler_fits,
    recipe_error,
)
from sampler.registry import load_plugins

# What a sweep cannot change: its points share a name, and have no sweep of their own.
NOT_SWEPT = ("name", "sweep")


class NamedRecipe(Section):
    """Base of the recipes of every command: a name, a hash, and a text."""

    name: Name

    @property
    def hash8(self) -> str:
        """Eight hexadecimal digits of all settings that differ from the defaults.

        A new key with a default therefore changes no hash.
        """
        departures = self.model_dump(mode="json", exclude_defaults=True)
        text = json.dumps(departures, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def to_toml(self) -> str:
        """The resolved recipe, every default written out; it reads as an equal recipe."""
        settings = self.model_dump()
        return toml_text({key: value for key, value in settings.items() if value != {}})


def settings_that_fix_draws(recipe: NamedRecipe) -> dict[str, Any]:
    """Return the settings, by dotted key and as JSON has them, that a resumed run must keep.

    Those that are declared with Mark.CHANGES_NO_DRAW are left out.
    """

    def kept(section: Section, dumped: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for name, field in type(section).model_fields.items():
            if Mark.CHANGES_NO_DRAW not in field.metadata:
                value = getattr(section, name)
                is_section = isinstance(value, Section)
                found[name] = kept(value, dumped[name]) if is_section else dumped[name]
        return found

    return flattened(kept(recipe, recipe.model_dump(mode="json")))


class Recipe(NamedRecipe):
    """All settings of a run, defaults included; frozen, and equal to what its TOML reads as."""

    task: Annotated[SerializeAsAny[TaskSection], BeforeValidator(read_task_section)]
    attention: AttentionSection | None = None
    network: NetworkSection
    posterior: PosteriorSection = PosteriorSection()
    theory: TheorySection = TheorySection()
    sampler: SamplerSection = SamplerSection()
    sweep: Annotated[
        dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]], Mark.CHANGES_NO_DRAW
    ] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def give_defaults_of_task(cls, settings: Any) -> Any:
        """Fill in what the task sets in [attention], if it leaves the heads open, and [network]."""
        section = section_of(settings.get("task")) if isinstance(settings, dict) else None
        if section is None:
            return settings
        chooses = section.head_kinds or section.brings_heads
        if not chooses and settings.get("attention") is not None:
            raise InputError(
                "attention",
                settings["attention"],
                "remove this section: the attention matrices come with this task",
            )
        filled = {"attention": section.attention_defaults, "network": section.network_defaults}
        given = {"attention": {}} | settings
        return settings | {
            name: {**defaults, **given[name]}
            for name, defaults in filled.items()
            if defaults and isinstance(given.get(name), dict)
        }

    @property
    def learns_attention(self) -> bool:
        """Whether the network keeps learned heads, so that attention is sampled, too."""
        kept = self.network.heads
        return self.attention is not None and any(
            kind == LEARNED and (kept is None or head in (*kept[layer : layer + 1], ())[0])
            for layer, kinds in enumerate(self.attention.heads)
            for head, kind in enumerate(kinds)
        )

    @property
    def outside_theory(self) -> OutsideTheory | None:
        """A setting by which the network is no sum over attention paths; None where it is one."""
        if self.learns_attention and self.attention.reads != INPUTS:
            return OutsideTheory("attention.reads", self.attention.reads, INPUTS)
        return self.network.outside_theory

    @property
    def fits_theory(self) -> bool:
        """Whether the network is a sum over attention paths, of attention that is fixed or not."""
        return self.outside_theory is None

    @property
    def has_theory(self) -> bool:
        """Whether the theory describes the network: a sum over paths, attention that is fixed."""
        return self.fits_theory and not self.learns_attention

    @property
    def has_value_theories(self) -> bool:
        """Whether nonlinear values alone keep the network from a sum over paths of its heads.

        Then it has the theory of infinite width (`sampler.analysis.value_theories`).
        """
        network = self.network
        with_linear = network.model_copy(update={"values": "linear"})
        pairs = network.hypernetwork is True or any(network.hypernetwork or ())
        alone = network.values != "linear" and with_linear.outside_theory is None
        return alone and not pairs and not self.learns_attention

    @property
    def is_solved(self) -> bool:
        """Whether there is a theory to be solved."""
        return self.has_theory or self.has_value_theories

    @property
    def seeds(self) -> dict:
        """Every seed, for the manifest."""
        task = self.task.model_dump(include={"seed", "head_seed", "split_seed", "teacher_seed"})
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


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and validate a recipe.

    Each override is KEY=VALUE: a dotted key and a TOML value, as in `network.widths=100`; it
    also takes a swept key out of the sweep. Raises InputError for a file that cannot be read, a
    key that does not exist, or a value that cannot be used, in any point of the sweep.
    """
    path = Path(path)
    return recipe_of(read_toml(path), folder_of(path), map(parse_override, overrides))


def recipe_of(
    settings: dict[str, Any], folder: Path, changes: Iterable[tuple[str, Any]] = ()
) -> Recipe:
    """The recipe of nested settings, which are filled in, and of changes of dotted keys.

    Paths are relative to the folder. Raises InputError as `load_recipe` does.
    """
    if "training" in settings:
        raise InputError("training", settings["training"], "this recipe trains a network: `train`")
    load_plugins()  # before the paths of a task are looked for
    sweep = settings.setdefault("sweep", {})
    if isinstance(sweep, dict):
        settings["sweep"] = sweep = flattened(sweep)  # its keys may be quoted or not
    for key, value in changes:
        if isinstance(sweep, dict) and key.startswith("sweep."):
            sweep[key.removeprefix("sweep.")] = value
        else:
            place(settings, key, value)
            # Of the two, the one that was named last says where the chains end.
            ends = {"sampler.draws": "until", "sampler.until": "draws"}.get(key)
            if ends and value != "draws":
                settings["sampler"].pop(ends, None)
            if isinstance(sweep, dict):
                sweep.pop(key, None)
    fill_swept(settings)
    make_paths_absolute(settings, folder, sections_of(settings))
    recipe = make_recipe(settings)
    check_layers(recipe)
    return recipe


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


def make_paths_absolute(
    settings: dict[str, Any], folder: Path, sections: Mapping[str, type[Section] | None]
) -> None:
    """Make the paths among settings, which are relative to the folder, absolute; in sweeps too."""
    for name, section in sections.items():
        for key, field in section.model_fields.items() if section else ():
            marks = marks_of(field.annotation, field.metadata)
            path = next((mark for mark in marks if isinstance(mark, RelativePath)), None)
            table, swept = settings.get(name), settings.get("sweep")
            if path is not None and isinstance(table, dict) and key in table:
                table[key] = path.absolute(table[key], folder)
            values = swept.get(f"{name}.{key}") if isinstance(swept, dict) else None
            if path is not None and isinstance(values, list):
                swept[f"{name}.{key}"] = [path.absolute(value, folder) for value in values]


def sections_of(settings: Mapping[str, Any]) -> dict[str, type[Section] | None]:
    """Return the class of every section of a recipe; of a task without a known kind, None."""
    return {
        "task": section_of(settings.get("task")),
        "attention": AttentionSection,
        "network": NetworkSection,
        "posterior": PosteriorSection,
        "theory": TheorySection,
        "sampler": SamplerSection,
        "sweep": None,
    }


def make_recipe(settings: dict[str, Any]) -> Recipe:
    """Validate settings; raises InputError with the dotted key, the value and the remedy."""
    load_plugins()
    for key in settings["sweep"] if isinstance(settings.get("sweep"), dict) else ():
        if {key, key.split(".")[0]} & {*NOT_SWEPT}:
            raise InputError("sweep", key, "this key cannot be swept")
    try:
        recipe = Recipe.model_validate(settings)
    except ValidationError as problem:
        raise recipe_error(problem, settings, sections_of(settings)) from None
    check_attention(recipe)
    if recipe.learns_attention:
        check_learned(recipe.network, recipe.sampler, recipe.outside_theory)
    check_sampler_fits(recipe.network, recipe.sampler, recipe.outside_theory)
    return recipe


def check_attention(recipe: Recipe) -> None:
    """Raise InputError unless the heads are of kinds that the task has."""
    attention, kinds = recipe.attention, recipe.task.head_kinds
    if attention is None:
        return
    if attention.reads != INPUTS and not recipe.learns_attention:
        remedy = f'heads that are fixed attend to inputs; use "{INPUTS}", or heads of the kind '
        raise InputError("attention.reads", attention.reads, f'{remedy}"{LEARNED}"')
    if recipe.task.brings_heads:
        return
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
