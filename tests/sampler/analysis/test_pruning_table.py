"""The table of removed heads, for networks whose right answers are known for every removal."""

import numpy as np
import pytest

from sampler.analysis.pruning_table import PruningSettings, PruningTable, pruning_table
from sampler.presentation.figures.pruning import draw_pruning
from sampler.presentation.summary import pruning_text
from sampler.transformer.frozen import FrozenNetwork
from sampler.transformer.pruning import PrunedNetworks
from tests.problems import ARCHITECTURES, random_problem, random_weights

EXAMPLES = 64
ARCHITECTURE = ARCHITECTURES["two layers"]
# What each head is worth, in examples: different for every set of heads.
WORTH = {(0, 0): 1, (0, 1): 2, (1, 0): 4, (1, 1): 8, (1, 2): 16}


def first_right(count: int) -> np.ndarray:
    return np.arange(EXAMPLES) < count


class KnownNetworks(PrunedNetworks):
    """Unpruned: 64, 60 and 60 examples right; the theory loses 1 and refitted 2 more by pruning."""

    def trained(self, removed):
        return first_right(64 - sum(WORTH[head] for head in removed))

    def zeroed(self, removed):
        return first_right(60 - sum(WORTH[head] for head in removed) - (1 if removed else 0))

    def refitted(self, removed):
        return first_right(60 - sum(WORTH[head] for head in removed) - (2 if removed else 0))


@pytest.fixture(scope="module")
def table() -> PruningTable:
    return table_of_known()


def table_of_known(**options) -> PruningTable:
    rng = np.random.default_rng(7)
    problem = random_problem(ARCHITECTURE, rng)
    weights = random_weights(ARCHITECTURE, rng)
    network = FrozenNetwork(weights)
    paths = int(np.prod(ARCHITECTURE.heads))
    labels = np.asarray(problem.labels)
    known = KnownNetworks(problem, network, problem.attended, labels, np.eye(paths))
    settings = PruningSettings(ARCHITECTURE.widths, problem.temperature, "test", EXAMPLES, seed=3)
    scores = {"theory": np.array([5.0, 3.0, 1.0, 2.0, 4.0])}
    return pruning_table(known, scores, 2, settings, lambda _: None, **options)


def test_accuracy_after_each_removal_is_that_without_the_heads_removed_so_far(table):
    orders = (table.orders.score, table.orders.magnitude, *table.orders.random)
    assert table.orders.score.removed == ((2, 0), (2, 1), (1, 1))
    for order in orders:
        lost = np.cumsum([WORTH[layer - 1, head] for layer, head in order.removed])
        assert [one.accuracy for one in order.trained] == list((64 - lost) / EXAMPLES)
        assert [one.accuracy for one in order.theory_zeroed] == list((59 - lost) / EXAMPLES)
    lost = np.cumsum([4, 8, 2])
    refitted = [one.accuracy for one in table.orders.score.theory_refitted]
    assert refitted == list((58 - lost) / EXAMPLES)


def test_the_theory_need_not_be_solved_again(table):
    shorter = table_of_known(solve_again=False)
    assert shorter.orders.score.theory_refitted is None
    assert all(shorter.refitted_without(head) is None for head in shorter.heads)
    assert shorter.orders.score.trained == table.orders.score.trained
    assert {name: shorter.alone[name] for name in ("trained", "theory_zeroed")} == {
        name: drops for name, drops in table.alone.items() if name != "theory_refitted"
    }
    rows = pruning_text(shorter).splitlines()[4:9]
    assert [row.split()[-1] for row in rows] == ["–"] * 5
    draw_pruning(shorter)


def test_drops_are_from_the_same_network_with_all_its_heads(table):
    worth = np.array(list(WORTH.values()))
    assert {name: one.accuracy for name, one in table.unpruned.items()} == {
        "trained": 1.0,
        "theory": 60 / EXAMPLES,
    }
    expected = {"trained": worth, "theory_zeroed": worth + 1, "theory_refitted": worth + 2}
    for name, lost in expected.items():
        assert [one.drop for one in table.alone[name]] == list(lost / EXAMPLES)
