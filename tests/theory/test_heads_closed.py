"""A network whose heads send nothing against the network built without them."""

import numpy as np
import pytest

from tests.problems import random_network_data, random_problem
from theory import (
    Architecture,
    AttentionPaths,
    Predictor,
    heads_closed,
    predict,
    solve_saddle_point,
    sub_network,
)
from theory.evidence import action_without_data
from theory.infinite_width import InfiniteWidth

CASES = {
    "both layers": ((3, 2), 1, [(0, 0), (0, 2), (1, 1)]),
    "two outputs": ((2, 3), 2, [(1, 0)]),
}


@pytest.mark.heavy
@pytest.mark.parametrize("case", CASES)
def test_heads_that_send_nothing_are_heads_that_are_not_there(case, rng):
    heads, outputs, removed = CASES[case]
    widths, variances = (12,) * (len(heads) + 1), (1.2, 0.8, 1.1, 0.9, 1.3)[: len(heads) + 2]
    architecture = Architecture(heads, widths, variances, channels=3, outputs=outputs)
    problem = random_problem(architecture, rng, examples=9)
    attended = random_network_data(architecture, rng, examples=5).attended
    kept = [
        [head for head in range(count) if (layer, head) not in removed]
        for layer, count in enumerate(heads)
    ]
    found = []
    for part, seen in (
        heads_closed(problem, removed, attended),
        sub_network(problem, kept, attended),
    ):
        solved = solve_saddle_point(part)
        assert solved.converged
        predictor = Predictor.for_examples(part, seen)
        infinite = InfiniteWidth.of(part)
        found.append(
            {
                "mean and variance": predict(predictor, solved.order_parameters.factors[0]),
                "action": max(widths) * solved.action - action_without_data(part.architecture),
                "evidence": infinite.log_evidence(problem.temperature),
                "overlap": solved.order_parameters.matrices[0],
            }
        )
    paths = AttentionPaths(heads).subset(kept)
    rows = (np.asarray(paths)[:, None] * outputs + np.arange(outputs)).ravel()
    found[0]["overlap"] = np.asarray(found[0]["overlap"])[np.ix_(rows, rows)]
    for key, value in found[0].items():
        # Both are minima to 1e-10 in the slope of the action per width.
        np.testing.assert_allclose(value, found[1][key], rtol=1e-7, atol=1e-8, err_msg=key)
