"""Omniglot's files: their union, what is refused by name, and how they are fetched."""

import functools
import hashlib
import http.server
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.images.drawings import resize
from sampler.images.omniglot import CHECKSUMS, download_omniglot, read_all_runs, read_omniglot
from sampler.images.sources import read_drawings
from sampler.recipes.training_recipe import ImageSection
from tests import SHARED
from tests.pictures import ink_of, png, write_all_runs, write_omniglot

SMALL_1, SMALL_2 = "images_background_small1.zip", "images_background_small2.zip"
GREEK = "Greek/character01/0001_02.png"
OFFICIAL = SHARED / "data" / "omniglot"


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


def test_one_archive_out_of_two(folder):
    names = read_omniglot(folder, (SMALL_1,)).names
    assert names == ("Greek/character01", "Greek/character02", "Latin/character01")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no image", r"small1\.zip/.*0001_02\.png = \(unreadable\)"),
        (png(ink_of("a"))[:200], r"small1\.zip/.*0001_02\.png = \(unreadable\)"),
        (png(ink_of("a", 104)), r"0001_02\.png = '104 × 104 pixels': must have 105 × 105"),
        (png(ink_of("other")), r"0001_02\.png = .*: is another drawing in another archive"),
    ],
    ids=["unreadable", "truncated", "mis-sized", "conflicting"],
)
def test_an_image_that_cannot_be_used_is_named(folder, content, message):
    write_omniglot(folder / SMALL_1, {"Greek": 1}, **{GREEK: content})
    with pytest.raises(InputError, match=message) as caught:
        read_omniglot(folder)
    assert "\n" not in str(caught.value)


def test_a_truncated_archive_is_named(folder):
    path = folder / SMALL_2
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"^images_background_small2\.zip = .*fetch this"):
        read_omniglot(folder)


def test_a_damaged_member_is_named(folder):
    content = bytearray((folder / SMALL_1).read_bytes())
    with zipfile.ZipFile(folder / SMALL_1) as archive:
        place = archive.infolist()[4].header_offset
        name = archive.infolist()[4].filename
    content[place + 200] ^= 1
    (folder / SMALL_1).write_bytes(content)
    with pytest.raises(InputError, match=rf"small1\.zip/{name} = .*CRC"):
        read_omniglot(folder)


def test_what_is_missing_is_named(tmp_path, folder):
    with pytest.raises(InputError, match=r"^task\.folder = .*is no folder"):
        read_omniglot(tmp_path / "none")
    with pytest.raises(InputError, match=r"holds no images_background\.zip; put it there"):
        read_omniglot(folder, ("images_background.zip", SMALL_1))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="put one of them there"):
        read_omniglot(tmp_path / "empty")
    with pytest.raises(InputError, match=r"^task\.folder = \(absent\)"):
        read_drawings(ImageSection(kind="one_shot", images="omniglot"))


def test_an_archive_of_something_else(tmp_path):
    with zipfile.ZipFile(tmp_path / SMALL_1, "w") as archive:
        archive.writestr("notes.txt", "mine")
    with pytest.raises(InputError, match="holds no drawings"):
        read_omniglot(tmp_path)


def test_runs_give_episodes_within_a_run(tmp_path):
    write_all_runs(tmp_path / "all_runs.zip")
    drawings, episodes = read_all_runs(tmp_path, 7600, np.random.default_rng(0))
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
    fewer = read_all_runs(tmp_path, 10, np.random.default_rng(3))[1]
    again = read_all_runs(tmp_path, 10, np.random.default_rng(3))[1]
    assert np.array_equal(fewer.places[0], again.places[0])
    with pytest.raises(InputError, match="has 7600 episodes; use fewer"):
        read_all_runs(tmp_path, 7601, np.random.default_rng(0))


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


def test_a_file_with_another_checksum_is_refused(server, tmp_path):
    with pytest.raises(InputError, match=r"small1\.zip': cannot be fetched .*hash"):
        download_omniglot(tmp_path / "own", (SMALL_1,), server)
    assert not (tmp_path / "own" / SMALL_1).exists()


def test_no_network_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match=r"cannot be fetched .* use images = \"digits\""):
        download_omniglot(tmp_path / "own", (SMALL_1,), "http://127.0.0.1:9/")


def test_official_files_have_their_checksums_and_sizes():
    if not OFFICIAL.is_dir():
        pytest.skip("shared/data/omniglot is not beside this checkout")
    for name in (SMALL_1, SMALL_2, "all_runs.zip"):
        assert sha256(OFFICIAL / name) == CHECKSUMS[name]
    drawings = read_omniglot(OFFICIAL)
    assert drawings.characters == 242
    assert set(drawings.counts.tolist()) == {20}
    assert len({name.split("/")[0] for name in drawings.names}) == 8
    assert 0.03 < drawings.images.mean() < 0.1
    runs, episodes = read_all_runs(OFFICIAL, 7600, np.random.default_rng(0))
    assert (len(runs.images), episodes.examples) == (800, 7600)
