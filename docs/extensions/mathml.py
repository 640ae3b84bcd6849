"""Equations as MathML, which browsers show by themselves: no script, no font, no picture."""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def show_inline(writer, node: nodes.math) -> None:
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def show_block(writer, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="equation">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app) -> dict:
    app.add_html_math_renderer("mathml", (show_inline, None), (show_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
