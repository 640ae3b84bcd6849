"""Recipes of runs and of trainings: what a TOML file asks for, with every default in place."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from sampler.errors import ABSENT, InputError, Setting, Verbatim
from sampler.settings.identity import NamedRecipe, Sections, make_paths_absolute
from sampler.settings.network_sections import (
    NetworkSection,
    OutsideTheory,
    PosteriorSection,
    TheorySection,
)
from sampler.settings.point_labels import point_labels
from sampler.settings.refusals import (
    recipe_error,
    refuse_attention,
    refuse_chains,
    refuse_layers,
    refuse_learned,
    refuse_sampler,
    refuse_untrainable,
)
from sampler.settings.sampler import SamplerSection
from sampler.settings.task_sections import (
    INPUTS,
    LEARNED,
    TASKS,
    AttentionSection,
    TaskSection,
    read_section,
    section_of,
)
from sampler.settings.toml import (
    different_values,
    flattened,
    folder_of,
    parse_over,
    parse_override,
    place,
    read_toml,
    take_out,
)
from sampler.settings.training import TRAINED, TrainedSection, TrainingSection
from sampler.settings.types import Mark, section_in

# What a sweep cannot change: its points share a name, and have no sweep of their own.
NOT_SWEPT = ("name", "sweep")
MOST_POINTS = 100_000
# How chains end: each key with the other one, and all that decides either where it is left open.
ENDS = {"sampler.draws": "until", "sampler.until": "draws"}
ENDS_BY = (*ENDS, "sampler.chains", "sampler.algorithm", "sampler.repetitions")
# Dotted keys and values that change the settings of a recipe.
Changes = Iterable[tuple[str, Any]]
SweptValues = Annotated[tuple[Any, ...], Field(min_length=1), AfterValidator(different_values)]


class Recipe(NamedRecipe):
    """All settings of a run, defaults included; frozen, and equal to what its TOML reads as."""

    task: Annotated[
        SerializeAsAny[TaskSection], BeforeValidator(partial(read_section, table=TASKS))
    ]
    attention: AttentionSection | None = None
    network: NetworkSection
    posterior: PosteriorSection = PosteriorSection()
    theory: TheorySection = TheorySection()
    sampler: SamplerSection = SamplerSection()
    sweep: Annotated[dict[str, SweptValues], Mark.CHANGES_NO_DRAW] = Field(default_factory=dict)
    _left_open: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="before")
    @classmethod
    def give_defaults_of_task(cls, settings: Any) -> Any:
        """Fill in what the task sets in [attention], if it leaves the heads open, and [network]."""
        task = settings.get("task") if isinstance(settings, dict) else None
        section = section_of(task, TASKS)
        if section is None:
            return settings
        chooses = section.head_kinds or section.brings_heads
        if not chooses and settings.get("attention") is not None:
            remedy = "remove this section: the attention matrices come with this task"
            raise InputError(Setting("attention"), settings["attention"], remedy)
        filled = {"attention": section.attention_defaults, "network": section.network_defaults}
        given = {"attention": {}} | settings
        return settings | {
            name: defaults | {key: v for key, v in given[name].items() if v is not None}
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
            return OutsideTheory(Setting("attention", "reads"), self.attention.reads)
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

        Then it has the theory of infinite width (`sampler.analysis.theory_table`).
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

    @property
    def left_open(self) -> tuple[str, ...]:
        """Keys of a sweep that each of its points fills in by its other settings."""
        return self._left_open

    def points(self) -> list[tuple[str, "Recipe"]]:
        """The points of the sweep, a grid, each with its label `key=value,…`, the last key fastest.

        A recipe without a sweep is its own only point, with an empty label.
        """
        if not self.sweep:
            return [("", self)]
        grid = itertools.product(*self.sweep.values())
        points = []
        for label, values in zip(point_labels(self.sweep), grid, strict=True):
            settings = {**self.model_dump(), "sweep": {}}
            for key in self.left_open:
                take_out(settings, key)
            for key, value in zip(self.sweep, values, strict=True):
                place(settings, key, value)
            points.append((label, make_recipe(settings)))
        return points

    def refuse_conflicts(self) -> None:
        """Raise InputError for settings that do not go together."""
        for key in self.sweep:
            if key in type(self).model_fields or key.split(".")[0] in NOT_SWEPT:
                remedy = "this key cannot be swept; name a setting, as network.widths"
                raise InputError(Setting("sweep"), key, remedy)
        points = math.prod(map(len, self.sweep.values()))
        if points > MOST_POINTS:
            remedy = f"a sweep has at most {MOST_POINTS:,} points; give fewer values"
            raise InputError(Setting("sweep"), Verbatim(f"{points:,} points"), remedy)
        refuse_chains(self.sampler)
        if self.attention is not None:  # else data or a model tell how many layers there are
            refuse_attention(self.attention, self.task, self.learns_attention)
            refuse_layers(self.network, len(self.attention.heads))
        if self.learns_attention:
            refuse_learned(self.network, self.sampler)
        refuse_sampler(self.network, self.sampler, self.outside_theory)


class TrainingRecipe(NamedRecipe):
    """All settings of a training, defaults included; frozen."""

    task: Annotated[
        SerializeAsAny[TrainedSection], BeforeValidator(partial(read_section, table=TRAINED))
    ]
    training: TrainingSection = TrainingSection()

    @property
    def seeds(self) -> dict:
        """Every seed, for the manifest."""
        task = self.task.model_dump(include={"seed"})
        return {"task": task, "training": self.training.seed}

    @property
    def precision(self) -> dict:
        """The floating-point numbers computed with, for the manifest."""
        return {"training": "float32"}

    def refuse_conflicts(self) -> None:
        """Raise InputError for settings that do not go together."""
        _ = self.training.layer_widths  # raises InputError where lists do not fit the layers
        refuse_untrainable(self.training.variants, *self.task.tokens)


AnyRecipe = Recipe | TrainingRecipe

# --- made from a file, or from nested tables and changes


def load_recipe(
    path: str | Path,
    overrides: Sequence[str] = (),
    over: Sequence[str] = (),
    kind: type[NamedRecipe] | UnionType = Recipe,
) -> Any:
    """Read and validate a recipe.

    overrides  KEY=VALUE: a dotted key and a TOML value, as in `network.widths=100`; it also takes
               a swept key out of the sweep
    over       KEY=V1,V2,…: values that the sweep takes for a key
    kind       Recipe, TrainingRecipe, or AnyRecipe

    Raises InputError for a file that cannot be read or is of another kind, a key that does not
    exist, or a value that cannot be used, in any point of the sweep.
    """
    path = Path(path)
    changes = [parse_override(override) for override in overrides]
    swept = [parse_over(values) for values in over]
    for key, count in Counter(key for key, _ in swept).items():
        if count > 1:
            raise InputError("--over", key, "give its values once, with commas between them")
    changes += [(f"sweep.{key}", values) for key, values in swept]
    return recipe_of(read_toml(path), folder_of(path), changes, kind)


def recipe_of(
    settings: dict[str, Any],
    folder: Path,
    changes: Changes = (),
    kind: type[NamedRecipe] | UnionType = Recipe,
) -> Any:
    """The recipe of nested settings, which are filled in, and of changes of dotted keys.

    Paths are relative to the folder. Raises InputError as `load_recipe` does.
    """
    sweep = settings.setdefault("sweep", {})
    if isinstance(sweep, dict):
        settings["sweep"] = flattened(sweep)  # its keys may be quoted or not
    for key, value in changes:
        change(settings, key, value)
    fill_swept(settings)
    if not issubclass(kind_of(settings), kind):
        value, remedy = ABSENT, "this section is required; a recipe without it is for `run`"
        if "training" in settings:
            value, remedy = settings["training"], "this recipe trains a network: `train`"
        raise InputError(Setting("training"), value, remedy)
    make_paths_absolute(settings, folder, sections_of(settings))
    return make_recipe(settings)


def change(settings: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, which is then no longer swept, or values of the sweep."""
    sweep = settings["sweep"] if isinstance(settings["sweep"], dict) else {}
    values = [value]
    if key.startswith("sweep.") and isinstance(settings["sweep"], dict):
        key = key.removeprefix("sweep.")
        sweep[key] = value
        values = value if isinstance(value, list) else values
    else:
        place(settings, key, value)
        sweep.pop(key, None)
    # Of the two, the one that was named last says where the chains end.
    if key in ENDS and "draws" not in values:
        take_out(settings, f"sampler.{ENDS[key]}")


def fill_swept(settings: dict[str, Any]) -> None:
    """Give every key of the sweep its first value there: another one is that of no point."""
    sweep = settings["sweep"]
    for key, values in sweep.items() if isinstance(sweep, dict) else ():
        *sections, name = key.split(".")
        table: Any = settings
        for section in sections:
            table = table.setdefault(section, {}) if isinstance(table, dict) else None
        if isinstance(table, dict) and isinstance(values, list) and values:
            table[name] = values[0]
    if sweep == {}:
        del settings["sweep"]


def make_recipe(settings: dict[str, Any]) -> Recipe | TrainingRecipe:
    """The recipe of settings that are complete; one with a section [training] is for `train`.

    Raises InputError with the setting, the value and the remedy.
    """
    try:
        recipe = kind_of(settings).model_validate(settings)
    except ValidationError as problem:
        raise recipe_error(problem, settings, sections_of(settings)) from None
    if isinstance(recipe, Recipe) and any(key in ENDS_BY for key in recipe.sweep):
        given = settings.get("sampler") or {}
        recipe._left_open = tuple(
            key for key in ENDS if given.get(key.removeprefix("sampler.")) is None
        )
    recipe.refuse_conflicts()
    return recipe


def kind_of(settings: dict[str, Any]) -> type[Recipe | TrainingRecipe]:
    """The kind of recipe that these settings are."""
    return TrainingRecipe if "training" in settings else Recipe


def sections_of(settings: dict[str, Any]) -> Sections:
    """The class of every section of such a recipe; None for an unknown kind of task."""
    kind = kind_of(settings)
    table = TRAINED if kind is TrainingRecipe else TASKS
    fields = kind.model_fields.items()
    sections = {name: section_in(field.annotation) for name, field in fields if name != "name"}
    return sections | {"task": section_of(settings.get("task"), table)}
