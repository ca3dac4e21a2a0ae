"""What the SVG pictures share: text, numbers, the axis of pods, and colors for light and dark.

A picture has no script and names nothing outside of it.
"""

import math
from collections.abc import Sequence
from xml.sax import saxutils

from adapter.model import visible

STYLE = """svg { --ink: #1f2328; --soft: #59636e; --rule: #d8dee4; --paper: #ffffff; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --soft: #9198a1; --rule: #2f353d; --paper: #0d1117; }
}
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--soft); }
.title { font-size: 15px; font-weight: 600; fill: var(--ink); }
.paper { fill: var(--paper); }
.rule { stroke: var(--rule); stroke-width: 1; }
"""
"""The style of every picture; its colors follow the light or dark scheme of the reader."""


def ceiling(pods: float) -> float:
    """Return the top of the axis: the next round number."""
    if pods <= 1:
        return 1.0
    unit = float(10 ** math.floor(math.log10(pods)))
    return next(unit * factor for factor in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if unit * factor >= pods)


def marks(pods: float) -> Sequence[float]:
    """Return the numbers of the axis: none is a fraction of a pod."""
    count = next((count for count in (4, 3, 5, 2) if pods % count == 0), 1)
    return [pods * place / count for place in range(count + 1)]


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def escaped(text: str) -> str:
    return saxutils.escape(visible.escape(text))


def text(x: float, y: float, words: str, kind: str = "", *, anchor: str = "") -> str:
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{number(x)}" y="{number(y)}"{attributes}>{escaped(words)}</text>'
