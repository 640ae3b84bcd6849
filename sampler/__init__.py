"""Sampling of deep multi-head attention networks, and their comparison with the theory.

cli          the command line, `attention-posterior` or `python -m sampler`
api          the same from Python: make_task, make_network, solve, sample, compare
errors       what can go wrong, and the exit code it has
problem, token_problem    recipe and task joined, for the theory or outside it
network, token_network    the forward pass, summed over paths or token by token
tasks        inputs and labels, with the attention matrices they fix
attention    attention matrices from inputs and frozen weights
transformer  a network trained by gradient descent, whose attention is then fixed
jobs         recipes, run directories and the stages of a run
"""

__version__ = "0.1.0"

FROM_PYTHON = ("InputError", "compare", "make_network", "make_task", "sample", "solve")
__all__ = [*FROM_PYTHON]


def __getattr__(name: str):
    """What the package offers from Python, imported when it is asked for."""
    if name not in FROM_PYTHON:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sampler import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *FROM_PYTHON})
