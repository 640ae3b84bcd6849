# Written by `python -m tests.stubs`, from CONTENTS and the settings of recipes.

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Optional, Union

from numpy.random import Generator, RandomState
from xarray import Dataset, DataTree

from sampler.attention.variants import AttentionVariant

from sampler.api.tasks import (arrays_task as arrays_task, make_task as make_task,
    ChosenTask as ChosenTask)
from sampler.api.model import (ChosenNetwork as ChosenNetwork, compare as compare,
    head_importance as head_importance, make_problem as make_problem, teacher_of as teacher_of)
from sampler.api.posterior import (numpyro_model as numpyro_model, log_density as log_density,
    weighted_draws as weighted_draws, attention_found as attention_found)
from sampler.analysis.learned_heads import (SampledHeads as SampledHeads)
from sampler.posterior.exported import (FlatDensity as FlatDensity)
from sampler.api.heads import (ablate_heads as ablate_heads, removable as removable)
from sampler.api.runs import (run as run, sweep as sweep, check as check,
    open_results as open_results, compare_models as compare_models, Run as Run, Sweep as Sweep)
from sampler.api.estimators import (AttentionClassifier as _AttentionClassifier,
    AttentionRegressor as _AttentionRegressor, AttentionEstimator as _AttentionEstimator)
from sampler.torch_models.export import (export_attention as export_attention)
from sampler.presentation.notebook import (Comparison as Comparison)
from sampler.presentation.several_runs import (Models as Models)
from sampler.errors import (InputError as InputError, DataWarning as DataWarning,
    ReliabilityWarning as ReliabilityWarning)

def markov_chain_task(*, heads: Sequence[Sequence[str]] = (('good', 'random'), ('uniform',
    'random')), inverse_temperature: float = 10.0, form: AttentionVariant | Mapping[str,
    Any] | Sequence[Any] | None = None, learned: Mapping[str, Any] = None,
    reads: Literal['inputs', 'stream'] = 'inputs', labels: Literal['task', 'teacher'] = 'task',
    teacher_seed: int = 0, examples_train: int = 100, examples_test: int = 1000,
    examples_validation: int = 0, seed: int = 0, head_seed: int = 0, tokens: int = 30,
    features: int = 200, stay_positive: float = 0.7, stay_negative: float = 0.3,
    parallel_noise: float = 1.0, perpendicular_noise: float = 1.0) -> ChosenTask:
    """Hidden Markov chain classification: two classes that differ in how often the state stays."""

def time_series_task(*, heads: Sequence[Sequence[str]] = (('lag', 'random'), ('uniform',
    'random')), inverse_temperature: float = 10.0, head_lag: int = 5,
    form: AttentionVariant | Mapping[str, Any] | Sequence[Any] | None = None,
    learned: Mapping[str, Any] = None, reads: Literal['inputs', 'stream'] = 'inputs',
    labels: Literal['task', 'teacher'] = 'task', teacher_seed: int = 0,
    examples_train: int = 100, examples_test: int = 1000, examples_validation: int = 0,
    seed: int = 0, head_seed: int = 0, tokens: int = 40, channels: int = 16, lag: int = 5,
    period: int = 20, phase_noise: float = 0.1, noise: float = 0.8) -> ChosenTask:
    """Series of a hidden oscillation: one half of the channels leads the other, or follows it."""

def series_archive_task(folder: str | Path, *, heads: Sequence[Sequence[str]] = (('lag',
    'random'), ('uniform', 'random')), inverse_temperature: float = 10.0, head_lag: int = 5,
    form: AttentionVariant | Mapping[str, Any] | Sequence[Any] | None = None,
    learned: Mapping[str, Any] = None, reads: Literal['inputs', 'stream'] = 'inputs',
    labels: Literal['task', 'teacher'] = 'task', teacher_seed: int = 0,
    problem: str | None = None, stride: int | None = None, max_tokens: int = 50,
    classes: Sequence[str] | None = None, head_seed: int = 0) -> ChosenTask:
    """Labelled series of the UEA multivariate archive, or of one's own in one of its formats."""

def digits_task(*, heads: Sequence[Sequence[str]] = (('similar', 'near'),),
    inverse_temperature: float = 10.0, form: AttentionVariant | Mapping[str,
    Any] | Sequence[Any] | None = None, learned: Mapping[str, Any] = None,
    reads: Literal['inputs', 'stream'] = 'inputs', labels: Literal['task', 'teacher'] = 'task',
    teacher_seed: int = 0, examples_train: int = 100, examples_test: int = 700,
    examples_validation: int = 0, seed: int = 0, head_seed: int = 0,
    classes: Sequence[int] = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9), patch: Literal[1, 2,
    4] = 2) -> ChosenTask:
    """Handwritten digits of 8 × 8 pixels, which come with scikit-learn; one output per class."""

def copy_task(*, heads: Sequence[Sequence[str]] = (('learned',),),
    inverse_temperature: float = 0.3, form: AttentionVariant | Mapping[str,
    Any] | Sequence[Any] | None = None, learned: Mapping[str, Any] = None,
    reads: Literal['inputs', 'stream'] = 'inputs', labels: Literal['task', 'teacher'] = 'task',
    teacher_seed: int = 0, examples_train: int = 100, examples_test: int = 1000,
    examples_validation: int = 0, seed: int = 0, head_seed: int = 0, tokens: int = 24,
    symbols: int = 6, copied_logit: float = 4.0) -> ChosenTask:
    """Sequences of symbols, labelled by the one before the last; one output per symbol."""

def one_shot_task(model: str | Path, *, labels: Literal['task', 'teacher'] = 'task',
    teacher_seed: int = 0, folder: str | Path | None = None, test: str | Path = 'characters',
    random_heads: int = 0, examples_train: int = 600, examples_test: int = 1000,
    examples_validation: int = 1000, seed: int = 0) -> ChosenTask:
    """One-shot image classification with the attention of a transformer trained by `train`."""

def make_network(widths: Union[int, Sequence[int], Literal['infinite']], *,
    variances: float | Sequence[float] = 1.0, readout: Optional[Literal['last', 'first',
    'mean']] = None, heads: Sequence[Sequence[int]] | None = None,
    hypernetwork: bool | Sequence[bool] = False, values: Literal['linear', 'relu', 'erf',
    'gelu'] = 'linear', norm: Literal['none', 'before', 'after'] = 'none',
    residual: bool = False, mlp: Mapping[str, Any] = None, temperature: float = 0.01,
    temperature_spread: float = 0.0) -> ChosenNetwork:
    """Choose a network and its temperature; lists meet the layers of a task when it is used."""

def solve(task: ChosenTask, network: ChosenNetwork, *, tolerance: float | None = None,
    max_steps: int = 100, starts: int = 2, seed: int = 0, next_order: bool = True,
    subnetworks: Sequence[Sequence[Sequence[int]]] = ()) -> 'Dataset':
    """Solve the theory: order parameters, predictors, accuracies, each with its axes."""

def sample(task: ChosenTask, network: ChosenNetwork, *, space: str = 'auto',
    algorithm: str = 'auto', chains: int = 4, warmup: int | None = None,
    until: Optional[Literal['trusted', 'draws']] = None,
    draws: int | Mapping[Literal['order_parameters', 'hidden_weights', 'weights', 'attention'],
    int] | None = None, max_draws: int = 20000, max_minutes: float = 60.0, thinning: int = 1,
    seed: int = 0, precision: Literal['float64', 'float32'] = 'float64', weight_draws: int = 0,
    evidence: bool = False, particles: int = 512, repetitions: int = 4,
    leapfrog_steps: int = 64, max_tree_depth: int = 10, target_acceptance: float | None = None,
    progress: bool = True) -> 'DataTree':
    """Draw from the exact posterior, in the layout that ArviZ reads."""

class AttentionClassifier(_AttentionClassifier):
    """Two classes, as labels −1 and +1 of the posterior of a deep multi-head attention network."""

    def __init__(self, *, widths: Union[int, Sequence[int], Literal['infinite']] = 100,
        variances: float | Sequence[float] = 1.0, readout: Optional[Literal['last', 'first',
        'mean']] = 'last', temperature: float = 0.01, space: str = 'auto', algorithm: str = 'auto',
        chains: int = 4, warmup: int | None = None, draws: int | Mapping[Literal['order_parameters',
        'hidden_weights', 'weights', 'attention'], int] | None = None, max_minutes: float = 60.0,
        heads: Sequence[int] | None = None, method: Literal['posterior', 'theory'] = 'posterior',
        random_state: int | RandomState | Generator | None = 0, progress: bool = False) -> None: ...

class AttentionRegressor(_AttentionRegressor):
    """Regression by the posterior of a deep multi-head attention network; labels are as they are."""

    def __init__(self, *, widths: Union[int, Sequence[int], Literal['infinite']] = 100,
        variances: float | Sequence[float] = 1.0, readout: Optional[Literal['last', 'first',
        'mean']] = 'last', temperature: float = 0.01, space: str = 'auto', algorithm: str = 'auto',
        chains: int = 4, warmup: int | None = None, draws: int | Mapping[Literal['order_parameters',
        'hidden_weights', 'weights', 'attention'], int] | None = None, max_minutes: float = 60.0,
        heads: Sequence[int] | None = None, method: Literal['posterior', 'theory'] = 'posterior',
        random_state: int | RandomState | Generator | None = 0, progress: bool = False) -> None: ...

class AttentionEstimator(_AttentionEstimator):
    """Common part of classifier and regressor."""

    def __init__(self, *, widths: Union[int, Sequence[int], Literal['infinite']] = 100,
        variances: float | Sequence[float] = 1.0, readout: Optional[Literal['last', 'first',
        'mean']] = 'last', temperature: float = 0.01, space: str = 'auto', algorithm: str = 'auto',
        chains: int = 4, warmup: int | None = None, draws: int | Mapping[Literal['order_parameters',
        'hidden_weights', 'weights', 'attention'], int] | None = None, max_minutes: float = 60.0,
        heads: Sequence[int] | None = None, method: Literal['posterior', 'theory'] = 'posterior',
        random_state: int | RandomState | Generator | None = 0, progress: bool = False) -> None: ...

__version__: str
