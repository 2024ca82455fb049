"""Formulas as MathML, which browsers draw by themselves: no script, no font, nothing to fetch."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml

_SIZES = re.compile(r"\\[Bb]igg?[lrm]?(?![a-zA-Z])")  # of brackets: MathML stretches them by itself
_SIGNS = {"∂": r"\partial ", "½": r"\tfrac{1}{2}", "·": r"\cdot "}  # in docstrings, unknown to the converter


def markup(formula: str, *, block: bool) -> str:
    """MathML of a LaTeX formula."""
    for sign, command in _SIGNS.items():
        formula = formula.replace(sign, command)
    return str(latex2mathml.tex2mathml(_SIZES.sub("", formula), as_block=block))


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(markup(node.astext(), block=False))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{markup(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
