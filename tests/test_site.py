"""The built site in a real browser: pages load without a word on the console and without a network,
equations and pictures are there, nothing is wider than a phone. `make docs` builds it."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

from tests import ROOT
from tests.sampler.presentation.test_report_browser import BROWSER, browse

SITE = ROOT / "docs" / "_build" / "html"
SOURCES = [
    path
    for pattern in ("docs/**/*.md", "docs/**/*.rst", "docs/**/*.py", "docs/static/*")
    for path in ROOT.glob(pattern)
    if "_build" not in path.parts
]
INDEX = SITE / "index.html"


def is_built() -> bool:
    """Whether the site was built after its sources were changed."""
    newest = max(path.stat().st_mtime for path in SOURCES)
    return INDEX.is_file() and (SITE / "searchindex.js").stat().st_mtime >= newest


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_built(), reason="the site is not built, or older: `make docs`"),
]
in_a_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium: install `chromium`")
PAGES = (
    "index", "concepts", "gallery", "tutorials/five_minutes", "tutorials/own_theory",
    "reference/recipe", "reference/python", "findings/variants",
)  # fmt: skip
# Looks at a page in a frame as wide as a phone, from a page in the same folder.
PROBE = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>waiting</title></head><body>
<iframe id="page" style="width:400px;height:800px;border:0" src="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const page = document.getElementById("page").contentDocument;
  const root = page.documentElement;
  document.title = JSON.stringify({{
    images: [...page.querySelectorAll("article img")].map(image => image.naturalWidth),
    equations: page.querySelectorAll("math").length,
    widths: [page.defaultView.innerWidth, root.scrollWidth],
    heading: page.querySelector("h1").innerText.trim(),
  }});
}});
</script></body></html>"""


@pytest.mark.parametrize("path", sorted(SITE.glob("**/*.html")), ids=lambda p: p.stem)
def test_nothing_is_loaded_from_a_network(path):
    text = path.read_text(encoding="utf-8")
    loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"([^\"]+)", text)
    loaded += re.findall(r"<link[^>]* href=\"([^\"]+)", text)
    assert [address for address in loaded if re.match(r"(https?:)?//", address)] == []


@in_a_browser
@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_a_browser(name, tmp_path):
    page = SITE / f"{name}.html"
    _, console = browse(page, tmp_path / "alone")
    assert console == []
    seen = looked_at(page, tmp_path)
    inside, needed = seen["widths"]
    assert seen["heading"]
    assert needed <= inside == 400
    assert all(width > 0 for width in seen["images"])
    source = (ROOT / "docs" / f"{name}.md").with_suffix
    written = next(path for path in (source(".md"), source(".rst")) if path.is_file())
    text = written.read_text(encoding="utf-8")
    assert len(seen["images"]) >= len(re.findall(r"!\[", text))
    assert (seen["equations"] > 0) == ("$$" in text)


def looked_at(page: Path, folder: Path) -> dict:
    """What the probe found."""
    probe = folder / "probe.html"
    probe.write_text(PROBE.format(page=page.as_uri()), encoding="utf-8")
    document, _ = browse(probe, folder / "profile", "--allow-file-access-from-files")
    title = re.search(r"<title>(.*?)</title>", document, flags=re.DOTALL).group(1)
    return json.loads(unescape(title))
