# Written by `python -m tests.stubs`, from CONTENTS and the settings of recipes.

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from sampler.attention.variants import AttentionVariant
from sampler.api.tasks import arrays_task as arrays_task
from sampler.api.tasks import make_task as make_task
from sampler.api.tasks import ChosenTask as ChosenTask
from sampler.api.results import ChosenNetwork as ChosenNetwork
from sampler.api.results import compare as compare
from sampler.api.results import head_importance as head_importance
from sampler.api.results import make_problem as make_problem
from sampler.api.results import teacher_of as teacher_of
from sampler.api.posterior import numpyro_model as numpyro_model
from sampler.api.posterior import log_density as log_density
from sampler.api.attention import attention_found as attention_found
from sampler.analysis.attention_found import AttentionFound as AttentionFound
from sampler.posterior.flat_density import FlatDensity as FlatDensity
from sampler.api.heads import ablate_heads as ablate_heads
from sampler.api.runs import run as run
from sampler.api.runs import sweep as sweep
from sampler.api.runs import check as check
from sampler.api.runs import open_results as open_results
from sampler.api.runs import compare_models as compare_models
from sampler.api.runs import Run as Run
from sampler.api.runs import Sweep as Sweep
from sampler.api.estimators import AttentionClassifier as _AttentionClassifier
from sampler.api.estimators import AttentionRegressor as _AttentionRegressor
from sampler.api.estimators import AttentionEstimator as _AttentionEstimator
from sampler.tasks.export import export_attention as export_attention
from sampler.presentation.summary import Comparison as Comparison
from sampler.presentation.models import Models as Models
from sampler.errors import InputError as InputError
from sampler.errors import DataWarning as DataWarning
from sampler.compiled import keep_programs as keep_programs


def markov_chain_task(
    *,
    heads: Sequence[Sequence[str]] = (('good', 'random'), ('uniform', 'random')),
    inverse_temperature: float = 10.0,
    form: AttentionVariant | Mapping[str, Any] | Sequence[Any] | None = None,
    learned: Mapping[str, Any] = None,
    labels: Literal['task', 'teacher'] = 'task',
    teacher_seed: int = 0,
    examples_train: int = 100,
    examples_test: int = 1000,
    examples_validation: int = 0,
    seed: int = 0,
    head_seed: int = 0,
    tokens: int = 30,
    features: int = 200,
    stay_positive: float = 0.7,
    stay_negative: float = 0.3,
    parallel_noise: float = 1.0,
    perpendicular_noise: float = 1.0,
) -> ChosenTask:
    """Make hidden Markov chains: sequences of two classes that differ in how often they stay.

    Raises InputError, naming the keyword, for what cannot be used.

    heads                The kinds of the heads of each layer: "good", "uniform", "random",
                         "learned".
    inverse_temperature  β, which multiplies the logits.
    form                 The attention variant, which makes the matrix of a head from its queries
                         and keys; softmax over keys by default. A table for all heads, or a list
                         with a table, or a list of tables, one per head, for each layer. Where
                         logits are x_sᵀ W x_t, keys are x_s and queries √D W x_t.
    learned              The prior of learned heads, whose logit weights are sampled: a table with
                         `form`, `rank` and `variance`; by default the law that random heads are
                         drawn from.
    labels               Labels as the data have them, or of a "teacher": the network itself with
                         all weights from their priors, the same for all splits, with noise of
                         variance `posterior.temperature`.
    teacher_seed         Seed of the teacher and of the noise of its labels.
    examples_train       Examples to learn from.
    examples_test        Examples of the test set.
    examples_validation  Examples of the validation set; without one: 0.
    seed                 Seed of the examples.
    head_seed            Seed of the heads.
    tokens               Tokens of a sequence, beside its beginning.
    features             Channels beside the position.
    stay_positive        Probability that the hidden state stays, in class +1.
    stay_negative        Probability that the hidden state stays, in class −1.
    parallel_noise       Noise along the two state vectors.
    perpendicular_noise  Noise across the two state vectors.
    """


def time_series_task(
    *,
    heads: Sequence[Sequence[str]] = (('lag', 'random'), ('uniform', 'random')),
    inverse_temperature: float = 10.0,
    head_lag: int = 5,
    form: AttentionVariant | Mapping[str, Any] | Sequence[Any] | None = None,
    learned: Mapping[str, Any] = None,
    labels: Literal['task', 'teacher'] = 'task',
    teacher_seed: int = 0,
    examples_train: int = 100,
    examples_test: int = 1000,
    examples_validation: int = 0,
    seed: int = 0,
    head_seed: int = 0,
    tokens: int = 40,
    channels: int = 16,
    lag: int = 5,
    period: int = 20,
    phase_noise: float = 0.1,
    noise: float = 0.8,
) -> ChosenTask:
    """Make series of a hidden oscillation: half of the channels leads the other, or follows it.

    Raises InputError, naming the keyword, for what cannot be used.

    heads                The kinds of the heads of each layer: "lag", "uniform", "random",
                         "learned".
    inverse_temperature  β, which multiplies the logits.
    head_lag             How many time steps lag heads look back.
    form                 The attention variant, which makes the matrix of a head from its queries
                         and keys; softmax over keys by default. A table for all heads, or a list
                         with a table, or a list of tables, one per head, for each layer. Where
                         logits are x_sᵀ W x_t, keys are x_s and queries √D W x_t.
    learned              The prior of learned heads, whose logit weights are sampled: a table with
                         `form`, `rank` and `variance`; by default the law that random heads are
                         drawn from.
    labels               Labels as the data have them, or of a "teacher": the network itself with
                         all weights from their priors, the same for all splits, with noise of
                         variance `posterior.temperature`.
    teacher_seed         Seed of the teacher and of the noise of its labels.
    examples_train       Examples to learn from.
    examples_test        Examples of the test set.
    examples_validation  Examples of the validation set; without one: 0.
    seed                 Seed of the examples.
    head_seed            Seed of the heads.
    tokens               Time steps of a series.
    channels             Channels of a time step.
    lag                  Time steps by which one half leads the other.
    period               Period of the oscillation, in time steps.
    phase_noise          Standard deviation of the phase steps of the oscillation.
    noise                Standard deviation of the noise in every channel; the signal's is 1.
    """


def series_archive_task(
    folder: str | Path,
    *,
    heads: Sequence[Sequence[str]] = (('lag', 'random'), ('uniform', 'random')),
    inverse_temperature: float = 10.0,
    head_lag: int = 5,
    form: AttentionVariant | Mapping[str, Any] | Sequence[Any] | None = None,
    learned: Mapping[str, Any] = None,
    labels: Literal['task', 'teacher'] = 'task',
    teacher_seed: int = 0,
    problem: str | None = None,
    stride: int | None = None,
    max_tokens: int = 50,
    classes: Sequence[str] | None = None,
    head_seed: int = 0,
) -> ChosenTask:
    """Read labelled series of the UEA archive, or of one's own in one of its formats.

    Paths are relative to the current directory. Raises InputError, naming the keyword, for what
    cannot be used.

    heads                The kinds of the heads of each layer: "lag", "uniform", "random",
                         "learned".
    inverse_temperature  β, which multiplies the logits.
    head_lag             How many time steps lag heads look back.
    form                 The attention variant, which makes the matrix of a head from its queries
                         and keys; softmax over keys by default. A table for all heads, or a list
                         with a table, or a list of tables, one per head, for each layer. Where
                         logits are x_sᵀ W x_t, keys are x_s and queries √D W x_t.
    learned              The prior of learned heads, whose logit weights are sampled: a table with
                         `form`, `rank` and `variance`; by default the law that random heads are
                         drawn from.
    labels               Labels as the data have them, or of a "teacher": the network itself with
                         all weights from their priors, the same for all splits, with noise of
                         variance `posterior.temperature`.
    teacher_seed         Seed of the teacher and of the noise of its labels.
    folder               Folder of the files `<problem>_TRAIN.ts` and `<problem>_TEST.ts`, or
                         `.arff`.
    problem              The name in these files; by default that of the folder.
    stride               Time steps whose mean is a token; by default as few as leave at most
                         `max_tokens`.
    max_tokens           The largest number of tokens, where `stride` is not set.
    classes              The two classes to separate, +1 first; by default the only two there are.
    head_seed            Seed of the heads.
    """


def digits_task(
    *,
    heads: Sequence[Sequence[str]] = (('similar', 'near'),),
    inverse_temperature: float = 10.0,
    form: AttentionVariant | Mapping[str, Any] | Sequence[Any] | None = None,
    learned: Mapping[str, Any] = None,
    labels: Literal['task', 'teacher'] = 'task',
    teacher_seed: int = 0,
    examples_train: int = 100,
    examples_test: int = 700,
    examples_validation: int = 0,
    seed: int = 0,
    head_seed: int = 0,
    classes: Sequence[int] = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
    patch: Literal[1, 2, 4] = 2,
) -> ChosenTask:
    """Cut handwritten digits of 8 × 8 pixels, which come with scikit-learn, into patches.

    There is one output per class. Raises InputError, naming the keyword, for what cannot be used.

    heads                The kinds of the heads of each layer: "similar", "near", "uniform",
                         "random", "learned".
    inverse_temperature  β, which multiplies the logits.
    form                 The attention variant, which makes the matrix of a head from its queries
                         and keys; softmax over keys by default. A table for all heads, or a list
                         with a table, or a list of tables, one per head, for each layer. Where
                         logits are x_sᵀ W x_t, keys are x_s and queries √D W x_t.
    learned              The prior of learned heads, whose logit weights are sampled: a table with
                         `form`, `rank` and `variance`; by default the law that random heads are
                         drawn from.
    labels               Labels as the data have them, or of a "teacher": the network itself with
                         all weights from their priors, the same for all splits, with noise of
                         variance `posterior.temperature`.
    teacher_seed         Seed of the teacher and of the noise of its labels.
    examples_train       Examples to learn from.
    examples_test        Examples of the test set.
    examples_validation  Examples of the validation set; without one: 0.
    seed                 Seed of the examples.
    head_seed            Seed of the heads.
    classes              The digits to tell apart.
    patch                Side of the square patch that is a token, in pixels.
    """


def copy_task(
    *,
    heads: Sequence[Sequence[str]] = (('learned',),),
    inverse_temperature: float = 0.3,
    form: AttentionVariant | Mapping[str, Any] | Sequence[Any] | None = None,
    learned: Mapping[str, Any] = None,
    labels: Literal['task', 'teacher'] = 'task',
    teacher_seed: int = 0,
    examples_train: int = 100,
    examples_test: int = 1000,
    examples_validation: int = 0,
    seed: int = 0,
    head_seed: int = 0,
    tokens: int = 24,
    symbols: int = 6,
    copied_logit: float = 4.0,
) -> ChosenTask:
    """Draw sequences of symbols, labelled by the one before the last, which heads are to find.

    There is one output per symbol. Raises InputError, naming the keyword, for what cannot be used.

    heads                The kinds of the heads of each layer: "copy", "uniform", "random",
                         "learned".
    inverse_temperature  β, which multiplies the logits.
    form                 The attention variant, which makes the matrix of a head from its queries
                         and keys; softmax over keys by default. A table for all heads, or a list
                         with a table, or a list of tables, one per head, for each layer. Where
                         logits are x_sᵀ W x_t, keys are x_s and queries √D W x_t.
    learned              The prior of learned heads, whose logit weights are sampled: a table with
                         `form`, `rank` and `variance`; by default the law that random heads are
                         drawn from.
    labels               Labels as the data have them, or of a "teacher": the network itself with
                         all weights from their priors, the same for all splits, with noise of
                         variance `posterior.temperature`.
    teacher_seed         Seed of the teacher and of the noise of its labels.
    examples_train       Examples to learn from.
    examples_test        Examples of the test set.
    examples_validation  Examples of the validation set; without one: 0.
    seed                 Seed of the examples.
    head_seed            Seed of the heads.
    tokens               Tokens of a sequence.
    symbols              Symbols that a token may be.
    copied_logit         Logit of the token before the last in copy heads; those of all others are
                         0.
    """


def one_shot_task(
    model: str | Path,
    *,
    labels: Literal['task', 'teacher'] = 'task',
    teacher_seed: int = 0,
    folder: str | Path | None = None,
    test: str | Path = 'characters',
    test_characters: Sequence[str] = (),
    random_heads: int = 0,
    examples_train: int = 600,
    examples_test: int = 1000,
    examples_validation: int = 1000,
    seed: int = 0,
) -> ChosenTask:
    """Make one-shot image classification with the attention of a transformer trained by `train`.

    Paths are relative to the current directory. Raises InputError, naming the keyword, for what
    cannot be used.

    labels               Labels as the data have them, or of a "teacher": the network itself with
                         all weights from their priors, the same for all splits, with noise of
                         variance `posterior.temperature`.
    teacher_seed         Seed of the teacher and of the noise of its labels.
    model                Directory of the training.
    folder               Folder of Omniglot's files now, if they were moved.
    test                 The test set: "characters" of the training's test split, "all_runs" of
                         Omniglot, "digits", or a file of other images, .npz or in the format of
                         MNIST.
    test_characters      Characters of the test set, by name; by default all.
    random_heads         Further heads in every layer, with queries and keys as they are before
                         training.
    examples_train       Episodes to learn from.
    examples_test        Episodes of the test set.
    examples_validation  Episodes of the validation set; without one: 0.
    seed                 Seed of the episodes and of the random heads.
    """


def trained_series_task(
    model: str | Path,
    *,
    labels: Literal['task', 'teacher'] = 'task',
    teacher_seed: int = 0,
    folder: str | Path | None = None,
    examples_train: int | None = None,
    examples_test: int | None = None,
    examples_validation: int | None = None,
    seed: int = 0,
) -> ChosenTask:
    """Read time series, with the attention of a transformer that `train` trained on them.

    Paths are relative to the current directory. Raises InputError, naming the keyword, for what
    cannot be used.

    labels               Labels as the data have them, or of a "teacher": the network itself with
                         all weights from their priors, the same for all splits, with noise of
                         variance `posterior.temperature`.
    teacher_seed         Seed of the teacher and of the noise of its labels.
    model                Directory of the training.
    folder               Folder of the files of the series now, if they were moved.
    examples_train       Series to learn from; by default all.
    examples_test        Series of the test set; by default all.
    examples_validation  Series of the validation set; by default all.
    seed                 Seed of the choice of series.
    """


def make_network(
    widths: int | Sequence[int] | Literal['infinite'],
    *,
    variances: float | Sequence[float] = 1.0,
    readout: Literal['last', 'first', 'mean'] | None = None,
    heads: Sequence[Sequence[int]] | None = None,
    hypernetwork: bool | Sequence[bool] = False,
    values: Literal['linear', 'relu'] = 'linear',
    layer_norm: bool = False,
    temperature: float = 0.01,
    temperature_spread: float = 0.0,
    variance_spread: float = 0.0,
) -> ChosenNetwork:
    """Choose a network and its temperature; lists meet the layers of a task when it is used.

    Raises InputError, naming the keyword, for what cannot be used.

    widths              N of all layers, or [N_1, …, N_L, N_a]; with learned heads also "infinite",
                        a network of which only attention is left to be sampled.
    variances           Prior variance of all weights, or [σ0², σ1², …, σL², σa²].
    readout             The token that is read out, or "mean" of all, which tasks of images and of
                        trained models set by default.
    heads               The heads that each layer of attention keeps, by number from 0; all by
                        default.
    hypernetwork        Whether heads make two layers of weights, of values and of outputs, each
                        with a width and a variance of its own: in all layers of attention, or a
                        list by layer.
    values              The function of values; "relu" is outside the theory, and only sampled.
    layer_norm          Normalisation between layers; outside the theory, and only sampled.
    temperature         𝒯, the variance of the likelihood.
    temperature_spread  Prior standard deviation of ln 𝒯; above 0, 𝒯 is sampled too.
    variance_spread     Prior standard deviation of the logarithm of each prior variance; above 0,
                        they are sampled too.
    """


def solve(
    task: ChosenTask,
    network: ChosenNetwork,
    *,
    tolerance: float | None = None,
    max_steps: int = 100,
    starts: int = 2,
    seed: int = 0,
    next_order: bool = True,
    next_order_evidence: bool | Literal['auto'] = 'auto',
    subnetworks: Sequence[Sequence[Sequence[int]]] = (),
) -> xr.Dataset:
    """Solve the theory: order parameters, predictors, GP limit, accuracies, each with its axes.

    The variables are those of `theory.nc`; a saddle point that did not converge has `converged` = 0
    among its attributes and predictions that are NaN. Raises InputError for a keyword that cannot
    be used, and where task and network do not fit.

    tolerance            Where the saddle point counts as found; the solver's own by default.
    max_steps            Newton steps at most.
    starts               Starting points, the first being the GP limit.
    seed                 Seed of the other starting points.
    next_order           The correction of order 1/N as well, where it can be computed.
    next_order_evidence  The correction of the evidence, too, which takes most of its time; "auto":
                         where it takes little, or where an evidence is sampled or selected by.
    subnetworks          The heads kept, layer by layer, of each sub-network whose GP limit is
                         wanted, counted within the heads that the network itself keeps.
    """


def sample(
    task: ChosenTask,
    network: ChosenNetwork,
    *,
    space: Literal['auto', 'order_parameters', 'upper_weights', 'weights', 'attention'] = 'auto',
    algorithm: str = 'auto',
    chains: int = 4,
    warmup: int | None = None,
    until: Literal['trusted', 'draws'] | None = None,
    draws: int | Mapping[Literal['order_parameters', 'upper_weights', 'weights', 'attention'], int] | None = None,
    max_draws: int = 20000,
    max_minutes: float = 60.0,
    thinning: int = 1,
    seed: int = 0,
    precision: Literal['float64', 'float32'] = 'float64',
    weight_draws: int = 0,
    keep_weights: bool = False,
    evidence: bool = False,
    particles: int = 512,
    repetitions: int = 4,
    max_repetitions: int = 32,
    leapfrog_steps: int = 64,
    max_tree_depth: int = 10,
    target_acceptance: float | None = None,
    gradient_precision: Literal['auto', 'float64', 'float32'] = 'auto',
    attention_theories: int = 128,
    start_from: str | Path | None = None,
    progress: bool = True,
) -> xr.DataTree:
    """Draw from the exact posterior, in the layout that ArviZ reads.

    The groups are those of `draws.nc`. Nothing is stored before the end; `run` keeps what it has.
    With `progress`, stderr or one line of a notebook shows how far it is. Raises InputError for a
    keyword that cannot be used, and where task and network do not fit.

    space               The coordinates: order parameters, whose number depends on no width, the
                        weights of the upper layers, or all weights; "attention", logit weights
                        alone, at infinite width; "auto": the fastest.
    algorithm           The algorithm: "split_hmc", "nuts", "hmc", "importance", "tempered", or one
                        of another package; "auto": the fastest.
    chains              Chains; one alone is never trusted, and makes the default number of draws.
    warmup              Steps of each chain before its draws. By default "split_hmc" makes 50 in at
                        most 2,500 order parameters of layers that are no narrower than these, and
                        200 in all weights of a network within the theory; every other chain makes
                        150 in order parameters, 400 in upper weights and 500 in all weights.
    until               How chains end. "trusted": when their diagnostics pass at two checks in a
                        row; "draws": after so many, the default where these are given or there is
                        one chain.
    draws               Draws of each chain, or a table of them by space for sweeps over spaces,
                        where a space that it leaves out makes 1000; by default until they can be
                        trusted.
    max_draws           Draws of each chain at most, until they are trusted.
    max_minutes         Minutes of computing at most, until the draws are trusted.
    thinning            Steps from one draw to the next.
    seed                Seed of all random numbers of the chains.
    precision           Precision of the floating-point numbers.
    weight_draws        Exact draws of all weights, from so many draws of order parameters of each
                        chain.
    keep_weights        Keep the weights of every draw, in the two spaces of weights.
    evidence            ln p(y) as well, from chains over order parameters; importance draws always
                        know it.
    particles           Particles of each repetition, for "tempered".
    repetitions         Repetitions of "tempered", independent of each other, and fewest of them
                        where `until` = "trusted".
    max_repetitions     Repetitions at most, until their draws are trusted.
    leapfrog_steps      Steps of a trajectory, for "hmc".
    max_tree_depth      Depth of the largest trajectory of "nuts": 2^depth steps.
    target_acceptance   Mean acceptance that step sizes are adapted to; the algorithm's own by
                        default.
    gradient_precision  Precision of gradients in algorithms that accept or refuse whole
                        trajectories; "auto": single where that costs no acceptance.
    attention_theories  Draws of learned attention at which the theories of fixed attention are
                        solved, to be held against the exact posterior; 0: none.
    start_from          Directory of a finished run: chains begin where its chains ended, with their
                        step size and masses, and adapt on from there.
    """


class AttentionClassifier(_AttentionClassifier):
    """Two classes, as labels −1 and +1 of the posterior of a deep multi-head attention network.

    The probability of the second class is p₊ = p(+1)/(p(+1) + p(−1)) of the predictive density of
    the label; `predictive` has it with its error. Parameters and inputs: `AttentionEstimator`.
    """

    def __init__(
        self,
        *,
        widths: int | Sequence[int] | Literal['infinite'] = 100,
        variances: float | Sequence[float] = 1.0,
        readout: Literal['last', 'first', 'mean'] | None = 'last',
        temperature: float = 0.01,
        space: Literal['auto', 'order_parameters', 'upper_weights', 'weights', 'attention'] = 'auto',
        algorithm: str = 'auto',
        chains: int = 4,
        warmup: int | None = None,
        draws: int | Mapping[Literal['order_parameters', 'upper_weights', 'weights', 'attention'], int] | None = None,
        max_minutes: float = 60.0,
        heads: Sequence[int] | None = None,
        method: Literal['posterior', 'theory'] = 'posterior',
        random_state: int = 0,
        progress: bool = False,
    ) -> None:
        ...


class AttentionRegressor(_AttentionRegressor):
    """Regression by the posterior of a deep multi-head attention network; labels are as they are.

    `predict` is the posterior mean of f(x), `predictive` has it with its error and the variance.
    Labels may have several outputs, [example, output]. Parameters and inputs: `AttentionEstimator`.
    """

    def __init__(
        self,
        *,
        widths: int | Sequence[int] | Literal['infinite'] = 100,
        variances: float | Sequence[float] = 1.0,
        readout: Literal['last', 'first', 'mean'] | None = 'last',
        temperature: float = 0.01,
        space: Literal['auto', 'order_parameters', 'upper_weights', 'weights', 'attention'] = 'auto',
        algorithm: str = 'auto',
        chains: int = 4,
        warmup: int | None = None,
        draws: int | Mapping[Literal['order_parameters', 'upper_weights', 'weights', 'attention'], int] | None = None,
        max_minutes: float = 60.0,
        heads: Sequence[int] | None = None,
        method: Literal['posterior', 'theory'] = 'posterior',
        random_state: int = 0,
        progress: bool = False,
    ) -> None:
        ...


class AttentionEstimator(_AttentionEstimator):
    """Common part of classifier and regressor.

    Inputs X are attended inputs [example, path, channel], paths in flat order, the head of layer 1
    slowest; or [example, channel], a single path; or a pair of tokens [example, token, channel] and
    a list with the attention matrices [example, head, key, query] of each layer. Only the first two
    can be cut into folds by scikit-learn.

    heads         of each layer, whose product is the number of paths; None: one layer of them all
    method        "posterior": exact, by sampling; "theory": leading order in 1/N, in an instant
    random_state  seed of the chains, or of the starting points of the theory
    progress      show how far the chains are

    widths       N of all layers, or [N_1, …, N_L, N_a]; with learned heads also "infinite", a
                 network of which only attention is left to be sampled.
    variances    Prior variance of all weights, or [σ0², σ1², …, σL², σa²].
    readout      The token that is read out, or "mean" of all, which tasks of images and of trained
                 models set by default.
    temperature  𝒯, the variance of the likelihood.
    space        The coordinates: order parameters, whose number depends on no width, the weights of
                 the upper layers, or all weights; "attention", logit weights alone, at infinite
                 width; "auto": the fastest.
    algorithm    The algorithm: "split_hmc", "nuts", "hmc", "importance", "tempered", or one of
                 another package; "auto": the fastest.
    chains       Chains; one alone is never trusted, and makes the default number of draws.
    warmup       Steps of each chain before its draws. By default "split_hmc" makes 50 in at most
                 2,500 order parameters of layers that are no narrower than these, and 200 in all
                 weights of a network within the theory; every other chain makes 150 in order
                 parameters, 400 in upper weights and 500 in all weights.
    draws        Draws of each chain, or a table of them by space for sweeps over spaces, where a
                 space that it leaves out makes 1000; by default until they can be trusted.
    max_minutes  Minutes of computing at most, until the draws are trusted.
    """

    def __init__(
        self,
        *,
        widths: int | Sequence[int] | Literal['infinite'] = 100,
        variances: float | Sequence[float] = 1.0,
        readout: Literal['last', 'first', 'mean'] | None = 'last',
        temperature: float = 0.01,
        space: Literal['auto', 'order_parameters', 'upper_weights', 'weights', 'attention'] = 'auto',
        algorithm: str = 'auto',
        chains: int = 4,
        warmup: int | None = None,
        draws: int | Mapping[Literal['order_parameters', 'upper_weights', 'weights', 'attention'], int] | None = None,
        max_minutes: float = 60.0,
        heads: Sequence[int] | None = None,
        method: Literal['posterior', 'theory'] = 'posterior',
        random_state: int = 0,
        progress: bool = False,
    ) -> None:
        ...


__version__: str
