"""Nightly: a sweep on a Slurm of this machine, one of whose tasks is pre-empted and one warned."""

import pytest

from sampler.errors import ExitCode
from sampler.storage.checkpoints import newest_header
from tests.commands import TINY, assert_same_bits, command, environment
from tests.processes.slurm_cluster import Cluster, missing_programs, wait_for

POINTS = 4
LABELS = [f"sampler.seed={number}" for number in range(POINTS)]
ENDED = ("COMPLETED", "FAILED")
OVER = ("--over", f"sampler.seed=0:{POINTS}", "--no-figures")


@pytest.mark.nightly
@pytest.mark.skipif(bool(missing_programs()), reason="Slurm or Munge is not installed")
def test_slurm_pre_empts_and_warns_and_every_point_comes_to_its_end(tmp_path):
    recipe, cache, out = tmp_path / "clusters.toml", tmp_path / "cache", tmp_path / "sweep"
    whole, folder = tmp_path / "whole", tmp_path / "slurm"
    # Draws last long enough to be disturbed.
    recipe.write_text(f"{TINY}draws = 6000\nthinning = 3\n")
    cache.mkdir()
    folder.mkdir()

    def sampling(label: str) -> bool:
        """Whether draws of a point are saved, and not all of them."""
        header = newest_header(out / label)
        return bool(header) and header["phase"] == "draws" and header["done"] < header["total"]

    expected, _ = command("sweep", recipe, *OVER, "--out", whole, cache=cache)
    assert command("sweep", recipe, *OVER, "--out", out, "--slurm")[0] == ExitCode.OK
    with Cluster(folder, environment(cache)) as cluster:
        array = cluster.submit(f"--chdir={tmp_path}", str(out / "sweep.sbatch"))
        wait_for(lambda: sampling(LABELS[0]) and sampling(LABELS[1]), 900)
        node = cluster.shown(f"{array}_0")["NodeList"]
        urgent = ("--partition=high", f"--nodelist={node}", "--wrap=sleep 1", "--output=/dev/null")
        other = cluster.submit(*urgent)
        # Its warning comes two minutes before: at once.
        hours, minutes, _ = map(int, cluster.shown(f"{array}_1")["RunTime"].split(":"))
        cluster.limit(f"{array}_1", 60 * hours + minutes + 2)
        wait_for(lambda: cluster.shown(other)["JobState"] == "COMPLETED", 900)
        for number in range(POINTS):
            task = f"{array}_{number}"
            wait_for(lambda task=task: cluster.shown(task)["JobState"] in ENDED, 1800)
        assert int(cluster.shown(f"{array}_0")["Restarts"]) > 0
    assert command("sweep", recipe, *OVER, "--out", out, cache=cache)[0] == expected
    assert "going on after" in (out / LABELS[0] / "run.log").read_text()
    for label in LABELS:
        assert_same_bits(out / label, whole / label)
