"""The hash of a recipe: it changes with what departs from the defaults, and with nothing else."""

from sampler.attention.variants import VARIANTS
from sampler.settings.identity import settings_that_fix_draws
from sampler.settings.recipe import AnyRecipe, Recipe, TrainingRecipe, load_recipe
from sampler.settings.sampler import Sampler
from sampler.settings.toml import flattened
from tests import ROOT

SHORTEST = {"name": "a", "task": {"kind": "markov_chain"}, "network": {"widths": 3}}


def test_settings_that_fix_draws_are_all_but_those_declared_otherwise():
    recipe = Recipe(**SHORTEST)
    every = flattened(recipe.model_dump(mode="json"))
    assert set(every) - set(settings_that_fix_draws(recipe)) == {
        "sampler.until",
        "sampler.draws",
        "sampler.max_draws",
        "sampler.max_minutes",
        "sampler.repetitions",
    }
    other = Recipe(**recipe.model_dump() | {"sampler": {"chains": 3}})
    assert settings_that_fix_draws(other) != settings_that_fix_draws(recipe)
    training = TrainingRecipe(name="a", task={"kind": "one_shot"}, training={})
    every = flattened(training.model_dump(mode="json"))
    assert set(every) == set(settings_that_fix_draws(training))


class LongerSampler(Sampler):
    """The sampler with a setting that did not exist yet."""

    added: int = 3


class LongerRecipe(Recipe):
    """A recipe of a later version of the program."""

    sampler: LongerSampler = LongerSampler()
    section: Sampler = Sampler()


def test_a_new_key_with_a_default_changes_no_hash():
    recipe = load_recipe(ROOT / "runs" / "quickstart.toml", kind=AnyRecipe)
    longer = LongerRecipe(**recipe.model_dump())
    assert longer.sampler.added == 3
    assert longer.hash8 == recipe.hash8
    other = longer.model_copy(update={"sampler": longer.sampler.model_copy(update={"added": 4})})
    assert other.hash8 != recipe.hash8


def test_the_hash_tells_runs_apart_and_not_how_far_one_of_them_goes():
    """What goes on where a limit is raised, or with more points, is looked for in one folder."""

    def hashed(sweep: dict | None = None, **sampler) -> str:
        further = {"sweep": sweep} if sweep else {}
        return Recipe(**SHORTEST | {"sampler": sampler} | further).hash8

    plain = hashed()
    assert hashed(max_minutes=120.0) == hashed(max_draws=7) == plain
    different = [plain, hashed(draws=30), hashed(draws=40), hashed(chains=3), hashed(seed=1)]
    different += [hashed(algorithm="tempered", repetitions=n) for n in (5, 6)]
    width, seed = {"network.widths": [3]}, {"sampler.seed": [0]}
    different += [hashed(width), hashed(seed), hashed(width | seed), hashed(width, draws=30)]
    assert len(set(different)) == len(different)
    for values in ([3, 4], [2, 3], [5]):
        assert hashed({"network.widths": values}) == hashed(width)
    assert hashed({"network.widths": [2, 4]} | seed) == hashed(width | seed)


def test_kinds_are_in_the_hash_though_their_settings_are_defaults():
    kinds = [kind for kind in VARIANTS if kind not in ("scaled_heads", "robust")]
    hashes = {Recipe(**SHORTEST | {"attention": {"form": {"kind": kind}}}).hash8 for kind in kinds}
    assert len(hashes) == len(kinds)
