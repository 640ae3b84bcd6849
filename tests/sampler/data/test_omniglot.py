"""Omniglot's files: their union, what is refused by name, and how they are fetched."""

import functools
import hashlib
import http.server
import threading
from pathlib import Path

import numpy as np
import pytest

from sampler.data.episodes import draw_run_episodes
from sampler.data.image_files import (
    CHECKSUMS,
    download_omniglot,
    read_all_runs,
    read_omniglot,
    resize,
)
from sampler.errors import InputError
from tests import ROOT
from tests.pictures import ink_of, png, write_all_runs, write_omniglot

SMALL_1, SMALL_2 = "images_background_small1.zip", "images_background_small2.zip"
GREEK = "Greek/character01/0001_02.png"
OFFICIAL = ROOT / "runs" / "omniglot"


@pytest.fixture
def folder(tmp_path):
    write_omniglot(tmp_path / SMALL_1, {"Greek": 2, "Latin": 1})
    write_omniglot(tmp_path / SMALL_2, {"Greek": 2, "Korean": 3})
    return tmp_path


def test_the_union_takes_a_character_once(folder):
    drawings = read_omniglot(folder)
    assert drawings.names == (
        *("Greek/character01", "Greek/character02"),
        *(f"Korean/character0{number}" for number in (1, 2, 3)),
        "Latin/character01",
    )
    assert drawings.counts.tolist() == [3] * 6
    expected = resize(ink_of("Korean/character02/0002_03.png")[None].astype(float), 32)[0]
    assert np.array_equal(drawings.images[drawings.first[3] + 2], expected)
    alone = read_omniglot(folder, (SMALL_1,)).names
    assert alone == ("Greek/character01", "Greek/character02", "Latin/character01")


@pytest.mark.parametrize(
    "content",
    [b"no image", png(ink_of("a"))[:200], png(ink_of("a", 104)), png(ink_of("other"))],
    ids=["unreadable", "truncated", "mis-sized", "conflicting"],
)
def test_an_image_that_cannot_be_used_is_refused(folder, content):
    write_omniglot(folder / SMALL_1, {"Greek": 1}, **{GREEK: content})
    with pytest.raises(InputError):
        read_omniglot(folder)


def test_archives_that_are_not_whole_or_not_there_are_refused(folder, tmp_path):
    (folder / SMALL_2).write_bytes((folder / SMALL_2).read_bytes()[:-100])
    for place, names in ((folder, (SMALL_2,)), (folder, ("images_background.zip",))):
        with pytest.raises(InputError):
            read_omniglot(place, names)
    for place in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError):
            read_omniglot(place)


def test_runs_give_episodes_within_a_run(tmp_path):
    write_all_runs(tmp_path / "all_runs.zip")
    drawings, candidates = read_all_runs(tmp_path)
    episodes = draw_run_episodes(candidates, 7600, np.random.default_rng(0))
    assert len(drawings.images) == 800
    # Members come in pairs, an item and the drawing of its character, forty to a run.
    runs = episodes.places[0] // 40
    assert np.all(runs == runs[:, :1])
    rows = np.arange(episodes.examples)
    asked = (episodes.places[1][:, :2] == (episodes.targets[:, None] + 1) / 2).argmax(axis=1)
    assert np.array_equal(episodes.places[0][rows, asked], episodes.places[0][:, 2] + 1)
    assert len({tuple(sorted(pair)) for pair in episodes.places[0].tolist()}) == 7600
    # Order and labels are fair coins: four standard errors of 7600 of them.
    for coin in (asked, episodes.places[1][:, 0], episodes.targets > 0):
        assert abs(np.mean(coin) - 0.5) < 4 * 0.5 / np.sqrt(7600)
    with pytest.raises(InputError):
        draw_run_episodes(candidates, 7601, np.random.default_rng(0))


@pytest.fixture
def server(folder):
    """The folder, served on this host."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()


def sha256(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_missing_and_damaged_files_are_fetched(server, folder, tmp_path):
    own = tmp_path / "own"
    checksums = {name: sha256(folder / name) for name in (SMALL_1, SMALL_2)}
    own.mkdir()
    (own / SMALL_1).write_bytes(b"damaged")
    download_omniglot(own, (SMALL_1, SMALL_2), server, checksums)
    for name in checksums:
        assert (own / name).read_bytes() == (folder / name).read_bytes()
    # What is there and intact needs no network.
    download_omniglot(own, (SMALL_1, SMALL_2), "http://127.0.0.1:9/", checksums)
    # These are not the official ones.
    with pytest.raises(InputError):
        download_omniglot(tmp_path / "other", (SMALL_1,), server)
    assert not (tmp_path / "other" / SMALL_1).exists()


def test_official_files_have_their_checksums_and_sizes():
    if not OFFICIAL.is_dir():
        pytest.skip("the official files are not in runs/omniglot")
    for name in (SMALL_1, SMALL_2, "all_runs.zip"):
        assert sha256(OFFICIAL / name) == CHECKSUMS[name]
    runs, candidates = read_all_runs(OFFICIAL)
    episodes = draw_run_episodes(candidates, 7600, np.random.default_rng(0))
    assert (len(runs.images), episodes.examples) == (800, 7600)
