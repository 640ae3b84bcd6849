"""Sampling of deep multi-head attention networks, and their comparison with the theory.

cli          the command line, `attention-posterior` or `python -m sampler`
api          the same from Python: make_task, make_network, solve, sample, compare

Rooms, in the order in which data pass through them; each knows those above it only:

attention    attention matrices from inputs and frozen weights
recipes      settings, validated and frozen
storage      run directories and files
images       characters and episodes
network      the forward pass, summed over paths
transformer  a network trained by gradient descent, whose attention is then fixed
tasks        inputs and labels, with the attention matrices they fix
token_network  a network outside the theory, followed token by token
posterior    the densities that can be sampled
problem      recipe and task joined, for the theory or outside it
mcmc         chains, their draws and diagnostics
analysis     labelled tables, and theory held against draws
presentation    figures and report, from stored results alone
jobs         the commands, stage by stage

Beside them: errors (what can go wrong, and its exit code), numerics (threads and random streams),
registry (tables that can be added to from outside).
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
