"""The query parameters that Kubernetes gives every list: what is wrong with them, in the order in which upstream finds it.

Here: numbers, the field selector, and which options go together. Not here: selectors of labels (`api`). Nothing in these
parameters changes an answer; a client that sends nonsense is told so, as by every other API server.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from adapter import errors
from adapter.model.go_text import quote
from adapter.model.selectors import field_selectors

_NUMBER = re.compile(r"[+-]?[0-9]+")
_FALSE_WORDS = frozenset({"0", "false"})
_MATCH = "resourceVersionMatch"
_INITIAL = "sendInitialEvents"

NAMES = frozenset(
    {"fieldSelector", "timeoutSeconds", "limit", "resourceVersion", _MATCH, "continue", _INITIAL}
)
"""The query parameters that are read here."""


class ListOptions(NamedTuple):
    """The first value of each parameter, as text; None for a number that was not given. `initial_events`: whether it was given."""

    field_selector: str = ""
    timeout_seconds: str | None = None
    limit: str | None = None
    resource_version: str = ""
    resource_version_match: str = ""
    continued: str = ""
    initial_events: bool = False


def read(values: Mapping[str, str]) -> ListOptions:
    """Return the options among the query parameters."""
    return ListOptions(
        values.get("fieldSelector", ""),
        values.get("timeoutSeconds"),
        values.get("limit"),
        values.get("resourceVersion", ""),
        values.get(_MATCH, ""),
        values.get("continue", ""),
        _INITIAL in values,
    )


def is_true(text: str) -> bool:
    """Return how a flag among query parameters is read: everything but two words is true, the empty text included."""
    return text.lower() not in _FALSE_WORDS


def check_numbers(options: ListOptions) -> None:
    """Raise `errors.BadRequestError` for a number that is none or has more than 64 bits."""
    for text in (options.timeout_seconds, options.limit):
        if text is None:
            continue
        if not _NUMBER.fullmatch(text):
            raise errors.BadRequestError(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax")
        digits = text.lstrip("+-").lstrip("0")
        if len(digits) > 19 or not -(2**63) <= int(text) < 2**63:
            raise errors.BadRequestError(f"strconv.ParseInt: parsing {quote(text)}: value out of range")


def parse_fields(options: ListOptions) -> tuple[field_selectors.Term, ...]:
    """Return the field selector; BadRequestError when it is none."""
    return field_selectors.parse_selector(options.field_selector)


def check_together(options: ListOptions, *, watch: bool) -> None:
    """Raise `errors.InvalidError` with every option that may not stand beside the others."""
    found = _watch_causes(options) if watch else _list_causes(options)
    if found:
        raise errors.InvalidError("meta.k8s.io", "ListOptions", found)


def _list_causes(options: ListOptions) -> list[errors.Cause]:
    found = []
    match = options.resource_version_match
    if match:
        if not options.resource_version:
            found.append(_forbidden(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided"))
        if options.continued:
            found.append(_forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
        if match not in {"Exact", "NotOlderThan"}:
            found.append(_unsupported(match, "Exact", "NotOlderThan", ""))
        if match == "Exact" and options.resource_version == "0":
            found.append(_forbidden(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    if options.initial_events:
        found.append(_forbidden(_INITIAL, f"{_INITIAL} is forbidden for list"))
    return found


def _watch_causes(options: ListOptions) -> list[errors.Cause]:
    found = []
    match = options.resource_version_match
    if options.initial_events:
        if match != "NotOlderThan":
            found.append(_forbidden(_MATCH, f"{_INITIAL} requires setting {_MATCH} to NotOlderThan"))
        gate = "is forbidden for watch unless the WatchList feature gate is enabled"
        found.append(_forbidden(_INITIAL, f"{_INITIAL} {gate}"))
    if match:
        if not options.initial_events:
            found.append(_forbidden(_MATCH, f"{_MATCH} is forbidden for watch unless {_INITIAL} is provided"))
        if match != "NotOlderThan":
            found.append(_unsupported(match, "NotOlderThan"))
        if options.continued:
            found.append(_forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
    return found


def _forbidden(field: str, detail: str) -> errors.Cause:
    return errors.Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def _unsupported(value: str, *allowed: str) -> errors.Cause:
    listed = ", ".join(map(quote, allowed))
    return errors.Cause(
        "FieldValueNotSupported", f"Unsupported value: {quote(value)}: supported values: {listed}", _MATCH
    )
