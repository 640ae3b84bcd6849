# The names of CONTENTS, for editors and type checkers, which cannot follow an import at first use.
# isort: skip_file

from sampler.api.estimators import (
    AttentionClassifier as AttentionClassifier,
    AttentionEstimator as AttentionEstimator,
    AttentionRegressor as AttentionRegressor,
)
from sampler.api.heads import ablate_heads as ablate_heads
from sampler.api.networks import ChosenNetwork as ChosenNetwork, make_network as make_network
from sampler.api.results import (
    compare as compare,
    head_importance as head_importance,
    make_problem as make_problem,
    sample as sample,
    solve as solve,
)
from sampler.api.runs import (
    Run as Run,
    Sweep as Sweep,
    check as check,
    open_results as open_results,
    run as run,
    sweep as sweep,
)
from sampler.api.tasks import (
    ChosenTask as ChosenTask,
    arrays_task as arrays_task,
    digits_task as digits_task,
    make_task as make_task,
    markov_chain_task as markov_chain_task,
    one_shot_task as one_shot_task,
    series_archive_task as series_archive_task,
    time_series_task as time_series_task,
    trained_series_task as trained_series_task,
)
from sampler.errors import InputError as InputError
from sampler.presentation.summary import Comparison as Comparison
from sampler.tasks.export import export_attention as export_attention

__version__: str
