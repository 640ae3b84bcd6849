"""Sampling of deep multi-head attention networks, and their comparison with the theory.

cli          the commands, `attention-posterior` or `python -m sampler`
command_line their arguments and help
api          the same from Python; its functions and classes are the names of this package

Rooms, in the order in which data pass through them; each knows those above it only:

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

Beside them: errors (what can go wrong, and its exit code), runtime (threads, precision, random
streams, kinds of devices), compiled (programs that are kept between runs), registry (tables that
can be added to from outside).
"""

from importlib import import_module

__version__ = "0.1.0"

# Public names, each imported from its module at its first use.
CONTENTS = {
    "api.tasks": "markov_chain_task time_series_task series_archive_task digits_task copy_task "
    "one_shot_task arrays_task make_task ChosenTask",
    "api.model": "make_network ChosenNetwork solve sample compare head_importance make_problem "
    "teacher_of",
    "api.posterior": "numpyro_model log_density weighted_draws attention_found",
    "analysis.learned_heads": "SampledHeads",
    "posterior.exported": "FlatDensity",
    "api.heads": "ablate_heads removable",
    "api.runs": "run sweep check open_results compare_models Run Sweep",
    "api.estimators": "AttentionClassifier AttentionRegressor AttentionEstimator",
    "torch_models.export": "export_attention",
    "presentation.notebook": "Comparison",
    "presentation.several_runs": "Models",
    "errors": "InputError DataWarning ReliabilityWarning",
}
_MODULE_OF = {name: module for module, names in CONTENTS.items() for name in names.split()}
__all__ = list(_MODULE_OF)


def __getattr__(name: str):
    """What the package offers from Python, imported when it is asked for."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_module(f"{__name__}.errors").refuse_another_theory()
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
