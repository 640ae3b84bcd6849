"""Sampling of deep multi-head attention networks, and their comparison with the theory.

cli          the commands, `attention-posterior` or `python -m sampler`
command_line their arguments and help
api          the same from Python; its functions and classes are the names of this package

Rooms, in the order in which data pass through them; each imports those above it only:

attention    attention matrices from inputs and weights, frozen or sampled
network      the forward pass, summed over paths
token_network  a network outside the theory, followed token by token
posterior    the spaces that can be sampled
mcmc         algorithms, chains, their draws and diagnostics
settings     every setting, declared once; recipes, validated and frozen
storage      run directories and files
transformer  a network trained by gradient descent, whose attention is then fixed
data         inputs and labels of every task, with the attention matrices they fix
training     the examples and the steps of a training
torch_models PyTorch models of others: their attention as arrays
token_problem  a network whose tokens are kept, with its data
problem      recipe and task joined, for the theory or outside it
teacher      labels drawn from the network itself
analysis     labelled tables, and theory held against draws
presentation    figures and report, from stored results alone
heads        which heads of a trained model matter, and which can go
jobs         the commands, stage by stage

Also: errors (what can go wrong, and its exit code), runtime (threads, precision, random
streams, kinds of devices), compiled (programs that are kept between runs), registry (tables that
can be added to from outside).
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:  # for editors and type checkers: the same names as in CONTENTS
    from sampler.analysis.learned_heads import SampledHeads
    from sampler.api.estimators import (
        AttentionClassifier,
        AttentionEstimator,
        AttentionRegressor,
    )
    from sampler.api.heads import ablate_heads, removable
    from sampler.api.model import (
        compare,
        head_importance,
        make_problem,
        sample,
        solve,
        teacher_of,
    )
    from sampler.api.posterior import sampled_attention, weighted_draws
    from sampler.api.references import Reference, SamplerScore, reference, references
    from sampler.api.runs import Run, Sweep, check, compare_models, open_results, run, sweep
    from sampler.data.arrays import Arrays
    from sampler.data.associative_recall import AssociativeRecall
    from sampler.data.copying import Copy
    from sampler.data.digits import Digits, ImagesOfFile
    from sampler.data.in_context_regression import InContextRegression
    from sampler.data.markov_chain import MarkovChain
    from sampler.data.one_shot import OneShot
    from sampler.data.time_series import SeriesArchive, TimeSeries
    from sampler.errors import DataWarning, InputError, ReliabilityWarning
    from sampler.posterior.exported import FlatDensity
    from sampler.presentation.notebook import Comparison
    from sampler.presentation.several_runs import Models
    from sampler.settings.network_sections import Mlp, Network, Posterior, Theory
    from sampler.settings.recipe import Recipe
    from sampler.settings.sampler import Sampler
    from sampler.settings.task_sections import Attention, LearnedAttention
    from sampler.torch_models.export import export_attention

# Public names, each imported from its module at its first use.
CONTENTS = {
    "settings.recipe": "Recipe",
    "settings.network_sections": "Network Mlp Posterior Theory",
    "settings.sampler": "Sampler",
    "settings.task_sections": "Attention LearnedAttention",
    "data.markov_chain": "MarkovChain",
    "data.time_series": "TimeSeries SeriesArchive",
    "data.digits": "Digits ImagesOfFile",
    "data.copying": "Copy",
    "data.in_context_regression": "InContextRegression",
    "data.associative_recall": "AssociativeRecall",
    "data.one_shot": "OneShot",
    "data.arrays": "Arrays",
    "api.model": "solve sample compare head_importance make_problem teacher_of",
    "api.posterior": "weighted_draws sampled_attention",
    "api.references": "references reference Reference SamplerScore",
    "api.runs": "run sweep check open_results compare_models Run Sweep",
    "api.heads": "ablate_heads removable",
    "api.estimators": "AttentionClassifier AttentionRegressor AttentionEstimator",
    "analysis.learned_heads": "SampledHeads",
    "posterior.exported": "FlatDensity",
    "presentation.notebook": "Comparison",
    "presentation.several_runs": "Models",
    "torch_models.export": "export_attention",
    "errors": "InputError DataWarning ReliabilityWarning",
}
_MODULE_OF = {name: module for module, names in CONTENTS.items() for name in names.split()}
__all__ = list(_MODULE_OF)


def __getattr__(name: str):
    """The public names of the package, imported at first use."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_module(f"{__name__}.errors").refuse_another_theory()
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
