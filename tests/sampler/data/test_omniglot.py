"""Omniglot's files: their union, what is refused by name, and how they are fetched."""

import functools
import hashlib
import http.server
import threading
from pathlib import Path

import numpy as np
import pytest

from sampler.data.image_files import (
    CHECKSUMS,
    download_omniglot,
    read_omniglot,
    resize,
)
from sampler.errors import InputError
from tests import ROOT
from tests.pictures import ink_of, png, write_omniglot

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
    (folder / SMALL_2).unlink()
    alone = read_omniglot(folder).names
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


def test_archives_that_are_not_whole_or_not_there_are_refused(folder):
    (folder / SMALL_2).write_bytes((folder / SMALL_2).read_bytes()[:-100])
    for place in (folder, folder / "none"):
        with pytest.raises(InputError):
            read_omniglot(place)


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
    download_omniglot(own, server, checksums)
    for name in checksums:
        assert (own / name).read_bytes() == (folder / name).read_bytes()
    # What is there and intact needs no network.
    download_omniglot(own, "http://127.0.0.1:9/", checksums)
    # These are not the official ones.
    with pytest.raises(InputError):
        download_omniglot(tmp_path / "other", server)
    assert not (tmp_path / "other" / SMALL_1).exists()


def test_official_files_have_their_checksums():
    if not OFFICIAL.is_dir():
        pytest.skip("the official files are not in runs/omniglot")
    for name in (SMALL_1, SMALL_2):
        assert sha256(OFFICIAL / name) == CHECKSUMS[name]
