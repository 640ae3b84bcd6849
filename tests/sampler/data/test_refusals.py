"""Settings of tasks that cannot be used are refused by name."""

import pytest

from sampler.data.make import build_task
from sampler.errors import InputError
from sampler.settings.recipe import make_recipe

SIZES = {"examples_train": 6, "examples_test": 4}
SCALED = {"form": {"kind": "scaled_heads", "scale": 12}}
# Kind of the task, its settings, those of attention and of the network, and the key that is named.
REFUSED = [
    ("markov_chain", {"tokens": 3}, {"heads": [["lag"]]}, {}, "attention.heads[0][0]"),
    ("markov_chain", {}, {}, {"hypernetwork": [True]}, "network.hypernetwork"),
    ("markov_chain", {}, {}, {"hypernetwork": True, "heads": [[0]] * 4}, "network.heads"),
    ("time_series", {"period": 10, "lag": 5}, {}, {}, "task.period"),
    ("time_series", {"channels": 5}, {}, {}, "task.channels"),
    ("time_series", {"tokens": 7}, {"lag": 7}, {}, "attention.lag"),
    ("time_series", {"tokens": 7}, {"lag": 2, **SCALED}, {}, "attention.form"),
    ("copy", {"tokens": 1}, {}, {}, "task.tokens"),
    ("digits", {"examples_test": 1797}, {}, {}, "task.examples_test"),
    ("digits", {"classes": [1, 1]}, {}, {}, "task.classes"),
    ("raven", {"held_out": 0}, {}, {}, "task"),
    ("raven", {"rules": ["sum", "sum"]}, {}, {}, "task.rules"),
]


@pytest.mark.parametrize(("kind", "task", "attention", "network", "field"), REFUSED)
def test_what_cannot_be_used_is_refused(kind, task, attention, network, field):
    sections = {"task": {"kind": kind, **SIZES, **task}, "network": {"widths": 3, **network}}
    with pytest.raises(InputError) as caught:
        build_task(make_recipe({"name": "a", "attention": attention, **sections}))
    assert caught.value.field == field
