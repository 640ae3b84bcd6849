"""The page of a run in a real browser: no error, every picture and number, nothing too wide."""

import html
import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from tests.pages import Page, page_of, stored_run

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
SECONDS = 300  # of a browser that starts on a busy machine
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium: install the package `chromium`"),
]
# Looks at the page from outside, since it has no script: in a frame as wide as a small phone.
PROBE = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>waiting</title></head><body>
<iframe id="page" style="width:360px;height:800px;border:0" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const page = document.getElementById("page").contentDocument;
  const root = page.documentElement;
  const folded = page.querySelectorAll("details:not([open])").length;
  page.querySelectorAll("details").forEach(one => one.open = true);
  document.title = JSON.stringify({{
    folded: folded,
    images: [...page.images].map(image => image.naturalWidth),
    widths: [page.defaultView.innerWidth, root.scrollWidth],
    cells: [...page.querySelectorAll("td, th")].map(cell => cell.innerText.trim()),
    light: [...page.querySelectorAll(".card")].map(card => getComputedStyle(card).backgroundColor),
  }});
}});
</script></body></html>"""


def browse(page: Path, profile: Path, *options: str) -> tuple[str, list[str]]:
    """The document after loading, and what the page wrote to the console."""
    finished = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
            f"--user-data-dir={profile}", "--enable-logging=stderr", "--virtual-time-budget=20000",
            *options, "--dump-dom", page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "HOME": str(profile)},
        check=True,
    )  # fmt: skip
    return finished.stdout, re.findall(r"^.*CONSOLE.*$", finished.stderr, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    directory = stored_run(tmp_path_factory.mktemp("results") / "run")
    page_of(directory)
    return directory


@pytest.fixture(scope="module")
def seen(run, tmp_path_factory) -> dict:
    """What the probe found."""
    folder = tmp_path_factory.mktemp("probe")
    page = (run / "report.html").read_text(encoding="utf-8")
    probe = folder / "probe.html"
    probe.write_text(PROBE.format(page=html.escape(page)), encoding="utf-8")
    document, console = browse(probe, folder / "profile")
    assert not console
    title = re.search(r"<title>(.*?)</title>", document, flags=re.DOTALL).group(1)
    return json.loads(unescape(title))


def test_the_page_loads_without_a_word_on_the_console(run, tmp_path):
    document, console = browse(run / "report.html", tmp_path / "profile")
    assert console == []
    assert "</footer>" in document


def test_all_but_the_verdict_is_folded_until_it_is_asked_for(run, seen):
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    assert seen["folded"] == len(page.named("details")) >= 5


def test_every_picture_loads(run, seen):
    assert len(seen["images"]) == len(list((run / "figures").glob("*.png")))
    assert min(seen["images"]) > 0


def test_nothing_scrolls_sideways_on_a_small_phone_but_tables_and_figures(seen):
    inside, needed = seen["widths"]
    assert inside == 360
    assert needed <= inside


def test_a_reader_sees_the_cells_that_were_written(run, seen):
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    written = [cell for table in page.tables for row in table.rows for cell in row]
    received = [" ".join(cell.split()) for cell in seen["cells"]]
    assert received == [" ".join(cell.split()) for cell in written]


def test_figures_lie_on_a_light_card_in_the_dark(seen):
    assert set(seen["light"]) == {"rgb(255, 255, 255)"}
