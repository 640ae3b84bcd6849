"""Points of a sweep one after the other, in this process."""

from collections.abc import Iterator, Sequence

from sampler.errors import ExitCode
from sampler.jobs.interruption import listening
from sampler.jobs.point import PointOutcome, SweepPoint, attempt_point


def run_in_process(points: Sequence[SweepPoint]) -> Iterator[tuple[SweepPoint, PointOutcome]]:
    """Run every point and say how it ended; after a request to stop, no further one is begun."""
    with listening() as between:  # within a point, the point listens
        for point in points:
            print(f"\n{point.recipe.name}, {point.label}", flush=True)
            outcome = attempt_point(point)
            if between.interrupted:
                raise KeyboardInterrupt
            yield point, outcome
            if outcome.code == ExitCode.REQUEUE or between.received:
                return
