"""The recipe of a run: what a TOML file asks for, validated, with every default in place."""

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from os.path import isabs
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from sampler.errors import InputError, Setting, Verbatim
from sampler.registry import load_plugins
from sampler.settings.network import (
    NetworkSection,
    OutsideTheory,
    PosteriorSection,
    TheorySection,
)
from sampler.settings.paths import (
    SEEN,
    change_paths,
    make_paths_absolute,
    make_paths_relative,
    path_mark,
)
from sampler.settings.refusals import (
    Sections,
    recipe_error,
    refuse_attention,
    refuse_chains,
    refuse_layers,
    refuse_learned,
    refuse_sampler,
)
from sampler.settings.sampler import SamplerSection
from sampler.settings.task import (
    INPUTS,
    LEARNED,
    AttentionSection,
    TaskSection,
    read_task_section,
    section_of,
)
from sampler.settings.toml import (
    different_names,
    different_values,
    flattened,
    folder_of,
    parse_over,
    parse_override,
    place,
    point_label,
    read_toml,
    toml_text,
)
from sampler.settings.types import Mark, Name, RelativePath, Section

# What a sweep cannot change: its points share a name, and have no sweep of their own.
NOT_SWEPT = ("name", "sweep")
MOST_POINTS = 100_000
# Dotted keys and values that change the settings of a recipe.
Changes = Iterable[tuple[str, Any]]


class NamedRecipe(Section):
    """Base of the recipes of every command: a name, a hash, and a text."""

    name: Name

    @property
    def sections(self) -> Sections:
        """The class of every section."""
        return {name: type(one) for name, one in self if isinstance(one, Section)}

    @property
    def hash8(self) -> str:
        """Eight hexadecimal digits of all settings that differ from the defaults.

        A new key with a default therefore changes no hash. Of a path only its last part counts: the
        hash is the same wherever a project lies.
        """
        departures = self.model_dump(mode="json", exclude_defaults=True)
        change_paths(departures, self.sections, RelativePath.name)
        text = json.dumps(departures, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def to_toml(self, folder: Path | None = None) -> str:
        """The resolved recipe, every default written out; it reads as an equal recipe.

        folder  of its file, to which paths are then relative; where they lead now follows at the
                end
        """
        settings = self.model_dump()
        if folder is not None:
            settings[SEEN] = make_paths_relative(settings, folder, self.sections)
        return toml_text({key: value for key, value in settings.items() if value != {}})

    def without_paths(self) -> dict[str, Any]:
        """The settings by section; of a path only that there is one."""
        settings = self.model_dump()
        change_paths(settings, self.sections, lambda mark, value: mark.is_path(value) or value)
        return settings


def settings_that_fix_draws(recipe: NamedRecipe) -> dict[str, Any]:
    """Return the settings, by dotted key and as JSON has them, that a resumed run must keep.

    Those that are declared with Mark.CHANGES_NO_DRAW are left out, and paths: what lies there is
    told by its checksum.
    """

    def fixing(section: Section, dumped: dict[str, Any]) -> dict[str, Any]:
        settings = {}
        for key, field in type(section).model_fields.items():
            value, path = getattr(section, key), path_mark(field)
            is_path = path is not None and path.is_path(value)
            if Mark.CHANGES_NO_DRAW not in field.metadata and not is_path:
                is_section = isinstance(value, Section)
                settings[key] = fixing(value, dumped[key]) if is_section else dumped[key]
        return settings

    return flattened(fixing(recipe, recipe.model_dump(mode="json")))


SweptValues = Annotated[tuple[Any, ...], Field(min_length=1), AfterValidator(different_values)]


class Recipe(NamedRecipe):
    """All settings of a run, defaults included; frozen, and equal to what its TOML reads as."""

    task: Annotated[SerializeAsAny[TaskSection], BeforeValidator(read_task_section)]
    attention: AttentionSection | None = None
    network: NetworkSection
    posterior: PosteriorSection = PosteriorSection()
    theory: TheorySection = TheorySection()
    sampler: SamplerSection = SamplerSection()
    sweep: Annotated[dict[str, SweptValues], Mark.CHANGES_NO_DRAW] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def give_defaults_of_task(cls, settings: Any) -> Any:
        """Fill in what the task sets in [attention], if it leaves the heads open, and [network]."""
        section = section_of(settings.get("task")) if isinstance(settings, dict) else None
        if section is None:
            return settings
        chooses = section.head_kinds or section.brings_heads
        if not chooses and settings.get("attention") is not None:
            remedy = "remove this section: the attention matrices come with this task"
            raise InputError(Setting("attention"), settings["attention"], remedy)
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
            return OutsideTheory(Setting("attention", "reads"), self.attention.reads, INPUTS)
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
        shown = itertools.product(*map(self.shown_values, self.sweep))
        for values, texts in zip(itertools.product(*self.sweep.values()), shown, strict=True):
            settings = {**self.model_dump(), "sweep": {}}
            for key, value in zip(self.sweep, values, strict=True):
                place(settings, key, value)
            points.append((point_label(self.sweep, texts), make_recipe(settings)))
        return points

    def shown_values(self, key: str) -> Sequence[Any]:
        """The values of a swept key in labels, which are the same wherever a project lies."""
        section, _, name = key.partition(".")
        fields = self.sections[section].model_fields if section in self.sections else {}
        mark = path_mark(fields[name]) if name in fields else None
        values = self.sweep[key]
        if mark is None or not all(mark.is_path(value) and isabs(value) for value in values):
            return values
        return different_names(values)


def load_recipe(
    path: str | Path, overrides: Sequence[str] = (), over: Sequence[str] = ()
) -> Recipe:
    """Read and validate a recipe.

    overrides  KEY=VALUE: a dotted key and a TOML value, as in `network.widths=100`; it also takes
               a swept key out of the sweep
    over       KEY=V1,V2,…: values that the sweep takes for a key

    Raises InputError for a file that cannot be read, a key that does not exist, or a value that
    cannot be used, in any point of the sweep.
    """
    path = Path(path)
    changes = [parse_override(override) for override in overrides]
    swept = [parse_over(values) for values in over]
    for key, count in Counter(key for key, _ in swept).items():
        if count > 1:
            raise InputError("--over", key, "give its values once, with commas between them")
    changes += [(f"sweep.{key}", values) for key, values in swept]
    return recipe_of(read_toml(path), folder_of(path), changes)


def recipe_of(settings: dict[str, Any], folder: Path, changes: Changes = ()) -> Recipe:
    """The recipe of nested settings, which are filled in, and of changes of dotted keys.

    Paths are relative to the folder. Raises InputError as `load_recipe` does.
    """
    if "training" in settings:
        remedy = "this recipe trains a network: `train`"
        raise InputError(Setting("training"), settings["training"], remedy)
    load_plugins()  # before the paths of a task are looked for
    sweep = settings.setdefault("sweep", {})
    if isinstance(sweep, dict):
        settings["sweep"] = flattened(sweep)  # its keys may be quoted or not
    for key, value in changes:
        change(settings, key, value)
    if settings["sweep"]:
        fill_swept(settings)
    make_paths_absolute(settings, folder, sections_of(settings.get("task")))
    recipe = make_recipe(settings)
    if recipe.attention is not None:  # else data or a model tell how many layers there are
        refuse_layers(recipe.network, len(recipe.attention.heads))
    return recipe


def change(settings: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, which is then no longer swept, or values of the sweep."""
    sweep = settings["sweep"] if isinstance(settings["sweep"], dict) else {}
    if key.startswith("sweep.") and isinstance(settings["sweep"], dict):
        sweep[key.removeprefix("sweep.")] = value
        return
    place(settings, key, value)
    sweep.pop(key, None)
    # Of the two, the one that was named last says where the chains end.
    ends = {"sampler.draws": "until", "sampler.until": "draws"}.get(key)
    if ends and value != "draws":
        settings["sampler"].pop(ends, None)


def fill_swept(settings: dict[str, Any]) -> None:
    """Give a key that only the sweep sets its first value there, so that it is not missing."""
    sweep = settings["sweep"]
    for key, values in sweep.items() if isinstance(sweep, dict) else ():
        *sections, name = key.split(".")
        table: Any = settings
        for section in sections:
            table = table.setdefault(section, {}) if isinstance(table, dict) else None
        if isinstance(table, dict) and isinstance(values, list) and values:
            table.setdefault(name, values[0])


def sections_of(task: Any) -> Sections:
    """Return the class of every section of a recipe with this task; None for an unknown kind."""
    return {
        "task": section_of(task),
        "attention": AttentionSection,
        "network": NetworkSection,
        "posterior": PosteriorSection,
        "theory": TheorySection,
        "sampler": SamplerSection,
        "sweep": None,
    }


def make_recipe(settings: dict[str, Any]) -> Recipe:
    """Validate settings; raises InputError with the setting, the value and the remedy."""
    load_plugins()
    sections = sections_of(settings.get("task"))
    for key in settings["sweep"] if isinstance(settings.get("sweep"), dict) else ():
        if key in sections or key.split(".")[0] in NOT_SWEPT:
            remedy = "this key cannot be swept; name a setting, as network.widths"
            raise InputError(Setting("sweep"), key, remedy)
    try:
        recipe = Recipe.model_validate(settings)
    except ValidationError as problem:
        raise recipe_error(problem, settings, sections) from None
    points = math.prod(map(len, recipe.sweep.values()))
    if points > MOST_POINTS:
        remedy = f"a sweep has at most {MOST_POINTS:,} points; give fewer values"
        raise InputError(Setting("sweep"), Verbatim(f"{points:,} points"), remedy)
    refuse_conflicts(recipe)
    return recipe


def refuse_conflicts(recipe: Recipe) -> None:
    """Raise InputError for settings of a recipe that do not go together."""
    network, sampler, learns = recipe.network, recipe.sampler, recipe.learns_attention
    refuse_chains(sampler)
    if recipe.attention is not None:
        refuse_attention(recipe.attention, recipe.task, learns)
    if learns:
        refuse_learned(network, sampler)
    refuse_sampler(network, sampler, recipe.outside_theory)
