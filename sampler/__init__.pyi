# The names of CONTENTS, for editors and type checkers, which cannot follow an import at first use.
# isort: skip_file

from sampler.api.networks import ChosenNetwork as ChosenNetwork, make_network as make_network
from sampler.api.results import (
    compare as compare,
    make_problem as make_problem,
    sample as sample,
    solve as solve,
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
)
from sampler.errors import InputError as InputError
from sampler.presentation.summary import Comparison as Comparison

__version__: str
