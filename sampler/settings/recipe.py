"""Recipes of runs and of trainings: a TOML file with every default in place."""

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, model_validator

from sampler.errors import ABSENT, InputError, Verbatim
from sampler.settings.identity import change_paths, fields_of
from sampler.settings.network_sections import Network, OutsideTheory, Posterior, Theory
from sampler.settings.point_labels import point_labels
from sampler.settings.refusals import (
    Conflict,
    conflicts_of_attention,
    conflicts_of_chains,
    conflicts_of_learned_heads,
    conflicts_of_spaces,
    conflicts_outside_theory,
    refuse_layers,
    refuse_untrainable,
)
from sampler.settings.sampler import Sampler
from sampler.settings.section import REQUIRED, TABLE, Section, dump_setting, plain
from sampler.settings.task_sections import (
    INPUTS,
    LEARNED,
    TASKS,
    Attention,
    TaskSettings,
    read_section,
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
    toml_text,
)
from sampler.settings.training import TRAINED, Training, TrainingTask
from sampler.settings.types import FOLDER, Mark, Name, RelativePath

if TYPE_CHECKING:
    from sampler.posterior.exported import FlatDensity

# Settings that a sweep cannot change: its points share a name, and have no sweep of their own.
NOT_SWEPT = ("name", "sweep")
MOST_POINTS = 100_000
# Settings of the end of chains, and those that decide its default.
ENDS = ("sampler.draws", "sampler.until")
ENDS_BY = (*ENDS, "sampler.chains", "sampler.algorithm", "sampler.repetitions")
# Dotted keys and values that change the settings of a recipe.
Changes = Mapping[str, Any] | Iterable[tuple[str, Any]]
SweptValues = Annotated[tuple[Any, ...], Field(min_length=1), AfterValidator(different_values)]
Made = TypeVar("Made", bound="AnyRecipe")


class AnyRecipe(Section):
    """A recipe of any command: a name, a hash, and a text."""

    if TYPE_CHECKING:
        task: Any
    name: Name = "python"
    """Beginning of the name of the results; required in a file."""

    @classmethod
    def load(cls: type[Made], path: str | Path, changes: Changes = ()) -> Made:
        """Read a TOML file, whose paths are relative to its folder.

        changes  values of dotted keys instead of the file's

        Raises InputError for a file that cannot be read, a key that does not exist, or a value that
        cannot be used, in any point of the sweep.
        """
        settings = read_toml(Path(path))
        before = FOLDER.set(folder_of(Path(path)))
        try:
            recipe = cls.of_settings(settings, changes)
        finally:
            FOLDER.reset(before)
        if "name" not in recipe.model_fields_set:
            raise InputError("name", ABSENT, REQUIRED)
        return recipe

    @classmethod
    def of_settings(cls: type[Made], settings: dict[str, Any], changes: Changes = ()) -> Made:
        """The recipe of nested tables, which are changed, and of changes of dotted keys.

        Raises InputError as `load` does, and for a recipe of another command.
        """
        with_changes(settings, {key: plain(value) for key, value in dict(changes).items()})
        kind = TrainingRecipe if "training" in settings else Recipe
        kind = cls if issubclass(cls, kind) else kind
        if not issubclass(kind, cls):
            value, remedy = ABSENT, "this section is required; a recipe without it is for `run`"
            if kind is TrainingRecipe:
                value, remedy = settings["training"], "this recipe trains a network: `train`"
            raise InputError("training", value, remedy)
        return kind(**settings)

    def changed(self: Made, changes: Changes) -> Made:
        """Return the recipe with other values of dotted keys, as {"network.widths": 20}.

        A key that is changed is no longer swept; "sweep.network.widths" gives values to sweep.
        Settings that depend on the changes are chosen again. Raises InputError as `Recipe` does.
        """
        return type(self).of_settings(self.given(), changes)

    def given(self) -> dict[str, Any]:
        """The settings that were given, as nested tables: all others follow from them."""
        return plain(self.model_dump(exclude_unset=True))

    @property
    def hash8(self) -> str:
        """Eight hexadecimal digits of all settings that differ from the defaults.

        A new key with a default therefore changes no hash. Of a path only its last part counts: the
        hash is the same wherever a project lies. The keys of a sweep count, not their values: it
        may grow; nor does how far a run goes at most.
        """
        departures = self.model_dump(mode="json", exclude_defaults=True) | {"name": self.name}
        self.leave_out_what_changes(departures)
        departures = {key: value for key, value in departures.items() if value != {}}
        change_paths(departures, self, RelativePath.name)
        text = json.dumps(departures, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def to_toml(self, folder: Path | None = None) -> str:
        """The resolved recipe, every default written out; it reads as an equal recipe.

        folder  of its file, to which paths are then relative
        """
        settings = self.model_dump()
        for key in self.left_open:
            take_out(settings, key)
        if folder is not None:
            change_paths(settings, self, partial(RelativePath.relative, folder=folder))
        text = toml_text({key: value for key, value in settings.items() if value != {}})
        if folder is None and (file := self.task.unwritten):
            path = toml_text({"path": file}).strip()
            text = text.replace(path, f"{path}  # arrays in memory: a run writes this file")
        return text

    @property
    def left_open(self) -> tuple[str, ...]:
        """Keys of a sweep that each of its points fills in by its other settings."""
        return ()

    def leave_out_what_changes(self, settings: dict[str, Any]) -> None:
        """Remove settings that may change between a command and the one that continues it.

        That is how far a run goes at most; of a sweep the values of its keys.
        """
        fields, swept = fields_of(self).items(), settings.get("sweep") or ()
        raised = [key for key, field in fields if Mark.CAN_BE_RAISED in field.metadata]
        for key in (*raised, *swept, *self.left_open):
            take_out(settings, key)
        if swept:
            settings["sweep"] = list(swept)

    def without_paths(self) -> dict[str, Any]:
        """The settings by section; of a path only that there is one."""
        settings = self.model_dump()
        change_paths(settings, self, lambda mark, value: mark.is_path(value) or value)
        return settings


class Recipe(AnyRecipe):
    """All settings of a run, defaults included; frozen, and equal to its TOML read again.

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
    """The network: widths, variances, readout, and its parts besides attention."""
    posterior: Posterior = Posterior()
    """The temperature."""
    theory: Theory = Theory()
    """How the theory is solved."""
    sampler: Sampler = Sampler()
    """How the posterior is sampled."""
    sweep: dict[str, SweptValues] = Field(default_factory=dict)
    """Values of dotted keys, a grid of points that are one network each."""

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
        space than "hidden_weights" and "weights", and beyond the memory.
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

    @model_validator(mode="after")
    def fill_in_and_refuse(self) -> "Recipe":
        """Fill in the task's defaults of [attention] and [network]; refuse contradictions.

        These defaults do not count as given: another task may set others.
        """
        task = self.task
        if self.attention is not None and not (task.head_kinds or task.brings_heads):
            remedy = "remove this section: the attention matrices come with this task"
            raise InputError("attention", dump_setting(self.attention), remedy)
        if task.attention_defaults:
            attention = self.attention or Attention()
            vars(self)["attention"] = attention.filled_in(task.attention_defaults)
        vars(self)["network"] = self.network.filled_in(task.network_defaults)
        change_paths({"sweep": self.sweep}, self, RelativePath.absolute)
        self.refuse_sweep()
        for applies, key, remedy in self.conflicts():
            if applies:
                raise InputError(key, dump_setting(reduce(getattr, key.split("."), self)), remedy)
        return self

    def conflicts(self) -> Iterator[Conflict]:
        """Yield contradictions of settings, each where those before it do not apply."""
        network, sampler, attention = self.network, self.sampler, self.attention
        yield from conflicts_of_chains(sampler)
        if attention is not None:  # else data or a model determine the number of layers
            yield from conflicts_of_attention(attention, self.task, self.learns_attention)
            refuse_layers(network, len(attention.heads))
        if self.learns_attention:
            yield from conflicts_of_learned_heads(network, sampler)
        yield from conflicts_of_spaces(network, sampler)
        if self.outside_theory is not None:
            yield from conflicts_outside_theory(network, sampler, self.outside_theory.setting)

    def refuse_sweep(self) -> None:
        """Raise InputError for a key that cannot be swept, and for too many points."""
        for key in self.sweep:
            if key in type(self).model_fields or key.split(".")[0] in NOT_SWEPT:
                remedy = "this key cannot be swept; name a setting, as network.widths"
                raise InputError("sweep", key, remedy)
        points = math.prod(map(len, self.sweep.values()))
        if points > MOST_POINTS:
            remedy = f"a sweep has at most {MOST_POINTS:,} points; give fewer values"
            raise InputError("sweep", Verbatim(f"{points:,} points"), remedy)

    @property
    def learns_attention(self) -> bool:
        """Whether the network keeps learned heads, so that attention is sampled."""
        kept = self.network.heads
        return self.attention is not None and any(
            kind == LEARNED and (kept is None or head in (*kept[layer : layer + 1], ())[0])
            for layer, kinds in enumerate(self.attention.heads)
            for head, kind in enumerate(kinds)
        )

    @property
    def outside_theory(self) -> OutsideTheory | None:
        """A setting that makes the network other than a sum over attention paths; None without
        one."""
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
        points = []
        grid = itertools.product(*self.sweep.values())
        for label, values in zip(point_labels(self.sweep), grid, strict=True):
            settings = self.given()
            del settings["sweep"]
            for key, value in zip(self.sweep, values, strict=True):
                place(settings, key, value)
            points.append((label, type(self)(**settings)))
        return points


class TrainingRecipe(AnyRecipe):
    """All settings of a training, defaults included; frozen."""

    task: Annotated[
        SerializeAsAny[TrainingTask], BeforeValidator(partial(read_section, table=TRAINED))
    ]
    """The examples that the network is trained on."""
    training: Training = Training()
    """Network, loss and steps."""

    @model_validator(mode="after")
    def refuse_what_does_not_fit(self) -> "TrainingRecipe":
        """Raise InputError for settings that do not go together."""
        _ = self.training.layer_widths  # raises InputError where lists do not fit the layers
        refuse_untrainable(self.training.variants, *self.task.tokens)
        return self


def load_recipe(
    path: str | Path,
    overrides: Sequence[str] = (),
    over: Sequence[str] = (),
    kind: type[AnyRecipe] = Recipe,
) -> Any:
    """Read a recipe, with changes as a command line has them.

    overrides  KEY=VALUE: a dotted key and a TOML value, as in `network.widths=100`; it also takes
               a swept key out of the sweep
    over       KEY=V1,V2,…: values that the sweep takes for a key
    kind       Recipe, TrainingRecipe, or AnyRecipe

    Raises InputError as `Recipe.load` does.
    """
    swept = [parse_over(values) for values in over]
    for key, count in Counter(key for key, _ in swept).items():
        if count > 1:
            raise InputError("--over", key, "give its values once, with commas between them")
    changes = [*map(parse_override, overrides), *((f"sweep.{key}", v) for key, v in swept)]
    return kind.load(path, changes)


def with_changes(settings: dict[str, Any], changes: dict[str, Any]) -> None:
    """Set dotted keys, which are then no longer swept, and give swept keys their first values.

    Settings of the end of chains in a change replace the former ones.
    """
    sweep = changes.pop("sweep", settings.pop("sweep", {}))
    if not isinstance(sweep, dict):
        raise InputError("sweep", sweep, TABLE)
    sweep = flattened(sweep)  # its keys may be quoted or not
    for key, value in changes.items():
        if key.endswith("sampler.draws"):
            take_out(settings, "sampler.until")
        if key.endswith("sampler.until") and "draws" not in str(value):
            take_out(settings, "sampler.draws")
    for key, value in changes.items():
        if key.startswith("sweep."):
            sweep[key.removeprefix("sweep.")] = value
        else:
            place(settings, key, value)
            sweep.pop(key, None)
    for key, values in sweep.items():
        if isinstance(values, list) and values:
            place(settings, key, values[0])  # another one is that of no point
    if sweep:
        settings["sweep"] = sweep
