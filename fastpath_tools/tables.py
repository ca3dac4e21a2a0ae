"""Tables and figures as text: for a terminal as kubectl prints them, and in Markdown."""

from collections.abc import Iterable, Sequence

from adapter.model import timestamps


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as kubectl prints them: names to the left, numbers to the right, the head in capitals."""
    head, *below = rows
    shown = [[cell.upper() for cell in head], *below]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["   ".join(_aligned(row, widths)).rstrip() for row in shown]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> Iterable[str]:
    for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.rjust(width) if place else cell.ljust(width)


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as a table in Markdown, the numbers to the right."""
    head, *below = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    ruler = ["---", *("---:" for _ in head[1:])]
    return [f"| {' | '.join(row)} |" for row in (head, ruler, *below)]


def share(part: float, whole: float) -> str:
    """Return a part of a whole in per cent, "-" of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def duration(seconds: float) -> str:
    """Return seconds as a duration such as ``1h30m0s``, in days from two days on."""
    if seconds >= 2 * 86400:
        return f"{seconds / 86400:.4g}d"
    return timestamps.format_go_duration(round(seconds))
