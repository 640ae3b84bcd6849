"""Models of several runs side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.api.keywords import in_python
from sampler.api.runs import Run
from sampler.errors import InputError

if TYPE_CHECKING:
    from sampler.presentation.models import Models

AnyRun = Run | str | Path


@in_python
def compare_models(runs: Sequence[AnyRun] | Mapping[str, AnyRun]) -> "Models":
    """Compare runs with the same training labels by leave-one-out cross-validation.

    runs  runs or their directories; a mapping names them

    Every run brings its samples, its theory and infinite width as models. `plot()` of the result
    draws them, `to_dataframe()` gives numbers. Raises InputError where the training labels are not
    the same, and for a run that has nothing to compare.
    """
    from sampler.analysis.models import compare_models_of, names_of_runs
    from sampler.analysis.results import open_run
    from sampler.presentation.models import Models

    given = list(runs.values() if isinstance(runs, Mapping) else runs)
    if not given:
        raise InputError("runs", runs, "name at least one run")
    directories = [one.directory if isinstance(one, Run) else Path(one) for one in given]
    names = list(runs) if isinstance(runs, Mapping) else names_of_runs(directories)
    opened = [open_run(directory) for directory in directories]
    return Models(compare_models_of(list(zip(names, opened, strict=True))))
