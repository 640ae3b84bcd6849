"""What gradient descent made of the same network, beside the theory: columns of `theory.nc`."""

from sampler.problem import Problem
from sampler.transformer.trained_predictor import trained_overlap, trained_predictor
from theory import AttentionPaths, head_scores
from theory.accuracy import accuracy


def trained_columns(problem: Problem) -> dict:
    """U_GD, its head scores, and accuracies on the test set of trained network and pixels."""
    columns: dict = {}
    if problem.nearest_neighbour is not None and problem.labels_test is not None:
        right = 0.5 + 0.5 * problem.nearest_neighbour * problem.labels_test[:, 0]
        columns["accuracy_nearest_neighbour"] = ((), right.mean())
    if problem.trained is not None:
        overlap = trained_overlap(problem.trained)
        predictions = trained_predictor(problem.trained, problem.attended_test)
        columns["order_parameter_trained"] = (("path", "path_"), overlap)
        columns["head_score_trained"] = (
            ("layer", "head"),
            head_scores(overlap, AttentionPaths(problem.trained.heads)),
        )
        columns["accuracy_trained"] = ((), accuracy(predictions, problem.labels_test))
    return columns
