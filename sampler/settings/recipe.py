"""Recipes of runs and of trainings: what a TOML file asks for, with every default in place."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, model_validator

from sampler.errors import ABSENT, InputError, Verbatim
from sampler.settings.identity import NamedRecipe, Sections, make_paths_absolute
from sampler.settings.network_sections import Network, OutsideTheory, Posterior, Theory
from sampler.settings.point_labels import point_labels
from sampler.settings.refusals import (
    refuse_attention,
    refuse_chains,
    refuse_layers,
    refuse_learned,
    refuse_sampler,
    refuse_untrainable,
)
from sampler.settings.sampler import Sampler
from sampler.settings.section import REQUIRED, Section, plain, section_in
from sampler.settings.task_sections import (
    INPUTS,
    LEARNED,
    TASKS,
    Attention,
    TaskSettings,
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
from sampler.settings.training import TRAINED, Training, TrainingTask
from sampler.settings.types import Mark

if TYPE_CHECKING:
    from sampler.posterior.exported import FlatDensity

# What a sweep cannot change: its points share a name, and have no sweep of their own.
NOT_SWEPT = ("name", "sweep")
MOST_POINTS = 100_000
# How chains end: each key with the other one, and all that decides either where it is left open.
ENDS = {"sampler.draws": "until", "sampler.until": "draws"}
ENDS_BY = (*ENDS, "sampler.chains", "sampler.algorithm", "sampler.repetitions")
# Dotted keys and values that change the settings of a recipe.
Changes = Mapping[str, Any] | Iterable[tuple[str, Any]]
SweptValues = Annotated[tuple[Any, ...], Field(min_length=1), AfterValidator(different_values)]


class Recipe(NamedRecipe):
    """All settings of a run, defaults included; frozen, and equal to what its TOML reads as.

    Sections are objects, as `sampler.Network(widths=10)`, or dictionaries with the keys of the
    file. Paths are relative to the working directory.
    """

    task: Annotated[
        SerializeAsAny[TaskSettings], BeforeValidator(partial(read_section, table=TASKS))
    ]
    """The data, such as `sampler.MarkovChain()`."""
    attention: Attention | None = None
    """The heads, where the task leaves them open; by default those that it sets."""
    network: Network
    """The network: widths, variances, readout, and what is in it beside attention."""
    posterior: Posterior = Posterior()
    """The temperature."""
    theory: Theory = Theory()
    """How the theory is solved."""
    sampler: Sampler = Sampler()
    """How the posterior is sampled."""
    sweep: Annotated[dict[str, SweptValues], Mark.CHANGES_NO_DRAW] = Field(default_factory=dict)
    """Values of dotted keys, a grid of points that are one network each."""

    @classmethod
    def load(cls, path: str | Path, changes: Changes = ()) -> "Recipe":
        """Read a TOML file, whose paths are relative to its folder.

        changes  values of dotted keys in the place of the file's

        Raises InputError for a file that cannot be read, a key that does not exist, or a value that
        cannot be used, in any point of the sweep.
        """
        return recipe_from_file(Path(path), changes, cls)

    def changed(self, changes: Changes) -> "Recipe":
        """Return the recipe with other values of dotted keys, as {"network.widths": 20}.

        A key that is changed is no longer swept; "sweep.network.widths" gives values to sweep. What
        follows from what was changed is chosen anew. Raises InputError as `Recipe` does.
        """
        return recipe_of(self.given(), Path.cwd(), changes, type(self))

    def numpyro_model(
        self, space: str = "weights", *, sites: Sequence[str] = ()
    ) -> tuple[Callable[..., None], dict[str, Any]]:
        """Return the posterior as a plain NumPyro model, with the arguments to call it with.

        space  "weights": all weights, labels example by example; "hidden_weights" and
               "order_parameters": the readout, or all weights, integrated out, and all labels as
               one site; "attention": the logit weights of learned heads alone, at infinite width
        sites  further deterministic sites, on the test set: "predictor" where all weights are
               sampled, else "predictor_mean" and "predictor_variance"

        The keyword argument `labels` is None where labels are to be drawn; `inputs_new` adds the
        site `y_new`, labels of new examples. Raises InputError where JAX does not compute in
        float64 (`numpyro.enable_x64()` comes first), for a network outside the theory in another
        space than "hidden_weights" and "weights", and for what does not fit the memory.
        """
        from sampler.api.posterior import numpyro_model

        return numpyro_model(self, space, sites)

    def log_density(self, space: str = "order_parameters") -> "FlatDensity":
        """Return the posterior as a function of one flat vector, for any sampler that takes one.

        space  whose coordinates the vector has

        Raises InputError as `numpyro_model` does.
        """
        from sampler.api.posterior import log_density

        return log_density(self, space)

    @model_validator(mode="wrap")
    @classmethod
    def give_defaults_of_task(cls, settings: Any, handler: Callable[[Any], "Recipe"]) -> "Recipe":
        """Fill in what the task sets in [attention], if it leaves the heads open, and [network].

        What is filled in does not count as set: another task may set something else.
        """
        task = settings.get("task") if isinstance(settings, dict) else None
        section = type(task) if isinstance(task, TaskSettings) else section_of(task, TASKS)
        if section is None:
            return handler(settings)
        chooses = section.head_kinds or section.brings_heads
        if not chooses and settings.get("attention") is not None:
            remedy = "remove this section: the attention matrices come with this task"
            raise InputError("attention", settings["attention"], remedy)
        given = {"attention": {}} | {
            name: value.model_dump(exclude_unset=True) if isinstance(value, Section) else value
            for name, value in settings.items()
            if name in ("attention", "network") and value is not None
        }
        filled = {"attention": section.attention_defaults, "network": section.network_defaults}
        filled = {n: d for n, d in filled.items() if d and isinstance(given.get(n), dict)}
        stated = {n: {k: v for k, v in given[n].items() if v is not None} for n in filled}
        recipe = handler(settings | {n: filled[n] | stated[n] for n in filled})
        for name in filled:
            getattr(recipe, name).model_fields_set.intersection_update(stated[name])
        if settings.get("attention") is None:
            recipe.model_fields_set.discard("attention")
        return recipe

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
            return OutsideTheory("attention.reads", self.attention.reads)
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
        return {
            "task": self.task.seeds(), "theory": self.theory.seed, "sampler": self.sampler.seed,
        }  # fmt: skip

    @property
    def precision(self) -> dict:
        """The floating-point numbers computed with, for the manifest."""
        return {"theory": "float64", "sampler": self.sampler.precision}

    @property
    def left_open(self) -> tuple[str, ...]:
        """Keys of a sweep that each of its points fills in by its other settings."""
        if not any(key in ENDS_BY for key in self.sweep):
            return ()
        given = self.sampler.model_fields_set
        return tuple(key for key in ENDS if key.removeprefix("sampler.") not in given)

    def points(self) -> list[tuple[str, "Recipe"]]:
        """The points of the sweep, a grid, each with its label `key=value,…`, the last key fastest.

        A recipe without a sweep is its own only point, with an empty label.
        """
        if not self.sweep:
            return [("", self)]
        grid = itertools.product(*self.sweep.values())
        points = []
        for label, values in zip(point_labels(self.sweep), grid, strict=True):
            settings = self.given()
            del settings["sweep"]
            for key, value in zip(self.sweep, values, strict=True):
                place(settings, key, value)
            points.append((label, type(self)(**settings)))
        return points

    def refuse_conflicts(self) -> None:
        """Raise InputError for settings that do not go together."""
        for key in self.sweep:
            if key in type(self).model_fields or key.split(".")[0] in NOT_SWEPT:
                remedy = "this key cannot be swept; name a setting, as network.widths"
                raise InputError("sweep", key, remedy)
        points = math.prod(map(len, self.sweep.values()))
        if points > MOST_POINTS:
            remedy = f"a sweep has at most {MOST_POINTS:,} points; give fewer values"
            raise InputError("sweep", Verbatim(f"{points:,} points"), remedy)
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
        SerializeAsAny[TrainingTask], BeforeValidator(partial(read_section, table=TRAINED))
    ]
    """The examples that the network is trained on."""
    training: Training = Training()
    """Network, loss and steps."""

    @property
    def seeds(self) -> dict:
        """Every seed, for the manifest."""
        return {"task": self.task.seeds(), "training": self.training.seed}

    @property
    def precision(self) -> dict:
        """The floating-point numbers computed with, for the manifest."""
        return {"training": "float32"}

    def refuse_conflicts(self) -> None:
        """Raise InputError for settings that do not go together."""
        _ = self.training.layer_widths  # raises InputError where lists do not fit the layers
        refuse_untrainable(self.training.variants, *self.task.tokens)


AnyRecipe = Recipe | TrainingRecipe
# The kinds of recipe that a reader accepts.
Kinds = type[NamedRecipe] | UnionType

# --- made from a file, or from nested tables and changes


def load_recipe(
    path: str | Path,
    overrides: Sequence[str] = (),
    over: Sequence[str] = (),
    kind: Kinds = Recipe,
) -> Any:
    """Read a recipe, with changes as a command line has them.

    overrides  KEY=VALUE: a dotted key and a TOML value, as in `network.widths=100`; it also takes
               a swept key out of the sweep
    over       KEY=V1,V2,…: values that the sweep takes for a key
    kind       Recipe, TrainingRecipe, or AnyRecipe

    Raises InputError as `Recipe.load` does, and for a recipe of another kind.
    """
    changes = [parse_override(override) for override in overrides]
    swept = [parse_over(values) for values in over]
    for key, count in Counter(key for key, _ in swept).items():
        if count > 1:
            raise InputError("--over", key, "give its values once, with commas between them")
    changes += [(f"sweep.{key}", values) for key, values in swept]
    return recipe_from_file(Path(path), changes, kind)


def recipe_from_file(path: Path, changes: Changes, kind: Kinds) -> Any:
    """The recipe of a file, which has to name it, with changes of dotted keys."""
    settings = read_toml(path)
    recipe = recipe_of(settings, folder_of(path), changes, kind)
    if "name" not in recipe.model_fields_set:
        raise InputError("name", ABSENT, REQUIRED)
    return recipe


def recipe_of(
    settings: dict[str, Any], folder: Path, changes: Changes = (), kind: Kinds = Recipe
) -> Any:
    """The recipe of nested settings, which are filled in, and of changes of dotted keys.

    Paths are relative to the folder. Raises InputError as `load_recipe` does.
    """
    sweep = settings.setdefault("sweep", {})
    if isinstance(sweep, dict):
        settings["sweep"] = flattened(sweep)  # its keys may be quoted or not
    named = list(changes.items() if isinstance(changes, Mapping) else changes)
    for key, value in named:
        change(settings, key, plain(value))
    for key, value in named:
        choose_end_anew(settings, key, value, [other for other, _ in named])
    fill_swept(settings)
    made = kind_of(settings)
    if not issubclass(made, kind):
        value, remedy = ABSENT, "this section is required; a recipe without it is for `run`"
        if made is TrainingRecipe:
            value, remedy = settings["training"], "this recipe trains a network: `train`"
        raise InputError("training", value, remedy)
    make_paths_absolute(settings, folder, sections_of(settings))
    return (kind if isinstance(kind, type) and issubclass(kind, made) else made)(**settings)


def change(settings: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, which is then no longer swept, or values of the sweep."""
    sweep = settings["sweep"] if isinstance(settings["sweep"], dict) else {}
    if key.startswith("sweep.") and isinstance(settings["sweep"], dict):
        sweep[key.removeprefix("sweep.")] = value
    else:
        place(settings, key, value)
        sweep.pop(key, None)


def choose_end_anew(settings: dict[str, Any], key: str, value: Any, named: Sequence[str]) -> None:
    """Where a change says how chains end, forget the other setting that said so before."""
    values = value if key.startswith("sweep.") and isinstance(value, list | tuple) else [value]
    key = key.removeprefix("sweep.")
    other = f"sampler.{ENDS[key]}" if key in ENDS else ""
    if other and "draws" not in values and other not in named and f"sweep.{other}" not in named:
        take_out(settings, other)


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
