"""Tables and figures as text: for a terminal as kubectl prints them, and in Markdown."""

from collections.abc import Container, Sequence

from adapter.model import timestamps


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as kubectl prints them: names to the left, numbers to the right, the head in capitals."""
    head, *below = rows
    return columns([[cell.upper() for cell in head], *below], range(1, len(head)), "   ")


def columns(rows: Sequence[Sequence[str]], right: Container[int], gap: str = "  ") -> list[str]:
    """Return rows as lines, the columns `right` right-aligned; a row of one cell is a heading."""
    whole = [row for row in rows if len(row) > 1]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=len(row) > 1))
        ]
        lines.append(gap.join(cells).rstrip())
    return lines


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as a table in Markdown, the numbers to the right."""
    head, *below = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    ruler = ["---", *("---:" for _ in head[1:])]
    return [f"| {' | '.join(row)} |" for row in (head, ruler, *below)]


def page(
    kind: str,
    name: str,
    about: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    *,
    markdown: bool,
) -> list[str]:
    """Return what a table is about, the table, and notes on it, as text or as a section in Markdown."""
    first, *others = about
    if markdown:
        lines = [f"### {kind} `{name}`", "", f"{first}.", *others, "", *markdown_table(rows)]
        notes = [f"- {note}." for note in notes]
    else:
        lines = [f"{name}: {first}", *others, "", *text_table(rows)]
    return [*lines, "", *notes] if notes else lines


def share(part: float, whole: float) -> str:
    """Return a part of a whole in per cent, "-" of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def duration(seconds: float) -> str:
    """Return seconds as a duration such as ``1h30m0s``, in days from two days on."""
    if seconds >= 2 * 86400:
        return f"{seconds / 86400:.4g}d"
    return timestamps.format_go_duration(round(seconds))


_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def short_duration(seconds: int, blank: str = "") -> str:
    """Return whole seconds without the units that are 0: ``0``, ``1m30s``, ``1d12h``."""
    parts = []
    for size, unit in _UNITS:
        number, seconds = divmod(seconds, size)
        parts += [f"{number}{unit}"] if number else []
    return blank.join(parts) or "0"
