"""Minutes: a sweep on a real Slurm, whose tasks are disturbed in every way that Slurm knows."""

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from sampler.errors import ExitCode
from sampler.storage.checkpoints import newest_header
from tests.commands import TINY, assert_same_bits, command, environment
from tests.sampler.jobs.slurm_cluster import Cluster, missing_programs, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(
        bool(missing_programs()),
        reason=f"a Slurm cluster needs {', '.join(missing_programs())}: install slurm-wlm, munge",
    ),
]

RECIPE = f"{TINY}draws = 2000\n"


@dataclass(frozen=True)
class Sweep:
    """A sweep over seeds, done here in one process and there by Slurm.

    thinning  trajectories from one draw to the next: with 50 chains run for some 10 seconds
    """

    folder: Path
    cache: Path
    points: int
    thinning: int

    def run(self, out: Path, *options: str) -> None:
        """Run the command to its end, which must be a good one."""
        recipe = self.folder / "tiny.toml"
        recipe.write_text(f"{RECIPE}thinning = {self.thinning}\n")
        seeds = ["--over", f"sampler.seed=0:{self.points}"]
        code, errors = command("sweep", recipe, *seeds, "--out", out, *options, cache=self.cache)
        assert code == ExitCode.OK, errors

    def submit(self, cluster: Cluster, *options: str) -> str:
        """Write the array and submit it: the id of the job."""
        self.run(self.there, "--slurm")
        return cluster.submit(*options, str(self.there / "sweep.sbatch"))

    @property
    def here(self) -> Path:
        """Where the sweep in one process is."""
        return self.folder / "here"

    @property
    def there(self) -> Path:
        """Where that of the cluster is."""
        return self.folder / "there"

    def point(self, number: int) -> Path:
        return self.there / f"sampler.seed={number}"

    def log(self, number: int) -> str:
        """What a task of the array printed."""
        return (self.there / "slurm" / f"{number}.log").read_text()

    def is_sampling(self, number: int) -> bool:
        """Whether some draws of a point are stored."""
        header = newest_header(self.point(number))
        return header is not None and header["phase"] == "draws"

    def times_resumed(self, number: int) -> int:
        """How often a point went on after draws that an earlier process had saved."""
        log = self.point(number) / "run.log"
        return log.read_text(encoding="utf-8").count("going on after")

    def gather(self) -> None:
        """The command that gathers finds the arrays of the sweep in one process."""
        self.run(self.here)
        self.run(self.there)
        assert (self.there / "sweep.csv").read_text() == (self.here / "sweep.csv").read_text()
        for number in range(self.points):
            assert_same_bits(self.point(number), self.here / f"sampler.seed={number}")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder of compiled functions."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, cache):
    with Cluster(tmp_path_factory.mktemp("slurm"), environment(cache)) as started:
        yield started


def test_an_array_with_everything_that_slurm_does_to_it(cluster, cache, tmp_path):
    """A task requeued by hand, one pre-empted, a node's daemon killed: a chunk each is lost."""
    sweep = Sweep(tmp_path, cache, points=4, thinning=50)
    job = sweep.submit(cluster)
    wait_for(lambda: sweep.is_sampling(0) and sweep.is_sampling(1))
    cluster.run("scontrol", "requeue", f"{job}_0")
    wait_for(lambda: cluster.state(f"{job}_2") == "RUNNING" and sweep.is_sampling(2))
    where = f"--nodelist={cluster.shown(f'{job}_2')['NodeList']}"
    other = cluster.submit("--partition=high", where, "--wrap=sleep 1", "-o", "/dev/null")
    cluster.wait_until(other, "COMPLETED")
    cluster.kill_node("one")
    time.sleep(2.0)
    cluster.start_node("one")
    for number in range(sweep.points):
        cluster.wait_until(f"{job}_{number}", "COMPLETED")
    for number in (0, 2):
        assert "SIGTERM received" in sweep.log(number)
        assert sweep.times_resumed(number) == 1
    sweep.gather()
