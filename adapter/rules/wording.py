"""Words of the messages about rules: counts, lists, and the names of series."""

from collections.abc import Iterable

from adapter.model.go_text import quote
from adapter.rules import matchers

_LISTED = 5


def counted(number: int, one: str, several: str) -> str:
    """Return a number with its noun."""
    return f"{number} {one if number == 1 else several}"


def listed(texts: Iterable[str]) -> str:
    """Return the first texts, and how many more there are."""
    every = list(texts)
    more = f" and {len(every) - _LISTED} more" if len(every) > _LISTED else ""
    return f"{', '.join(every[:_LISTED])}{more}"


def shown_series(name: str) -> str:
    """Return the name of a series; one that PromQL cannot write is quoted and cut."""
    return name if matchers.is_series_name(name) else quote(matchers.shorten(name))
