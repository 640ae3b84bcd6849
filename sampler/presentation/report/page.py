"""The page around the sections: head, contents, landmarks, style; no script."""

from collections.abc import Mapping
from importlib.resources import files

from sampler import __version__
from sampler.presentation.report.elements import Html, element, joined, listing, section
from sampler.presentation.report.verdict import Verdict


def page(title: str, subtitle: str, notices: Html, sections: Mapping[str, tuple[str, Html]]) -> str:
    """A complete HTML document.

    sections: identity → title and content, in the order of the page.
    """
    contents = [element("a", name, href=f"#{key}") for key, (name, _) in sections.items()]
    style = Html(files(__package__).joinpath("style.css").read_text(encoding="utf-8"))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title}: theory and exact posterior"),
        # An empty icon, or a browser asks for one.
        element("link", rel="icon", href="data:,"),
        element("style", style),
    )
    body = element(
        "body",
        element("a", "To the verdict", href="#verdict", class_="skip"),
        element(
            "header",
            element("h1", title),
            element("p", subtitle, class_="subtitle"),
            element("nav", listing(contents), aria_label="Contents"),
        ),
        element(
            "main",
            notices,
            *(section(key, name, content) for key, (name, content) in sections.items()),
        ),
        element(
            "footer", element("p", f"From stored results, by attention-posterior {__version__}.")
        ),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def verdict_box(verdict: Verdict) -> Html:
    """A verdict with its reasons; the colour says nothing that the words do not."""
    headline = element("p", element("strong", verdict.headline))
    reasons = [listing(verdict.reasons)] if verdict.reasons else []
    return element("div", headline, *reasons, class_=f"verdict {verdict.tone}")


def notice(text: str) -> Html:
    return element("p", text, class_="notice")


def figures_and_tables(*parts: Html | None) -> Html:
    """What there is of them, one after the other."""
    return joined([part for part in parts if part is not None])
