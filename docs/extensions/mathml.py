"""Equations as MathML, which browsers show by themselves: no script, no font, no picture."""

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

# Docutils reads two digits as one number, and an index of an accent as something below it.
FRACTION = re.compile(r"(\\[dt]?frac)(\d)(?:(\d)|(?=[\\{]))")
# It leaves no space between a function and its argument without brackets.
FUNCTION = re.compile(r"(\\ln|\\det|\\dim|\\operatorname\{tr\})(?! ?\(| ?\[| ?\\,)")
ACCENT = re.compile(r"(\\(?:tilde|bar|hat) ?(?:\{[^{}]*\}|\\[a-z]+|[A-Za-z]))_")


def unambiguous(tex: str) -> str:
    """TeX with braces and spaces that make docutils show it as it is meant."""
    tex = FRACTION.sub(lambda of: f"{of[1]}{{{of[2]}}}" + (f"{{{of[3]}}}" if of[3] else ""), tex)
    return FUNCTION.sub(r"\1\\,", ACCENT.sub(r"\1{}_", tex))


def show_inline(writer, node: nodes.math) -> None:
    writer.body.append(tex2mathml(unambiguous(node.astext())))
    raise nodes.SkipNode


def show_block(writer, node: nodes.math_block) -> None:
    shown = tex2mathml(unambiguous(node.astext()), as_block=True)
    writer.body.append(f'<div class="equation">{shown}</div>')
    raise nodes.SkipNode


def setup(app) -> dict:
    app.add_html_math_renderer("mathml", (show_inline, None), (show_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
