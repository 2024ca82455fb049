"""Formulas as MathML, which browsers draw by themselves: no script, no font, nothing to fetch."""

from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml


def _markup(node: nodes.Node, block: bool) -> str:
    return str(latex2mathml.tex2mathml(node.astext(), as_block=block))


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(_markup(node, block=False))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{_markup(node, block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
