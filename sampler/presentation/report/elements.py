"""Pieces of a page, and numbers as text."""

import base64
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

MISSING = "–"
NO_BREAK = "\N{NO-BREAK SPACE}"
DIGITS = 4


@dataclass(frozen=True)
class Number:
    """A value, with its error where it has one; NaN or None stand for a number that is undefined.

    scale: what it is multiplied by to be shown, 100 for a share in per cent. unit: after it.
    digits: significant ones of a value without an error.
    """

    value: float | int | None
    error: float | int | None = None
    scale: float = 1.0
    unit: str = ""
    digits: int = DIGITS

    @property
    def defined(self) -> bool:
        return self.value is not None and math.isfinite(self.value)

    @property
    def text(self) -> str:
        """`14.96 ± 0.13`: the error to two digits, the value to as many decimals."""
        if not self.defined:
            return MISSING
        value = self.value if self.scale == 1.0 else self.scale * float(self.value)
        if self.error is None or not math.isfinite(self.error):
            return _minus(significant(value, self.digits)) + self.unit
        error = self.scale * float(self.error)
        if error <= 0.0:
            return _minus(significant(value, self.digits)) + f"{self.unit} (no spread)"
        places = max(0, 1 - math.floor(math.log10(error)))
        # 0.0996 is 0.10 to two digits, not 0.100.
        if places and float(f"{error:.{places}f}") >= 10.0 ** (2 - places):
            places -= 1
        return _minus(f"{value:.{places}f} ± {error:.{places}f}") + self.unit

    def __str__(self) -> str:
        return self.text


def percent(value: float | int | None, error: float | int | None = None, digits: int = 3) -> Number:
    """A share in per cent."""
    return Number(value, error, 100.0, f"{NO_BREAK}%", digits)


def count(value: float | int | None) -> Number:
    """A whole number; rounded down, as an effective sample size is."""
    defined = value is not None and math.isfinite(value)
    return Number(math.floor(value) if defined else None)


def significant(value: float | int, digits: int) -> str:
    """So many significant digits, with an exponent only where a number would be long."""
    if isinstance(value, int) or value == 0.0:
        return f"{int(value)}"
    if not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, places)}f}"


def _minus(text: str) -> str:
    return text.replace("-", "−")


# Pixels on the page for a pixel of a figure: text as large as the page's, and sharp.
SHOWN = 0.75
VOID = ("br", "img", "link", "meta")


class Html(str):
    """Markup that is written as it is; every other text is escaped."""


Content = str | Number


def element(name: str, /, *children: Content, **attributes: object) -> Html:
    """One element. `class_` is written as class, `aria_label` as aria-label; None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{joined(children)}</{name}>")


def joined(children: Sequence[Content]) -> Html:
    """Elements and escaped texts, one after the other."""
    return Html("".join(map(markup, children)))


def markup(content: Content) -> Html:
    """A number keeps its full value beside its rounded text, for programs that read the page."""
    if isinstance(content, Html):
        return content
    if not isinstance(content, Number):
        return Html(escape(content, quote=False))
    if not content.defined:
        return Html(content.text)
    return element("data", content.text, value=repr(content.value))


def paragraphs(*texts: Content) -> Html:
    return joined([element("p", text) for text in texts])


def listing(items: Sequence[Content]) -> Html:
    return element("ul", *(element("li", item) for item in items))


def section(identity: str, title: str, *children: Content) -> Html:
    """A part of the page under a heading of the second order."""
    heading = element("h2", title, id=f"{identity}-title")
    return element("section", heading, *children, id=identity, aria_labelledby=f"{identity}-title")


def scrolling(label: str, *children: Content) -> Html:
    """What may be wider than the screen scrolls by itself, from the keyboard too."""
    return element("div", *children, class_="scroll", role="group", aria_label=label, tabindex="0")


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[Content]]) -> Html:
    """A table whose first column names its rows; numbers are aligned on the right."""
    columns = zip(header, *rows, strict=True)
    head = [element("th", name, scope="col", class_=_alignment(cells)) for name, *cells in columns]
    body = [
        element("tr", element("th", row[0], scope="row"), *(_cell(cell) for cell in row[1:]))
        for row in rows
    ]
    return scrolling(
        caption,
        element(
            "table",
            element("caption", caption),
            element("thead", element("tr", *head)),
            element("tbody", *body),
        ),
    )


def _cell(content: Content) -> Html:
    return element("td", content, class_=_alignment([content]))


def _alignment(cells: Sequence[Content]) -> str | None:
    """Numbers are aligned on the right, and the names of their columns above them."""
    return "number" if any(isinstance(cell, Number) for cell in cells) else None


def figure(png: Path, alternative: str, caption: str) -> Html:
    """A picture inside the page, with what it shows in words."""
    content = png.read_bytes()
    width, height = struct.unpack(">II", content[16:24])  # the header of a PNG
    picture = element(
        "img",
        src=f"data:image/png;base64,{base64.b64encode(content).decode('ascii')}",
        alt=alternative,
        width=round(SHOWN * width),
        height=round(SHOWN * height),
    )
    card = element("div", picture, class_="card")
    return element("figure", card, element("figcaption", caption), id=f"figure-{png.stem}")
